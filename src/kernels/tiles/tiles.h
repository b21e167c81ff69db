// What is here: softmax attention by products of bf16, on the tile registers of AMX or by the dot products of
// AVX512_BF16. What is not here: products of f32 (flash), and other normalisers than softmax. Read
// tiles/forward-inl.h first.
//
//   tiles   blocks of queries by chunks of keys, over an engine that multiplies bf16   tiles/forward-inl.h
//   decode  few queries of bf16 over keys and values where they lie      tiles/{decode,few_rows}-inl.h
//           and the same for many rows that share a key, as in forks             tiles/many_rows-inl.h
//
// Words of this directory. A block is 64 queries. A chunk is 32 keys (kChunk), whose scores with a block are
// held at once, as flash holds a tile. Only `Chunks` are what flash calls chunks: the shares of the keys
// where forward splits them. The tile kernels have their name from the tile registers of AMX, of 16 rows of
// 64 bytes. A term is one of the bf16 numbers whose sum stands for an f32 or f16 number.
#pragma once

#include <vector>

#include "kernels/flash/flash.h"

namespace fovea::kernels {

/// For up to this many queries, decode is faster than tiles of 64 queries. With 16 heads of 64, 4,096 keys
/// and two threads, 16 queries take 0.8 ms by decode and 1.1 by tiles, 32 take 1.6 and 1.5.
inline constexpr std::int64_t most_decode_queries = 16;

/// Best first: the candidates of "amx", then of "avx512bf16". None where they are not compiled in.
std::vector<Candidate> tile_candidates();
/// The candidates of "tiles": the same loop over products that any CPU computes. They are for checks, and
/// slower than the kernels that they stand in for. None where the build leaves the baseline out.
std::vector<Candidate> portable_tile_candidates();

}  // namespace fovea::kernels
