// Operands of products of bf16: f32 numbers rounded to nearest even, as pairs of two that lie side by side
// along k, the first in the lower half. By AVX512_BF16; all of it requires cpu_has_avx512_bf16().
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "autograd/bf16_products.h"

#if defined(__x86_64__)
// GCC 12 warns of the undefined vectors of its own intrinsics (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

/// For functions that use AVX512_BF16: Highway 1.0.3 has no target with its instructions.
#define FOVEA_DOT __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))

namespace fovea::autograd {

using Bf16Pair = std::uint32_t;

/// Columns of b, as two vectors of pairs.
inline constexpr std::int64_t bf16_panel = PackedMatrix::panel_rows;
/// Pairs of k that are multiplied before the next are rounded. A panel of b, 16 KiB, stays in the first-level
/// cache. The blocks of a and b, 256 KiB each, stay in the second.
inline constexpr std::int64_t bf16_slice_pairs = 128;
/// The rows of a tile of dot products: 12 rows by two vectors are 24 sums, and leave registers for two
/// vectors of b and one of a.
inline constexpr int bf16_dot_rows = 12;

FOVEA_DOT inline __mmask16 first_lanes(std::int64_t count) {
  return count >= 16  ? __mmask16(0xffff)
         : count <= 0 ? __mmask16(0)
                      : static_cast<__mmask16>((1 << count) - 1);
}

/// What bf16_round_rows_dot does, of x that lies as [k, rows].
void bf16_round_rows_across(const float* x, std::int64_t leading, std::int64_t rows, std::int64_t k,
                            Bf16Pair* to, std::int64_t stride);
/// x [k, rows], its columns in tiles: [tile, bf16_slice_pairs, bf16_dot_rows].
void bf16_round_columns(const float* x, std::int64_t leading, std::int64_t rows, std::int64_t k,
                        Bf16Pair* to);
/// b [k, n], to be panels [pairs, bf16_panel], bf16_slice_pairs · bf16_panel pairs from one to the next.
void bf16_round_panels_down(const float* b, std::int64_t leading, std::int64_t n, std::int64_t k,
                            Bf16Pair* to);
/// The same of b that lies as [n, k].
void bf16_round_panels_along(const float* b, std::int64_t leading, std::int64_t n, std::int64_t k,
                             Bf16Pair* to);

/// `pairs` pairs in `of`, from a line of the cache on: the memory of a thread, which grows and stays.
Bf16Pair* bf16_memory(std::vector<Bf16Pair>& of, std::int64_t pairs);

/// Rounds b, and by `round_a(x, leading, rows, k, to)` a, in slices of k, and calls multiply(a, b, pairs,
/// bias, add) for each. b is in panels, as above; the rounded a takes `a_pairs` pairs.
template <class RoundA, class Multiply>
void for_rounded_slices(const ProductBlock& p, std::int64_t a_pairs, RoundA&& round_a, Multiply&& multiply) {
  thread_local std::vector<Bf16Pair> a_memory, b_memory;
  Bf16Pair* a = bf16_memory(a_memory, a_pairs);
  Bf16Pair* b = bf16_memory(b_memory, (p.n + bf16_panel - 1) / bf16_panel * bf16_panel * bf16_slice_pairs);
  const bool b_down = p.b.transpose == Transpose::no, a_along = p.a.transpose == Transpose::no;
  for (std::int64_t begin = 0; begin == 0 || begin < p.k; begin += 2 * bf16_slice_pairs) {
    const std::int64_t k = std::min(2 * bf16_slice_pairs, p.k - begin);
    (b_down ? bf16_round_panels_down : bf16_round_panels_along)(
        p.b.data + (b_down ? begin * p.b.leading : begin), p.b.leading, p.n, k, b);
    round_a(p.a.data + (a_along ? begin : begin * p.a.leading), p.a.leading, p.m, k, a);
    multiply(a, b, (k + 1) / 2, begin == 0 ? p.bias : nullptr, p.add || begin > 0);
  }
}

}  // namespace fovea::autograd
#endif
