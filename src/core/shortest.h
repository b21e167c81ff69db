// The shortest text of a number that reads back as the same number, for people and for parsers.
#pragma once

#include <charconv>
#include <string>

namespace fovea {

inline std::string shortest(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

}  // namespace fovea
