#include "core/cpu.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#ifdef __x86_64__
#include <cpuid.h>
#endif

namespace fovea {

#ifdef __x86_64__
namespace {

// Clang 14 does not know the names f16c and lzcnt in __builtin_cpu_supports.
bool has_f16c_and_lzcnt() noexcept {
  constexpr unsigned f16c = 1u << 29, lzcnt = 1u << 5;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || (ecx & f16c) == 0) return false;
  return __get_cpuid(0x80000001, &eax, &ebx, &ecx, &edx) && (ecx & lzcnt) != 0;
}

unsigned cpu_family() noexcept {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx)) return 0;
  const unsigned base = eax >> 8 & 0xf, extended = eax >> 20 & 0xff;
  return base == 0xf ? base + extended : base;
}

}  // namespace

// Each is asked once: a plan asks forty times.
bool cpu_has_sse42() noexcept {
  static const bool has = __builtin_cpu_supports("sse4.2");
  return has;
}
bool cpu_has_avx2() noexcept {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                          __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                          has_f16c_and_lzcnt();
  return has;
}
bool cpu_has_avx512() noexcept {
  static const bool has = cpu_has_avx2() && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return has;
}
bool cpu_has_avx512_bf16() noexcept {
  static const bool has = cpu_has_avx512() && __builtin_cpu_supports("avx512bf16");
  return has;
}
bool cpu_has_fast_bf16_dots() noexcept {
  static const bool has = cpu_has_avx512_bf16() && !__builtin_cpu_is("intel");
  return has;
}
bool cpu_prefetches_into_first_level() noexcept {
  static const bool does = __builtin_cpu_is("amd") && cpu_family() >= 0x1a;
  return does;
}
bool cpu_has_avx512_vnni() noexcept {
  static const bool has = cpu_has_avx512() && __builtin_cpu_supports("avx512vnni");
  return has;
}
#else
bool cpu_has_sse42() noexcept {
  return false;
}
bool cpu_has_avx2() noexcept {
  return false;
}
bool cpu_has_avx512() noexcept {
  return false;
}
bool cpu_has_avx512_bf16() noexcept {
  return false;
}
bool cpu_has_fast_bf16_dots() noexcept {
  return false;
}
bool cpu_prefetches_into_first_level() noexcept {
  return false;
}
bool cpu_has_avx512_vnni() noexcept {
  return false;
}
#endif

int usable_cores() noexcept {
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::int64_t second_level_cache_bytes() noexcept {
#ifdef _SC_LEVEL2_CACHE_SIZE
  static const std::int64_t found = sysconf(_SC_LEVEL2_CACHE_SIZE);
  if (found > 0) return found;
#endif
  return 512 << 10;
}

}  // namespace fovea
