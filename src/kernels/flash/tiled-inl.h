// The algorithm `tiled`: dot products of many queries, in register blocks. It is the loop that most calls
// run: for each block of 48 queries (eight register blocks of 6 rows), for each tile of 128 keys, S = Q·Kᵀ,
// online softmax, O += P·V.
//
// K is transposed once for each call, into tiles [head_dim][128 keys]. A row of scores is then contiguous,
// and the softmax runs along vectors. The scores of a tile (48 × 128 f32, 24 KiB) and the gathered values of
// the block stay in the cache. If there are fewer blocks than would occupy the threads, the keys are split
// into chunks (flash/chunks-inl.h). If a key is read by one block or two only, each block transposes its own
// tiles when it comes to them, in the cache.
#if defined(FOVEA_FLASH_TILED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_FLASH_TILED_INL_H_
#undef FOVEA_FLASH_TILED_INL_H_
#else
#define FOVEA_FLASH_TILED_INL_H_
#endif

#include "kernels/flash/chunks-inl.h"
#include "kernels/flash/strips-inl.h"
#include "kernels/simd/runs-inl.h"
#include "kernels/simd/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

constexpr int64_t kBlockRows = tiled_queries;
constexpr int64_t kTileKeys = tile_keys;

/// A 4-D operand, transposed by tiles of keys.
template <class T>
struct Packed {
  const T* data = nullptr;
  int64_t heads = 0, tiles = 0, dim = 0, stride = 0;
  bool one = false;  ///< holds one tile, the current one (BlockKeys)
  HWY_INLINE const T* Tile(int64_t b, int64_t h, int64_t tile) const {
    return one ? data : data + ((b * heads + h) * tiles + tile) * dim * stride;
  }
};

template <class T>
HWY_INLINE int64_t TileStride(int64_t key_len) {
  // One vector to spare: a piece may begin anywhere in its tile, and rows of scores are whole vectors.
  return Padded<T>(HWY_MIN(kTileKeys, key_len)) + Padded<T>(1);
}

/// Rows [begin, begin + count) of a head of a cache, transposed as by Transpose; 0 for rows that are not
/// kept.
template <class T>
HWY_NOINLINE void TransposeRuns(const HeadRuns<T>& rows, int64_t begin, int64_t count, int64_t dim,
                                int64_t stride, T* to) {
  int64_t done = 0;  // columns of `to`
  const auto clear_until = [&](int64_t column) HWY_ATTR {
    for (int64_t d = 0; d < dim && done < column; ++d) Fill(T{0}, column - done, to + d * stride + done);
  };
  rows.ForStretches(begin, begin + count,
                    [&](int64_t from, int64_t end, const T* first, const RunsBehind<T>&) HWY_ATTR {
                      clear_until(from - begin);
                      Transpose(first, rows.stride, end - from, dim, stride, to + (from - begin), end - from);
                      done = end - begin;
                    });
  clear_until(stride);
}

/// The tile of keys from `begin` on, transposed.
template <class T>
HWY_INLINE void TransposeKeys(const Problem<T>& p, const Operand<const T*>& x, int64_t b, int64_t kv,
                              int64_t begin, int64_t dim, int64_t stride, T* to) {
  const int64_t count = HWY_MIN(kTileKeys, p.key_len - begin);
  if (p.cached.runs)
    TransposeRuns(KeyRuns<T>(p.cached, kv), begin, count, dim, stride, to);
  else
    Transpose(RowAt(x, b, kv, begin), x.row_stride, count, dim, stride, to);
}

template <class T>
HWY_NOINLINE void PackTransposed(const Problem<T>& p, const Operand<const T*>& x, int64_t dim, T* to,
                                 Executor& executor, Packed<T>* packed) {
  const int64_t tiles = (p.key_len + kTileKeys - 1) / kTileKeys, stride = TileStride<T>(p.key_len);
  *packed = {to, p.kv_heads, tiles, dim, stride};
  executor.parallel_for(p.batch * p.kv_heads * tiles, [&](int64_t unit, int) {
    const int64_t tile = unit % tiles, h = unit / tiles % p.kv_heads, b = unit / tiles / p.kv_heads,
                  begin = tile * kTileKeys;
    TransposeKeys(p, x, b, h, begin, dim, stride, to + unit * dim * stride);
  });
}

