// Lists that a step makes anew each time, in memory that the step before it has left.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace fovea {

/// Small memory in the alignment of operator new. While a KeepMemory lives, what is given back serves the
/// next taker of such a size, so a step that repeats asks operator new for none. Throws std::bad_alloc.
void* take_small(std::size_t bytes);
/// Takes back what take_small gave for so many bytes.
void give_small(void* memory, std::size_t bytes) noexcept;

/// An allocator of such memory.
template <class T>
struct KeptAllocator {
  using value_type = T;
  static_assert(alignof(T) <= alignof(std::max_align_t));
  KeptAllocator() = default;
  template <class Other>
  KeptAllocator(const KeptAllocator<Other>&) noexcept {}  // NOLINT(google-explicit-constructor)
  T* allocate(std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T*>(take_small(count * sizeof(T)));
  }
  void deallocate(T* memory, std::size_t count) noexcept { give_small(memory, count * sizeof(T)); }
  friend bool operator==(const KeptAllocator&, const KeptAllocator&) noexcept { return true; }
};

/// A vector in such memory: steps that repeat under a KeepMemory (core/memory.h) make it without malloc.
template <class T>
using KeptVector = std::vector<T, KeptAllocator<T>>;

/// A shared object in such memory.
template <class T, class... Arguments>
std::shared_ptr<T> make_kept(Arguments&&... arguments) {
  return std::allocate_shared<T>(KeptAllocator<T>(), std::forward<Arguments>(arguments)...);
}

}  // namespace fovea
