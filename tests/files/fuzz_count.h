// How many damaged inputs a test gives to a reader.
#pragma once

#include <cstdlib>

namespace fovea::files {

/// FOVEA_FUZZ, such as 10000000 for a long run, or `usual` without it.
inline int fuzz_count(int usual) {
  const char* asked = std::getenv("FOVEA_FUZZ");
  return asked ? std::atoi(asked) : usual;
}

}  // namespace fovea::files