/// One (batch, head, block of queries).
template <class T>
struct BlockAt {
  int64_t b, h, kv, row, rows;
};

template <class T>
HWY_INLINE int64_t QueryBlocks(const Problem<T>& p) {
  return (p.query_len + kBlockRows - 1) / kBlockRows;
}

/// Whether each block transposes its own tiles. Packing all keys is a pass over memory that pays from the
/// third block that reads a key on.
template <class T>
HWY_INLINE bool PacksOwn(const Problem<T>& p) {
  return QueryBlocks(p) * (p.query_heads / HWY_MAX(p.kv_heads, 1)) <= 2;
}
/// The packed keys that one block reads.
template <class T>
struct BlockKeys {
  Packed<T> packed;
  T* own;  ///< room for one tile; null: all keys are packed
  int64_t tile = -1;
  HWY_INLINE const Packed<T>& At(const Problem<T>& p, const BlockAt<T>& at, int64_t key) {
    if (own && tile != key / kTileKeys) {
      tile = key / kTileKeys;
      TransposeKeys(p, p.key, at.b, at.kv, tile * kTileKeys, p.score_dim, packed.stride, own);
    }
    return packed;
  }
};

/// Returns the rows as they are if they fill whole vectors, else copies them with zeros behind.
template <class T>
HWY_NOINLINE Operand<const T*> PadRows(const Problem<T>& p, const Operand<const T*>& x, int64_t dim, T* to,
                                       Executor& executor) {
  const int64_t width = Padded<T>(dim);
  if (width == dim) return x;
  if (p.cached.runs) {  // of values alone: rows that are not kept stay as they are, and nobody reads them
    executor.parallel_for(p.kv_heads, [&](int64_t head, int) {
      const HeadRuns<T> rows = ValueRuns<T>(p.cached, head);
      rows.ForStretches(0, p.key_len,
                        [&](int64_t begin, int64_t end, const T* first, const RunsBehind<T>&) HWY_ATTR {
                          for (int64_t j = begin; j < end; ++j) {
                            T* row = to + (head * p.key_len + j) * width;
                            Copy(first + (j - begin) * rows.stride, dim, row);
                            Fill(T{0}, width - dim, row + dim);
                          }
                        });
    });
    return {to, p.kv_heads * p.key_len * width, p.key_len * width, width};
  }
  executor.parallel_for(p.batch * p.kv_heads, [&](int64_t unit, int) {
    for (int64_t j = 0; j < p.key_len; ++j) {
      T* row = to + (unit * p.key_len + j) * width;
      Copy(RowAt(x, unit / p.kv_heads, unit % p.kv_heads, j), dim, row);
      Fill(T{0}, width - dim, row + dim);
    }
  });
  return {to, p.kv_heads * p.key_len * width, p.key_len * width, width};
}

template <class T>
HWY_INLINE int64_t PaddedRowsSize(const Problem<T>& p, int64_t dim) {
  return Padded<T>(dim) == dim ? 0 : p.batch * p.kv_heads * p.key_len * Padded<T>(dim);
}
template <class T>
HWY_INLINE int64_t TransposedSize(const Problem<T>& p, int64_t dim) {
  return p.batch * p.kv_heads * ((p.key_len + kTileKeys - 1) / kTileKeys) * dim * TileStride<T>(p.key_len);
}

