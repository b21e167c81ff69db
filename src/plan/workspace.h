// The memory of a call: one buffer, of which the call takes pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "fovea/core/error.h"

namespace fovea {

/// Pieces of a workspace begin at multiples of a cache line, so that no vector lies in two of them.
inline constexpr std::size_t workspace_alignment = 64;
/// What a caller's memory, which may begin anywhere, needs beyond the bytes of a call.
inline constexpr std::size_t workspace_slack = workspace_alignment - 1;
inline std::size_t aligned(std::size_t bytes) {
  return (bytes + workspace_alignment - 1) / workspace_alignment * workspace_alignment;
}

/// Hands out aligned pieces of a buffer. Without memory it only counts bytes: a counting carver.
class Carver {
 public:
  Carver() = default;
  explicit Carver(std::span<std::byte> memory) : memory_(memory) {}
  template <class T>
  T* take(std::int64_t count) {
    used_ = aligned(used_);
    std::byte* begin = memory_.data() ? memory_.data() + used_ : nullptr;
    used_ += static_cast<std::size_t>(count) * sizeof(T);
    return reinterpret_cast<T*>(begin);
  }
  std::size_t used() const { return used_; }
  /// The bytes used, and those that the alignment of the rest and of its own pieces may leave out.
  std::size_t used_before_rest() const { return used_ + 2 * workspace_alignment; }
  std::span<std::byte> rest() {
    used_ = aligned(used_);
    return memory_.data() ? memory_.subspan(used_) : std::span<std::byte>();
  }

 private:
  std::span<std::byte> memory_;
  std::size_t used_ = 0;
};

/// Refuses a number of threads that no executor has.
inline void check_threads(const char* function, int threads) {
  if (threads < 1) throw InvalidArgument(function, "threads", "at least 1", std::to_string(threads));
}

/// Returns `given` if it has memory, and throws InvalidArgument if that is too small. Otherwise returns this
/// thread's own buffer, grown to `bytes`. The result is aligned.
std::span<std::byte> workspace_of(const char* function, std::span<std::byte> given, std::size_t bytes);

}  // namespace fovea
