#include "cli/probes_x86.h"

#include <cstdint>

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <immintrin.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif
#define FOVEA_X86 1
#else
#define FOVEA_X86 0
#endif

namespace fovea::cli {

#if FOVEA_X86
namespace {

// Keeps a result from being optimised away.
volatile float sink = 0.0f;

struct Leaf {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};
Leaf leaf_7(unsigned sub) noexcept {
  Leaf leaf;
  __get_cpuid_count(7, sub, &leaf.eax, &leaf.ebx, &leaf.ecx, &leaf.edx);
  return leaf;
}

bool request_tiles() noexcept {
#ifdef __linux__
  constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t bytes_a_row[16] = {};
  std::uint8_t rows[16] = {};
};

}  // namespace

const char* avx512_absence() noexcept {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")
             ? nullptr
             : "absent on this CPU (AVX-512)";
}

const char* dot_bf16_absence() noexcept {
  if (avx512_absence()) return "absent on this CPU (AVX512_BF16)";
  return leaf_7(1).eax >> 5 & 1 ? nullptr : "absent on this CPU (AVX512_BF16)";
}

const char* amx_absence() noexcept {
  static const char* const reason = [] {
    const unsigned edx = leaf_7(0).edx;
    if (!(edx >> 22 & 1) || !(edx >> 24 & 1)) return "absent on this CPU (AMX-BF16)";
    return request_tiles() ? static_cast<const char*>(nullptr)
                           : "the system gives no permission to use AMX tiles";
  }();
  return reason;
}

// In assembly: the compiler deletes stores that only fill a tile (GCC 12), and needs no option this way. Two
// tiles of A and two of B make four products, which hides their latency.
double amx_step() noexcept {
  constexpr int steps = 400, products = 4;
  alignas(64) static const std::uint8_t zeros[1024] = {};
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.bytes_a_row[tile] = 64;
    config.rows[tile] = 16;
  }
  asm volatile(
      "ldtilecfg %0\n"
      "tilezero %%tmm0\ntilezero %%tmm1\ntilezero %%tmm2\ntilezero %%tmm3\n"
      "tileloadd (%1,%2,1), %%tmm4\ntileloadd (%1,%2,1), %%tmm5\n"
      "tileloadd (%1,%2,1), %%tmm6\ntileloadd (%1,%2,1), %%tmm7\n"
      :
      : "m"(config), "r"(zeros), "r"(std::int64_t{64})
      : "memory");
  for (int n = 0; n < steps; ++n)
    asm volatile(
        "tdpbf16ps %%tmm6, %%tmm4, %%tmm0\ntdpbf16ps %%tmm7, %%tmm4, %%tmm1\n"
        "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\ntdpbf16ps %%tmm7, %%tmm5, %%tmm3\n" ::
            : "memory");
  asm volatile("tilerelease" ::: "memory");
  return 2.0 * steps * products * 16 * 16 * 32;
}

__attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) double dot_bf16_step() noexcept {
  constexpr int steps = 2000, sums = 12;
  const __m512bh a = (__m512bh)_mm512_set1_epi32(0x3f803f80), b = (__m512bh)_mm512_set1_epi32(0x2f802f80);
  __m512 sum[sums];
#pragma GCC unroll 12
  for (int i = 0; i < sums; ++i) sum[i] = _mm512_set1_ps(static_cast<float>(i));  // equal ones would be one
  for (int n = 0; n < steps; ++n) {
#pragma GCC unroll 12
    for (int i = 0; i < sums; ++i) sum[i] = _mm512_dpbf16_ps(sum[i], a, b);
  }
#pragma GCC unroll 12
  for (int i = 1; i < sums; ++i) sum[0] = _mm512_add_ps(sum[0], sum[i]);
  sink = _mm512_reduce_add_ps(sum[0]);
  return 4.0 * 16 * steps * sums;
}

__attribute__((target("avx512f,avx512dq"))) double exponential_16_step(const float* x, int count) noexcept {
  const __m512 c0 = _mm512_set1_ps(0.99992522f), c1 = _mm512_set1_ps(0.69583354f),
               c2 = _mm512_set1_ps(0.22606716f), c3 = _mm512_set1_ps(0.07802452f);
  __m512 sum[4];
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) sum[v] = _mm512_setzero_ps();
  for (int i = 0; i < count; i += 64) {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      const __m512 y = _mm512_loadu_ps(x + i + 16 * v), f = _mm512_reduce_ps(y, 0x01);  // y - floor(y)
      const __m512 p = _mm512_fmadd_ps(_mm512_fmadd_ps(_mm512_fmadd_ps(c3, f, c2), f, c1), f, c0);
      sum[v] = _mm512_add_ps(sum[v], _mm512_scalef_ps(p, y));
    }
  }
  sink = _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(sum[0], sum[1]), _mm512_add_ps(sum[2], sum[3])));
  return count;
}

#else

const char* amx_absence() noexcept {
  return "absent on this CPU (AMX-BF16)";
}
const char* dot_bf16_absence() noexcept {
  return "absent on this CPU (AVX512_BF16)";
}
const char* avx512_absence() noexcept {
  return "absent on this CPU (AVX-512)";
}
double amx_step() noexcept {
  return 0.0;
}
double dot_bf16_step() noexcept {
  return 0.0;
}
double exponential_16_step(const float*, int) noexcept {
  return 0.0;
}

#endif

}  // namespace fovea::cli
