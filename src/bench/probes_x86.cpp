#include "bench/probes_x86.h"

#include <cstdint>

#include "core/cpu.h"
#include "kernels/tiles/product.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define FOVEA_X86 1
#else
#define FOVEA_X86 0
#endif

namespace fovea::bench {

#if FOVEA_X86
namespace {

// Keeps a result from being optimised away.
volatile float sink = 0.0f;

}  // namespace

// In assembly: GCC 12 deletes stores whose only use is to fill a tile register, and assembly needs no
// compiler option. Two tile registers of A and two of B make four products, which hides their latency.
double amx_step() noexcept {
  constexpr int steps = 400, products = 4;
  alignas(64) static const std::uint8_t zeros[1024] = {};
  kernels::amx_engine()->begin();
  asm volatile(
      "tilezero %%tmm0\ntilezero %%tmm1\ntilezero %%tmm2\ntilezero %%tmm3\n"
      "tileloadd (%0,%1,1), %%tmm4\ntileloadd (%0,%1,1), %%tmm5\n"
      "tileloadd (%0,%1,1), %%tmm6\ntileloadd (%0,%1,1), %%tmm7\n"
      :
      : "r"(zeros), "r"(std::int64_t{64})
      : "memory");
  for (int n = 0; n < steps; ++n)
    asm volatile(
        "tdpbf16ps %%tmm6, %%tmm4, %%tmm0\ntdpbf16ps %%tmm7, %%tmm4, %%tmm1\n"
        "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\ntdpbf16ps %%tmm7, %%tmm5, %%tmm3\n" ::
            : "memory");
  kernels::amx_engine()->end();
  return 2.0 * steps * products * 16 * 16 * 32;
}

__attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) double dot_bf16_step() noexcept {
  // A Zen 5 starts two products a cycle and waits six for a sum. With twelve sums it reached 0.91 of this.
  constexpr int steps = 2000, sums = 16;
  const __m512bh a = (__m512bh)_mm512_set1_epi32(0x3f803f80), b = (__m512bh)_mm512_set1_epi32(0x2f802f80);
  __m512 sum[sums];
#pragma GCC unroll 16
  for (int i = 0; i < sums; ++i)
    sum[i] = _mm512_set1_ps(static_cast<float>(i));  // with equal numbers the
                                                     // compiler would merge the
                                                     // sums
  for (int n = 0; n < steps; ++n) {
#pragma GCC unroll 16
    for (int i = 0; i < sums; ++i) sum[i] = _mm512_dpbf16_ps(sum[i], a, b);
  }
#pragma GCC unroll 16
  for (int i = 1; i < sums; ++i) sum[0] = _mm512_add_ps(sum[0], sum[i]);
  sink = _mm512_reduce_add_ps(sum[0]);
  return 4.0 * 16 * steps * sums;
}

namespace {

// Bytes of 1: with other numbers the sums of whole numbers would wrap around sooner, which changes no time.
__attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni"))) double dot_int8_vnni() noexcept {
  constexpr int steps = 2000, sums = 12;
  const __m512i ones = _mm512_set1_epi8(1);
  __m512i sum[sums];
#pragma GCC unroll 12
  for (int i = 0; i < sums; ++i) sum[i] = _mm512_set1_epi32(i);  // equal ones would be merged
  for (int n = 0; n < steps; ++n) {
#pragma GCC unroll 12
    for (int i = 0; i < sums; ++i) sum[i] = _mm512_dpbusd_epi32(sum[i], ones, ones);
  }
#pragma GCC unroll 12
  for (int i = 1; i < sums; ++i) sum[0] = _mm512_add_epi32(sum[0], sum[i]);
  sink = static_cast<float>(_mm512_reduce_add_epi32(sum[0]));
  return 8.0 * 16 * steps * sums;
}

// The factors change with the sums, or the compiler would multiply once for all steps.
__attribute__((target("avx2"))) double dot_int8_avx2() noexcept {
  constexpr int steps = 2000, sums = 8;
  const __m256i bytes = _mm256_set1_epi8(1), ones = _mm256_set1_epi16(1);
  __m256i sum[sums];
#pragma GCC unroll 8
  for (int i = 0; i < sums; ++i) sum[i] = _mm256_set1_epi32(i);
  for (int n = 0; n < steps; ++n) {
#pragma GCC unroll 8
    for (int i = 0; i < sums; ++i) {
      __m256i factor = bytes;
      asm volatile("" : "+x"(factor));
      sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(_mm256_maddubs_epi16(factor, bytes), ones));
    }
  }
#pragma GCC unroll 8
  for (int i = 1; i < sums; ++i) sum[0] = _mm256_add_epi32(sum[0], sum[i]);
  sink = static_cast<float>(_mm256_extract_epi32(sum[0], 0));
  return 8.0 * 8 * steps * sums;
}

}  // namespace

double dot_int8_step() noexcept {
  return cpu_has_avx512_vnni() ? dot_int8_vnni() : dot_int8_avx2();
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

double amx_step() noexcept {
  return 0.0;
}
double dot_bf16_step() noexcept {
  return 0.0;
}
double dot_int8_step() noexcept {
  return 0.0;
}
double exponential_16_step(const float*, int) noexcept {
  return 0.0;
}

#endif

}  // namespace fovea::bench
