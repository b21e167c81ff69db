// Numbers below the smallest normal one count as 0 while a FlushSubnormals lives, on its thread. Arithmetic
// with them is slow on many processors, and a state that only decays reaches them and stays there.
#pragma once

#include <cstdint>

#if defined(__x86_64__) || defined(_M_X64)
#include <xmmintrin.h>
#endif

namespace fovea::kernels {

class FlushSubnormals {
 public:
  FlushSubnormals() : before_(read()) { write(before_ | flush); }
  ~FlushSubnormals() { write(before_); }
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;
  /// Whether this processor has such a mode.
  static constexpr bool exists() { return flush != 0; }

 private:
#if defined(__x86_64__) || defined(_M_X64)
  static constexpr std::uint64_t flush = 0x8040;  // results (FTZ) and operands (DAZ)
  static std::uint64_t read() {
    return _mm_getcsr();
  }
  static void write(std::uint64_t mode) {
    _mm_setcsr(static_cast<unsigned>(mode));
  }
#elif defined(__aarch64__)
  static constexpr std::uint64_t flush = std::uint64_t{1} << 24;  // FZ: results and operands
  static std::uint64_t read() {
    std::uint64_t mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void write(std::uint64_t mode) {
    asm volatile("msr fpcr, %0" : : "r"(mode));
  }
#else
  static constexpr std::uint64_t flush = 0;
  static std::uint64_t read() {
    return 0;
  }
  static void write(std::uint64_t) {}
#endif

  std::uint64_t before_;
};

}  // namespace fovea::kernels
