#include "kernels/tiles/product.h"

#include <atomic>

#include "core/cpu.h"

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

namespace fovea::kernels {
namespace {
std::atomic<bool> amx_assumed{false};
}  // namespace

void assume_amx(bool present) {
  amx_assumed = present;
}

#if FOVEA_X86
namespace {

struct Leaf {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};
Leaf leaf_7(unsigned sub) noexcept {
  Leaf leaf;
  __get_cpuid_count(7, sub, &leaf.eax, &leaf.ebx, &leaf.ecx, &leaf.edx);
  return leaf;
}

// Linux gives the registers only to processes that ask: they add 8 KiB to every context switch.
bool request_tiles() noexcept {
#ifdef __linux__
  constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

// All in assembly: GCC 12 deletes stores whose only use is to fill a tile register, and assembly needs no
// compiler option.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t bytes_a_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr TileConfig tile_config;

void amx_begin() {
  asm volatile("ldtilecfg %0" ::"m"(tile_config) : "memory");
}
void amx_end() {
  asm volatile("tilerelease" ::: "memory");
}

#define FOVEA_TILE_LOAD(tile, from, stride) \
  asm volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(from), "r"(stride) : "memory")
#define FOVEA_TILE_STORE(tile, to, stride) \
  asm volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(to), "r"(stride) : "memory")
#define FOVEA_TILE_ZERO(tile) asm volatile("tilezero %%tmm" #tile ::: "memory")
#define FOVEA_TILE_DOT(c, a, b) asm volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")

// One or two tile registers of A by one or two of B: tmm0..3 hold C, tmm4..5 A, tmm6..7 B. Two by two need as
// many loads as products. One more of either would leave no register for the other.
template <bool kTwoRows, bool kTwoColumns>
void amx_block(const PairProduct& p, std::int64_t m, std::int64_t n) {
  const std::int64_t c_stride = p.ldc * 4, a_stride = p.lda * 2, b_stride = p.ldb * 4;
  float* c = p.c + m * p.ldc + n;
  float* c_below = c + 16 * p.ldc;
  if (p.add) {
    FOVEA_TILE_LOAD(0, c, c_stride);
    if constexpr (kTwoColumns) FOVEA_TILE_LOAD(1, c + 16, c_stride);
    if constexpr (kTwoRows) FOVEA_TILE_LOAD(2, c_below, c_stride);
    if constexpr (kTwoRows && kTwoColumns) FOVEA_TILE_LOAD(3, c_below + 16, c_stride);
  } else {
    FOVEA_TILE_ZERO(0);
    if constexpr (kTwoColumns) FOVEA_TILE_ZERO(1);
    if constexpr (kTwoRows) FOVEA_TILE_ZERO(2);
    if constexpr (kTwoRows && kTwoColumns) FOVEA_TILE_ZERO(3);
  }
  for (int i = 0; i < p.count; ++i) {
    const std::uint16_t* a = p.factors[i].a + m * p.lda;
    const std::uint32_t* b = p.factors[i].b + n;
    for (std::int64_t k = 0; k < p.k; k += 32, a += 32, b += 16 * p.ldb) {
      FOVEA_TILE_LOAD(4, a, a_stride);
      FOVEA_TILE_LOAD(6, b, b_stride);
      FOVEA_TILE_DOT(0, 4, 6);
      if constexpr (kTwoColumns) {
        FOVEA_TILE_LOAD(7, b + 16, b_stride);
        FOVEA_TILE_DOT(1, 4, 7);
      }
      if constexpr (kTwoRows) {
        FOVEA_TILE_LOAD(5, a + 16 * p.lda, a_stride);
        FOVEA_TILE_DOT(2, 5, 6);
        if constexpr (kTwoColumns) FOVEA_TILE_DOT(3, 5, 7);
      }
    }
  }
  FOVEA_TILE_STORE(0, c, c_stride);
  if constexpr (kTwoColumns) FOVEA_TILE_STORE(1, c + 16, c_stride);
  if constexpr (kTwoRows) FOVEA_TILE_STORE(2, c_below, c_stride);
  if constexpr (kTwoRows && kTwoColumns) FOVEA_TILE_STORE(3, c_below + 16, c_stride);
}
#undef FOVEA_TILE_LOAD
#undef FOVEA_TILE_STORE
#undef FOVEA_TILE_ZERO
#undef FOVEA_TILE_DOT

void amx_product(std::int64_t m_count, std::int64_t n_count, const PairProduct& p) {
  for (std::int64_t n = 0; n < n_count; n += 32) {
    const bool two = n + 32 <= n_count;
    std::int64_t m = 0;
    for (; m + 32 <= m_count; m += 32) two ? amx_block<true, true>(p, m, n) : amx_block<true, false>(p, m, n);
    if (m < m_count) two ? amx_block<false, true>(p, m, n) : amx_block<false, false>(p, m, n);
  }
}

#define FOVEA_DOT_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#define FOVEA_UNROLL _Pragma("GCC unroll 16")

// kRows × kVectors accumulators. GCC keeps them in registers only if the loops over them are unrolled.
template <int kRows, int kVectors>
FOVEA_DOT_TARGET inline void dot_block(const PairProduct& p, std::int64_t m, std::int64_t n) {
  const std::int64_t lda = p.lda, ldb = p.ldb, ldc = p.ldc;
  __m512 sum[kRows][kVectors];
  float* c = p.c + m * ldc + n;
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) sum[r][v] =
        p.add ? _mm512_loadu_ps(c + r * ldc + 16 * v) : _mm512_setzero_ps();
  }
  for (int i = 0; i < p.count; ++i) {
    const std::uint16_t* a = p.factors[i].a + m * lda;
    const std::uint32_t* b = p.factors[i].b + n;
    for (std::int64_t k = 0; k < p.k; k += 2, a += 2, b += ldb) {
      __m512i row[kVectors];
      FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) row[v] = _mm512_loadu_si512(b + 16 * v);
      FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
        int pair;
        __builtin_memcpy(&pair, a + r * lda, sizeof(pair));
        const __m512bh factor = (__m512bh)_mm512_set1_epi32(pair);
        FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) sum[r][v] =
            _mm512_dpbf16_ps(sum[r][v], factor, (__m512bh)row[v]);
      }
    }
  }
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) _mm512_storeu_ps(c + r * ldc + 16 * v, sum[r][v]);
  }
}

