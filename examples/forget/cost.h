// The cost of a mask for the engine: counted from the mask, and measured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "fovea/attention/mask.h"

namespace forget {

struct Cost {
  double pairs = 0.0;         ///< of a query and a key that it sees, per head
  double seconds = 0.0;       ///< of one call, the fastest of a few
  std::size_t workspace = 0;  ///< bytes
  std::string explanation;    ///< of the plan
};

struct HeadShape {
  std::int64_t heads = 4, dim = 16;
};
/// One call over `length` words, on one thread.
Cost cost_of(const fovea::Mask& mask, std::int64_t length, const HeadShape& shape, int repeats);

}  // namespace forget
