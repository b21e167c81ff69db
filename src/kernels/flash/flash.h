// What is here: the fused kernels, seven algorithms that never store the matrix of scores, so that their
// memory is O(length). Each is written once over Highway's vectors and compiled for each instruction set.
// What is not here: the products of bf16 (tiles), and the choice among algorithms (plan). Read
// flash/tiled-inl.h first, then flash/online_softmax-inl.h.
//
//   split       few queries, many keys; reads each key once, where it lies     flash/split-inl.h
//   tiled       blocks of queries by tiles of packed keys                      flash/tiled-inl.h
//   short       a few dozen queries and keys; the lanes are queries            flash/short-inl.h
//   additive    one row at a time: additive scores, an exponential a row      flash/additive-inl.h
//   direct      one row at a time: few queries, and a tanh for each pair       flash/direct-inl.h
//   tiled rows  whole rows of scores for a block of queries                    flash/whole_rows-inl.h
//   rows        whole rows of scores, one row at a time                        flash/whole_rows-inl.h
//
// Words of this directory:
//
//   row             the scores of one query, or what is computed from them
//   tile            the scores of a block of queries by at most 128 keys, held at once;
//                   a tile of keys is those keys
//   piece           the keys of a tile that the mask leaves (kernels/schedule.h)
//   chunk, group    the keys of one unit of work where the keys are split:
//                   a chunk in forward, a group in backward
//   strip           6 rows, or 6 keys, of a tile (flash/strips-inl.h)
//   register block  the part of a product that stays in registers (Micro in simd/math-inl.h)
#pragma once

#include <vector>

#include "kernels/candidate.h"

namespace fovea::kernels {

/// The queries of a block in the tiled algorithms (eight register blocks of 6 rows) and in those that go row
/// by row, and the keys of a tile.
inline constexpr std::int64_t tiled_queries = 48, direct_queries = 16, tile_keys = 128;

/// The keys of a chunk where chunks must be the same for every call (Problem::by_position). Merging a chunk
/// costs a thousandth of reading 1,024 keys for one query. A single head of keys has only its chunks to share
/// out, so these are half as long.
constexpr std::int64_t fixed_chunk_keys(std::int64_t kv_heads) {
  return kv_heads == 1 ? 512 : 1024;
}

/// The queries of a block of `short`. It is better for calls of at most these queries and keys.
inline constexpr std::int64_t short_queries = 32, most_short_keys = 64;

/// For up to this many queries, packing the keys does not pay in backward, nor with whole rows.
inline constexpr std::int64_t most_direct_queries = 4;
/// The same for forward, where four rows share each key that is read. The first number is for f32 (16 heads
/// of 64, 4,096 keys, two threads): 8 queries take 1.0 ms by `split` and 1.1 ms packed, 16 take 1.8 and 1.7.
/// The second is for 16 bits, which `tiled` has to widen before: f16 with 32 queries takes 3.3 ms by `split`
/// and 5 packed.
inline constexpr std::int64_t most_split_queries = 8, most_split_16_bit = 32;

/// An exponential for each row of queries and keys pays from so many queries a key on: it costs as much as a
/// tanh for each pair.
inline constexpr std::int64_t least_additive_queries = 4;

/// The seven algorithms, compiled for one instruction set.
template <class T>
struct FlashCode {
  Code<T> split, tiled, few, additive, direct, tiled_rows, rows;
};

template <class T>
struct CodeOfIsa {
  const Isa* isa = nullptr;
  FlashCode<T> code;
};
/// The code of every instruction set that is compiled in, best first.
std::vector<CodeOfIsa<float>> flash_f32();
std::vector<CodeOfIsa<double>> flash_f64();

/// Best first: the seven of "avx512", then of "avx2", then of "baseline", as far as they are compiled in.
std::vector<Candidate> flash_candidates();

}  // namespace fovea::kernels