template <int kVectors>
FOVEA_DOT_TARGET void dot_rows(std::int64_t m_count, const PairProduct& p, std::int64_t n) {
  // With four vectors there are six rows at a time, which leaves 8 registers of 32 for B and A; four rows
  // follow at the end, since two rows would wait for each other's sums. With fewer vectors there are eight
  // rows, and sixteen with one vector.
  if constexpr (kVectors == 4) {
    std::int64_t m = 0;
    for (; m_count - m >= 6 && m_count - m != 8; m += 6) dot_block<6, 4>(p, m, n);
    for (; m < m_count; m += 4) dot_block<4, 4>(p, m, n);
  } else {
    constexpr int rows = kVectors == 1 ? 16 : 8;
    for (std::int64_t m = 0; m < m_count; m += rows) dot_block<rows, kVectors>(p, m, n);
  }
}

FOVEA_DOT_TARGET void dot_product(std::int64_t m_count, std::int64_t n_count, const PairProduct& p) {
  std::int64_t n = 0;
  for (; n + 64 <= n_count; n += 64) dot_rows<4>(m_count, p, n);
  switch ((n_count - n) / 16) {
    case 3:
      return dot_rows<3>(m_count, p, n);
    case 2:
      return dot_rows<2>(m_count, p, n);
    case 1:
      return dot_rows<1>(m_count, p, n);
    default:
      return;
  }
}
#undef FOVEA_UNROLL
#undef FOVEA_DOT_TARGET

}  // namespace

const TileEngine* amx_engine() {
  static constexpr TileEngine engine{amx_product, amx_begin, amx_end};
  return &engine;
}
const TileEngine* dot_engine() {
  static constexpr TileEngine engine{dot_product, nullptr, nullptr};
  return &engine;
}

const char* amx_absence() {
  if (amx_assumed && cpu_has_avx512()) return nullptr;
  static const char* const reason = [] {
    const unsigned edx = leaf_7(0).edx;
    if (!cpu_has_avx512() || !(edx >> 22 & 1) || !(edx >> 24 & 1)) return "this CPU has no AMX-BF16";
    return request_tiles() ? static_cast<const char*>(nullptr)
                           : "the system gives no permission to use AMX's tiles";
  }();
  return reason;
}
const char* avx512_absence() {
  return cpu_has_avx512() ? nullptr : "this CPU has no AVX-512";
}
const char* dot_absence() {
  static const bool present = cpu_has_avx512() && (leaf_7(1).eax >> 5 & 1);
  return present ? nullptr : "this CPU has no AVX512_BF16";
}

#else

const TileEngine* amx_engine() {
  return nullptr;
}
const TileEngine* dot_engine() {
  return nullptr;
}
const char* amx_absence() {
  return "this CPU has no AMX-BF16";
}
const char* avx512_absence() {
  return "this CPU has no AVX-512";
}
const char* dot_absence() {
  return "this CPU has no AVX512_BF16";
}

#endif

}  // namespace fovea::kernels