template <class T>
HWY_INLINE BlockAt<T> BlockOf(const Problem<T>& p, int64_t unit, int64_t block_rows) {
  const int64_t blocks = (p.query_len + block_rows - 1) / block_rows;
  const int64_t row = unit % blocks * block_rows, h = unit / blocks % p.query_heads,
                b = unit / blocks / p.query_heads;
  return {b, h, h / (p.query_heads / p.kv_heads), row, HWY_MIN(block_rows, p.query_len - row)};
}

template <class T>
HWY_NOINLINE const BlockSchedule& ScheduleOf(const Problem<T>& p, const BlockAt<T>& at, int64_t key_begin,
                                             int64_t key_end, int64_t tile = kTileKeys) {
  BlockSchedule& schedule = thread_schedule();
  QueryBlock block;
  block.batch = EntryOf(p, at.b);
  block.head = at.h;
  block.query_begin = PositionOf(p, at.b, at.row);
  block.query_end = block.query_begin + at.rows;
  block.key_len = p.key_len;
  block.key_lengths = p.key_lengths;
  schedule.build(*p.mask, block, tile, key_begin, key_end,
                 p.by_position ? BlockSchedule::Pieces::tiles : BlockSchedule::Pieces::seen);
  return schedule;
}

/// C(r, j) = rows · tile, for the keys that each strip of rows sees. `b` points into the tile at the piece's
/// first key.
template <class T>
HWY_INLINE void StripProducts(const Piece& piece, int64_t rows, const KeyRange* ranges,
                              const ProductArgs<T>& p) {
  ForStrips(piece, rows, ranges, [&](int64_t r, int64_t count, const KeyRange& hull) {
    const KeyRange whole = WholeVectors<T>(hull);
    Product<false, T>(
        count, whole.end - whole.begin,
        {p.a + r * p.am, p.am, p.ak, p.b + whole.begin, p.ldb, p.c + r * p.ldc + whole.begin, p.ldc, p.k});
  });
}

/// scores[r][j - piece.begin] = q_r · k_j, hidden ones -inf. Rows of scores are `to_stride` apart, each with
/// room for whole vectors. `ranges` are those of RangesOf for the piece.
template <class T>
HWY_NOINLINE void BlockScores(const Problem<T>& p, const Packed<T>& keys, const BlockAt<T>& at,
                              const BlockSchedule& schedule, const Piece& piece, const KeyRange* ranges,
                              T* scores, int64_t to_stride, const ModBuffers<T>& mods) {
  const int64_t n = piece.end - piece.begin, stride = keys.stride;
  const T* tile = keys.Tile(at.b, at.kv, piece.begin / kTileKeys) + piece.begin % kTileKeys;
  const ProductArgs<T> product{RowAt(p.query, at.b, at.h, at.row),
                               p.query.row_stride,
                               1,
                               tile,
                               stride,
                               scores,
                               to_stride,
                               p.score_dim};
  if (p.has_mods)
    Product<false, T>(at.rows, Padded<T>(n), product);  // a mod runs over all scores, and must find numbers
                                                        // there
  else
    StripProducts(piece, at.rows, ranges, product);
  if (p.has_mods) apply_mods<T>(p, {at.b, at.h, at.row, at.rows, piece.begin, n}, scores, to_stride, mods);
  for (int64_t r = 0; r < at.rows; ++r) ScaleEarly(p, n, scores + r * to_stride);
  if (piece.full) return;
  for (int64_t r = 0; r < at.rows; ++r)
    HideOutside(schedule.row(r), piece.begin, piece.end, scores + r * to_stride);
}

