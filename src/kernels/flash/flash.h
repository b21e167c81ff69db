// The fused kernels: five algorithms with memory O(length), written once over Highway's vectors and compiled
// for each instruction set.
//
//   split       few queries over many keys, each key read once where it lies         flash/split-inl.h
//   tiled       blocks of queries by tiles of packed keys, on register tiles         flash/tiled-inl.h
//   direct      a row at a time, for scores that are no product, and few queries     flash/direct-inl.h
//   tiled rows  whole rows of scores, a block of queries at once, on register tiles  flash/whole_rows-inl.h
//   rows        whole rows, one at a time                                            flash/whole_rows-inl.h
#pragma once

#include <vector>

#include "kernels/candidate.h"

namespace fovea::kernels {

/// Blocks of queries of the tiled algorithms (eight register tiles of 6 rows) and of those that go by rows,
/// and the keys of a tile.
inline constexpr std::int64_t tiled_queries = 48, direct_queries = 16, tile_keys = 128;

/// Up to so many queries are not worth packing the keys for in backward, and by whole rows.
inline constexpr std::int64_t most_direct_queries = 4;
/// And in forward, where four rows share what is read of a key: of f32 (16 heads of 64, 4,096 keys, two
/// threads: 8 queries take 1.0 ms so and 1.1 packed, 16 take 1.8 and 1.7), and of 16 bits, which would have
/// to be widened before (f16: 32 take 3.3 and 5).
inline constexpr std::int64_t most_split_queries = 8, most_split_16_bit = 32;

/// The five, compiled for one instruction set.
template <class T>
struct FlashCode {
  Code<T> split, tiled, direct, tiled_rows, rows;
};

extern const Isa avx512_isa, avx2_isa, baseline_isa;

/// Best first: the five of "avx512", of "avx2", of "baseline", as far as they are compiled in.
std::vector<Candidate> flash_candidates();

}  // namespace fovea::kernels
