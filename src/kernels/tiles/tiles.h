// Softmax attention by products of bf16: on AMX's tiles, and by AVX512_BF16's dot products.
//
//   tiles   blocks of queries by chunks of keys, over an engine that multiplies bf16  tiles/forward-inl.h
//   decode  few queries of bf16 over keys and values where they lie                   tiles/decode-inl.h
#pragma once

#include <vector>

#include "kernels/flash/flash.h"

namespace fovea::kernels {

/// Up to so many queries decoding is better than tiles of 64 queries (16 heads of 64, 4,096 keys, two
/// threads: 16 queries take 0.8 ms so and 1.1 by tiles, 32 take 1.6 and 1.5).
inline constexpr std::int64_t most_decode_queries = 16;

/// Best first: those of "amx", of "avx512bf16"; none where they are not compiled in.
std::vector<Candidate> tile_candidates();
/// Those of "tiles", the same walk over products that any CPU computes: for checks, slower than what it
/// stands in for. None where the build leaves the baseline out.
std::vector<Candidate> portable_tile_candidates();

}  // namespace fovea::kernels