template <class T>
HWY_NOINLINE void WriteWeights(const Problem<T>& p, const ForwardOutputs<T>& out, BlockKeys<T>& keys,
                               const BlockAt<T>& at, const BlockSchedule& schedule, const RowState<T>* states,
                               T* scores, const ModBuffers<T>& mods) {
  const T scale = ScaleOf(p);
  const int64_t stride = keys.packed.stride;
  for (int64_t slot = weight_slot(out.weight_heads, at.h, 0); slot >= 0;
       slot = weight_slot(out.weight_heads, at.h, slot + 1)) {
    for (int64_t r = 0; r < at.rows; ++r) Fill(T{0}, p.key_len, RowAt(out.weights, at.b, slot, at.row + r));
    for (int64_t n = 0; n < schedule.piece_count(); ++n) {
      const Piece& piece = schedule.pieces()[n];
      KeyRange ranges[kBlockRows];
      RangesOf<T>(schedule, piece, at.rows, ranges);
      BlockScores(p, keys.At(p, at, piece.begin), at, schedule, piece, ranges, scores, stride, mods);
      for (int64_t r = 0; r < at.rows; ++r) {
        T* row = scores + r * stride;
        FinalWeights(p, scale, states[r], sink_of(p, at.h), piece.end - piece.begin, row);
        Copy(row, piece.end - piece.begin, RowAt(out.weights, at.b, slot, at.row + r) + piece.begin);
      }
    }
  }
}

/// The limit, lane by lane, of the sum of a row's weights in one piece. Beyond it the row's maximum is
/// determined anew.
template <class T>
constexpr T kMostLaneSum = T(0x1p14);

/// Turns the scores of a piece that all rows see into weights relative to the maxima that the rows have
/// already. No pass looks for new maxima, which would cost 7 % of a call. The sums of the weights are left in
/// `sums`, lane by lane. Returns false where a score is far above its row's maximum, or NaN: then the scores
/// are gone, and have to be computed again.
template <class T>
HWY_INLINE bool LazyWeights(T scale, int64_t rows, int64_t n, const RowState<T>* states, int64_t stride,
                            T* scores, T* sums) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, scale), top = hn::Set(d, T{80}), most = hn::Set(d, kMostLaneSum<T>);
  auto fits = hn::Eq(top, top);
  for (int64_t r = 0; r < rows; ++r) {
    T* x = scores + r * stride;
    for (int64_t i = n; i < Padded<T>(n); ++i) x[i] = kHidden<T>;
    const auto shift = hn::Set(d, states[r].maximum);
    auto sum = hn::Zero(d);
    for (int64_t i = 0; i < n; i += lanes) {
      const auto e = Exp(d, AtMost(top, hn::Sub(hn::Mul(hn::LoadU(d, x + i), factor), shift)));
      hn::StoreU(e, d, x + i);
      sum = hn::Add(sum, e);
    }
    hn::StoreU(sum, d, sums + r * lanes);
    fits = hn::And(fits, hn::Le(sum, most));
  }
  return hn::AllTrue(d, fits);
}

template <class T>
HWY_INLINE bool AllSeen(int64_t rows, const RowState<T>* states) {
  for (int64_t r = 0; r < rows; ++r) {
    if (states[r].maximum == kHidden<T>) return false;
  }
  return true;
}

/// Adds the lanes' sums of a block's rows to the sums of their states, and clears the lanes.
template <class T>
HWY_INLINE void FoldLanes(int64_t rows, RowState<T>* states, T* sums) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < rows; ++r) {
    states[r].sum += hn::GetLane(hn::SumOfLanes(d, hn::LoadU(d, sums + r * lanes)));
    hn::StoreU(hn::Zero(d), d, sums + r * lanes);
  }
}

/// The scratch buffers of one thread.
template <class T>
struct ForwardScratch {
  T *scores, *gathered, *keep;  ///< [48][stride], [48][value_dim, padded], [stride]: factors of dropout
  T *sums, *piece_sums;         ///< of each row, lane by lane
  T* tile;  ///< for blocks that pack their own tiles; allocated always: a smaller call of this plan may need
            ///< it
  ModBuffers<T> mods;
};

template <class T>
HWY_NOINLINE ForwardScratch<T> TakeForwardScratch(const Problem<T>& p, Carve& carve) {
  const int64_t stride = TileStride<T>(p.key_len);
  return {carve.Take<T>(kBlockRows * stride),
          carve.Take<T>(kBlockRows * Padded<T>(p.value_dim)),
          carve.Take<T>(stride),
          carve.Take<T>(kBlockRows * Padded<T>(1)),
          carve.Take<T>(kBlockRows * Padded<T>(1)),
          carve.Take<T>(p.score_dim * stride),
          TakeModBuffers(p.mods, kBlockRows, false, carve)};
}

