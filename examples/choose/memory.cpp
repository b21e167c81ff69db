#include "memory.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::int64_t> held{0}, peak{0};

void* counted(void* memory) {
  if (!memory) throw std::bad_alloc();
  const std::int64_t now = held += static_cast<std::int64_t>(malloc_usable_size(memory));
  std::int64_t most = peak;
  while (now > most && !peak.compare_exchange_weak(most, now)) {
  }
  return memory;
}

void give_back(void* memory) {
  held -= static_cast<std::int64_t>(malloc_usable_size(memory));  // of nullptr: 0
  std::free(memory);
}

}  // namespace

// Arrays and the forms that do not throw call these.
void* operator new(std::size_t bytes) {
  return counted(std::malloc(bytes > 0 ? bytes : 1));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  const auto to = static_cast<std::size_t>(alignment);
  return counted(std::aligned_alloc(to, (bytes / to + 1) * to));
}
void operator delete(void* memory) noexcept {
  give_back(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  give_back(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  give_back(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  give_back(memory);
}

namespace choose {

std::int64_t bytes_held() {
  return held;
}
std::int64_t peak_bytes() {
  return peak;
}
void forget_peak() {
  peak = held.load();
}

}  // namespace choose
