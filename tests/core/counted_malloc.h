// Replaces malloc of a test program by one that counts, so that blocks are counted that other libraries ask
// for. One file of the program includes it. operator new calls malloc.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>

// The sanitizers replace malloc themselves, and only glibc has the names below.
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FOVEA_COUNTS_MALLOC 1
#else
#define FOVEA_COUNTS_MALLOC 0
#endif

namespace fovea::counting {

/// Blocks that were asked for.
inline std::atomic<std::int64_t> blocks{0};

inline void count() noexcept {
  blocks.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace fovea::counting

#if FOVEA_COUNTS_MALLOC
extern "C" {
void* __libc_malloc(std::size_t bytes);
void __libc_free(void* memory);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);

void* malloc(std::size_t bytes) {
  fovea::counting::count();
  return __libc_malloc(bytes);
}
void free(void* memory) {
  __libc_free(memory);
}
void* calloc(std::size_t count, std::size_t bytes) {
  fovea::counting::count();
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, std::size_t bytes) {
  fovea::counting::count();
  return __libc_realloc(memory, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  fovea::counting::count();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  fovea::counting::count();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  fovea::counting::count();
  *memory = __libc_memalign(alignment, bytes);
  return *memory ? 0 : ENOMEM;
}
}
#endif