/// Computes a block of queries over the keys of one chunk, or over all keys.
template <class T>
HWY_NOINLINE void ForwardBlock(const Problem<T>& p, const ForwardOutputs<T>& out, const Packed<T>& packed,
                               const Operand<const T*>& values, const BlockAt<T>& at, const Chunks& chunks,
                               int64_t chunk, const Partials<T>& partials, const ForwardScratch<T>& scratch) {
  const int64_t width = Padded<T>(p.value_dim), stride = packed.stride;
  const bool gathers = out.output.data != nullptr;  // else only the weights are wanted
  const T scale = ScaleOf(p);
  const int64_t key_begin = chunk * chunks.keys, key_end = HWY_MIN(p.key_len, key_begin + chunks.keys);
  const BlockSchedule& schedule = ScheduleOf(p, at, key_begin, key_end);
  BlockKeys<T> keys{packed, packed.one ? scratch.tile : nullptr};
  if (keys.own) keys.packed.data = keys.own;
  RowState<T> states[kBlockRows];
  const int64_t lanes = Padded<T>(1);
  // LazyWeights is tried as long as it succeeds. Mods such as ALiBi may raise scores from key to key; and if
  // the scores of a block have risen once, they may rise again. Whether it succeeds depends on the other rows
  // of the block, so by_position excludes it.
  bool may_be_lazy = p.normalizer == NormalizerKind::softmax && !p.has_mods && !p.by_position;
  Fill(T{0}, at.rows * width, scratch.gathered);
  Fill(T{0}, at.rows * lanes, scratch.sums);
  for (int64_t n = 0; n < schedule.piece_count(); ++n) {
    const Piece& piece = schedule.pieces()[n];
    const int64_t count = piece.end - piece.begin;
    KeyRange ranges[kBlockRows];
    RangesOf<T>(schedule, piece, at.rows, ranges);
    const auto score = [&]() HWY_ATTR {
      BlockScores(p, keys.At(p, at, piece.begin), at, schedule, piece, ranges, scratch.scores, stride,
                  scratch.mods);
    };
    score();
    bool lazy = may_be_lazy && piece.full && AllSeen(at.rows, states);
    if (lazy) {
      lazy = LazyWeights(scale, at.rows, count, states, stride, scratch.scores, scratch.piece_sums);
      if (lazy) {
        AddScaled(T{1}, scratch.piece_sums, at.rows * lanes, scratch.sums);
      } else {
        may_be_lazy = false;
        score();
      }
    }
    if (!lazy) FoldLanes(at.rows, states, scratch.sums);
    for (int64_t r = 0; r < at.rows; ++r) {
      T* row = scratch.scores + r * stride;
      if (!lazy) {
        const KeyRange seen = SeenPart(ranges[r], count, row);
        if (seen.begin == seen.end) continue;
        const T factor = Normalize(p, scale, seen.end - seen.begin, row + seen.begin, states[r]);
        if (factor != T{1}) Scale(factor, width, scratch.gathered + r * width);
      }
      if (p.dropout_rate > 0) {
        KeepFactors(p, SiteOf(p, at.b, at.h, at.row + r, piece.begin), count, scratch.keep);
        MultiplyInto(scratch.keep, count, row);
      }
    }
    if (!gathers) continue;
    ForStrips(piece, at.rows, ranges, [&](int64_t row, int64_t rows, const KeyRange& hull) {
      const auto add = [&](int64_t begin, int64_t end, const T* first, int64_t row_stride) HWY_ATTR {
        Product<true, T>(rows, width,
                         {scratch.scores + row * stride + (begin - piece.begin), stride, 1, first, row_stride,
                          scratch.gathered + row * width, width, end - begin});
      };
      ForRuns(piece, schedule.visible(), hull, [&](int64_t begin, int64_t end) HWY_ATTR {
        if (values.data) return add(begin, end, RowAt(values, at.b, at.kv, begin), values.row_stride);
        const HeadRuns<T> runs = ValueRuns<T>(p.cached, at.kv);
        runs.ForStretches(begin, end,
                          [&](int64_t from, int64_t to, const T* first, const RunsBehind<T>&)
                              HWY_ATTR { add(from, to, first, runs.stride); });
      });
    });
  }
  FoldLanes(at.rows, states, scratch.sums);
  for (int64_t r = 0; r < at.rows; ++r) {
    const T* gathered = scratch.gathered + r * width;
    if (partials.data)
      LeavePartial(p, states[r], gathered,
                   partials.At((at.b * p.query_heads + at.h) * p.query_len + at.row + r, chunk));
    else
      LeaveRow(p, out, at.b, at.h, at.row + r, states[r], gathered);
  }
  if (out.weights.data) WriteWeights(p, out, keys, at, schedule, states, scratch.scores, scratch.mods);
}

