// Numbers for people and for parsers: the shortest text that reads back as the same number.
#pragma once

#include <charconv>
#include <string>

namespace fovea {

inline std::string shortest(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

}  // namespace fovea
