// Where the elements of a tensor come from.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <new>

namespace fovea {

/// Memory in 64-byte alignment, not initialised. Throws std::bad_alloc.
std::shared_ptr<std::byte[]> allocate_elements(std::size_t bytes);

/// Tensors of fewer bytes come from operator new, which itself keeps such memory for the next caller.
inline constexpr std::size_t large_tensor = std::size_t{1} << 16;

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

}  // namespace fovea
