// The memory of tensors. Large tensors lie in regions, which the process takes from the system and uses again
// for the next tensors.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fovea {

/// While one of these lives, no region goes back to the system, so that a step that repeats finds all the
/// memory of the step before it. Small blocks wait for the next step likewise. An optimiser has one
/// (nn::Adam): a training keeps its memory, and gives it back when the optimiser ends. Without one, regions
/// in which nothing lives go back, except a quarter of what is in use or 64 MiB, whichever is more. Objects
/// may live in several threads at once.
class KeepMemory {
 public:
  KeepMemory();
  KeepMemory(const KeepMemory&);
  KeepMemory& operator=(const KeepMemory&) { return *this; }
  ~KeepMemory();
};

/// What the large tensors of this process take, in bytes.
struct TensorMemory {
  std::size_t taken = 0;      ///< from the system
  std::size_t used = 0;       ///< of that, by tensors
  std::int64_t requests = 0;  ///< to the system, since the start of the process
};
TensorMemory tensor_memory();

}  // namespace fovea