/// The chunks of a tiled call without weights, which would need the sums of whole rows.
template <class T>
HWY_INLINE Chunks TiledChunks(const Problem<T>& p) {
  if (p.by_position) return {1, HWY_MAX(p.key_len, 1)};
  return ChunksOf(p, p.batch * p.query_heads * QueryBlocks(p));
}
template <class T>
HWY_INLINE int64_t TiledPartials(const Problem<T>& p) {
  if (p.by_position) return 0;
  return PartialElements(p, p.batch * p.query_heads * QueryBlocks(p), HWY_MIN(p.query_len, kBlockRows));
}

template <class T>
HWY_NOINLINE size_t TiledForwardBytes(const Problem<T>& p, int threads) {
  Carve carve(nullptr);
  carve.Take<T>(PacksOwn(p) ? 0 : TransposedSize(p, p.score_dim));
  carve.Take<T>(PaddedRowsSize(p, p.value_dim));
  carve.Take<T>(TiledPartials(p));
  for (int t = 0; t < threads; ++t) TakeForwardScratch(p, carve);
  return carve.Used();
}

template <class T>
HWY_NOINLINE void TiledForward(const Problem<T>& p, const ForwardOutputs<T>& out, Executor& executor,
                               std::byte* memory) {
  Carve carve(memory);
  Packed<T> keys{nullptr, p.kv_heads, 0, p.score_dim, TileStride<T>(p.key_len), true};
  if (!PacksOwn(p))
    PackTransposed(p, p.key, p.score_dim, carve.Take<T>(TransposedSize(p, p.score_dim)), executor, &keys);
  const Operand<const T*> values =
      PadRows(p, p.value, p.value_dim, carve.Take<T>(PaddedRowsSize(p, p.value_dim)), executor);
  const int64_t blocks = p.batch * p.query_heads * QueryBlocks(p);
  const bool whole = !out.output.data || out.weights.data;
  const Chunks chunks = whole ? Chunks{1, HWY_MAX(p.key_len, 1)} : TiledChunks(p);
  Partials<T> partials{nullptr, chunks.count, PartialWidth(p)};
  if (chunks.count > 1) partials.data = carve.Take<T>(TiledPartials(p));
  std::byte* scratch = memory + carve.Used();
  Carve one(nullptr);
  TakeForwardScratch(p, one);
  executor.parallel_for(blocks * chunks.count, [&](int64_t unit, int worker) {
    Carve mine(scratch + static_cast<size_t>(worker) * one.Used());
    ForwardBlock(p, out, keys, values, BlockOf(p, unit / chunks.count, kBlockRows), chunks,
                 unit % chunks.count, partials, TakeForwardScratch(p, mine));
  });
  LeaveMergedRows(p, partials, executor, RowsInto(p, out));
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif
