// Replaces operator new of a test program by one that counts. One file of the program includes it.
#pragma once

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace fovea::counting {

/// malloc keeps smaller blocks for the next caller: by default it maps those of 128 KiB and more.
inline constexpr std::size_t large_block = std::size_t{1} << 16;

/// Blocks that were asked for, those of large_block bytes and more, bytes in use and the most of them.
inline std::atomic<std::int64_t> blocks{0}, large_blocks{0}, live_bytes{0}, peak_bytes{0};

inline void* counted(std::size_t size, std::size_t alignment) noexcept {
  ++blocks;
  if (size >= large_block) ++large_blocks;
  void* memory =
      std::aligned_alloc(alignment, (std::max<std::size_t>(size, 1) + alignment - 1) / alignment * alignment);
  if (!memory) return nullptr;
  const std::int64_t now = live_bytes += static_cast<std::int64_t>(malloc_usable_size(memory));
  for (std::int64_t most = peak_bytes; now > most && !peak_bytes.compare_exchange_weak(most, now);) {
  }
  return memory;
}

inline void uncounted(void* memory) noexcept {
  if (memory) live_bytes -= static_cast<std::int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

inline void* counted_or_throw(std::size_t size, std::size_t alignment) {
  if (void* memory = counted(size, alignment)) return memory;
  throw std::bad_alloc();
}

}  // namespace fovea::counting

void* operator new(std::size_t size) {
  return fovea::counting::counted_or_throw(size, alignof(std::max_align_t));
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return fovea::counting::counted_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return fovea::counting::counted(size, alignof(std::max_align_t));
}
void operator delete(void* memory) noexcept {
  fovea::counting::uncounted(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  fovea::counting::uncounted(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  fovea::counting::uncounted(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  fovea::counting::uncounted(memory);
}
