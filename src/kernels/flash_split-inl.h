// Few queries over many keys, as in decoding: what bounds it is the bandwidth of reading keys and values. So
// each is read once for all query heads that share it, in the type it is stored in (16 bits are widened in
// the register), and nothing is packed. Keys are cut into chunks by shape alone, so that one query of one
// head has work for several threads and the same bits for any number of them; the chunks' states merge in
// order.
#if defined(FOVEA_FLASH_SPLIT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_FLASH_SPLIT_INL_H_
#undef FOVEA_FLASH_SPLIT_INL_H_
#else
#define FOVEA_FLASH_SPLIT_INL_H_
#endif

#include "kernels/flash_direct-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

#define FOVEA_UNROLL _Pragma("GCC unroll 16")

/// Products that are summed side by side: 16 accumulators, 4 queries and a key fit the 32 registers of
/// AVX-512 and Arm, 8 the 16 of the others.
constexpr int kSums = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM ? 16 : 8;

template <class D, class S>
HWY_INLINE hn::Vec<D> LoadWide(D d, const S* from) {
  if constexpr (sizeof(S) == sizeof(hn::TFromD<D>)) {
    return hn::LoadU(d, from);
#if HWY_ARCH_X86 && \
    HWY_TARGET > HWY_AVX2  // without F16C Highway's conversion makes numbers of infinity and NaN
  } else if constexpr (hwy::IsSame<S, hwy::float16_t>()) {
    const hn::RebindToUnsigned<D> du;
    const auto bits =
        hn::PromoteTo(du, hn::LoadU(hn::Rebind<uint16_t, D>(), reinterpret_cast<const uint16_t*>(from)));
    const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(du, 0x7fffu)));
    const auto wild = hn::Eq(hn::And(bits, hn::Set(du, 0x7c00u)), hn::Set(du, 0x7c00u));
    // An exponent 112 too small, or a subnormal: a product mends both.
    const auto number = hn::BitCast(du, hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 0x1p112f)));
    const auto whole = hn::Or(number, hn::IfThenElseZero(wild, hn::Set(du, 0x7f800000u)));
    return hn::BitCast(d, hn::Or(whole, hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000u)))));
#endif
  } else {
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<S, D>(), from));
  }
}
/// The first n lanes, zeros behind.
template <class D, class S>
HWY_INLINE hn::Vec<D> LoadWideN(D d, const S* from, int64_t n) {
  alignas(64) S lanes[hn::MaxLanes(D())];
  for (int64_t i = 0; i < static_cast<int64_t>(hn::Lanes(d)); ++i) {
    if (i < n)
      hwy::CopyBytes<sizeof(S)>(from + i, lanes + i);
    else
      hwy::ZeroBytes<sizeof(S)>(lanes + i);
  }
  return LoadWide(d, lanes);
}

/// Keys or values of one head as they are stored.
template <class S>
struct StoredRows {
  const S* data;
  int64_t stride;
  HWY_INLINE const S* at(int64_t j) const { return data + j * stride; }
  /// Asks for the cache lines of row j, which need not exist, before they are read.
  HWY_INLINE void Fetch(int64_t j, int64_t dim) const {
    constexpr int64_t line = 64 / sizeof(S);
    const S* row = at(j);
    for (int64_t i = 0; i < dim; i += line) hwy::Prefetch(row + i);
  }
};

/// How far ahead of their use rows are fetched. The processor's own prefetchers follow one stream well while
/// little is computed between its lines, and stop at every page: with 32 products a key, one Zen 5 core read
/// 21 GB/s of 38 without this, 31 with 8 KiB, 28 with 2 KiB or with all of it in the second-level cache only.
constexpr int64_t kAheadBytes = 8192;
template <class S>
HWY_INLINE int64_t RowsAhead(int64_t dim) {
  return kAheadBytes / Most(dim * static_cast<int64_t>(sizeof(S)), 1);
}

/// scores[r · score_stride + j] = ⟨query r, key j⟩ for kRows queries and keys [0, count). Queries are rows of
/// `padded` elements, zeros behind `dim`.
template <int kRows, class T, class S>
HWY_INLINE void StoredScores(const T* queries, int64_t padded, const StoredRows<S>& keys, int64_t dim,
                             int64_t count, bool fetch, T* scores, int64_t score_stride) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kKeys = kSums / kRows;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), ahead = RowsAhead<S>(dim);
  for (int64_t j = 0; j < count; j += kKeys) {
    V sums[kSums];
    FOVEA_UNROLL for (int i = 0; i < kSums; ++i) sums[i] = hn::Zero(d);
    // Behind the last key it is the last again: its sums are thrown away.
    const S* rows[kKeys];
    FOVEA_UNROLL for (int k = 0; k < kKeys; ++k) rows[k] = keys.at(j + k < count ? j + k : count - 1);
    // Key after key, so that memory is read in order: side by side, several rows are streams of their own,
    // which the prefetcher follows at half the rate.
    int64_t i = 0;
    FOVEA_UNROLL for (int k = 0; k < kKeys; ++k) {
      if (fetch) keys.Fetch(j + k + ahead, dim);
      for (i = 0; i + lanes <= dim; i += lanes) {
        const V key = LoadWide(d, rows[k] + i);
        FOVEA_UNROLL for (int r = 0; r < kRows; ++r) sums[r * kKeys + k] =
            hn::MulAdd(hn::LoadU(d, queries + r * padded + i), key, sums[r * kKeys + k]);
      }
    }
    if (i < dim) {
      for (int k = 0; k < kKeys; ++k) {
        const V key = LoadWideN(d, rows[k] + i, dim - i);
        for (int r = 0; r < kRows; ++r)
          sums[r * kKeys + k] = hn::MulAdd(hn::LoadU(d, queries + r * padded + i), key, sums[r * kKeys + k]);
      }
    }
    alignas(64) T folded[kSums > kLanes ? kSums : kLanes];
    FoldSums<kSums, kLanes>(d, sums, folded);
    for (int r = 0; r < kRows; ++r) {
      for (int k = 0; k < kKeys && j + k < count; ++k)
        scores[r * score_stride + j + k] = folded[r * kKeys + k];
    }
  }
}

/// gathered += weight · value, one row of each.
template <class T, class S>
HWY_INLINE void AddStored(T weight, const S* value, int64_t dim, T* gathered) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, weight);
  int64_t i = 0;
  for (; i + lanes <= dim; i += lanes)
    hn::StoreU(hn::MulAdd(factor, LoadWide(d, value + i), hn::LoadU(d, gathered + i)), d, gathered + i);
  if (i < dim)
    hn::StoreU(hn::MulAdd(factor, LoadWideN(d, value + i, dim - i), hn::LoadU(d, gathered + i)), d,
               gathered + i);
}

/// gathered[r] += Σ_j weights[r · weight_stride + j] · value j for kRows rows of `padded` elements, four
/// values at a time. A weight of 0 reads nothing: its key may be hidden, and its value NaN.
template <int kRows, class T, class S>
HWY_INLINE void AddStoredRows(const T* weights, int64_t weight_stride, const StoredRows<S>& values,
                              int64_t dim, int64_t count, bool fetch, T* gathered, int64_t padded) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), whole = dim / lanes * lanes,
                ahead = RowsAhead<S>(dim);
  for (int64_t j = 0; j < count; j += 4) {
    bool all = j + 4 <= count;
    for (int r = 0; r < kRows && all; ++r) {
      const T* w = weights + r * weight_stride + j;
      all = w[0] != T{0} && w[1] != T{0} && w[2] != T{0} && w[3] != T{0};
    }
    if (!all) {
      for (int64_t k = j; k < j + 4 && k < count; ++k) {
        for (int r = 0; r < kRows; ++r) {
          const T weight = weights[r * weight_stride + k];
          if (weight != T{0}) AddStored(weight, values.at(k), dim, gathered + r * padded);
        }
      }
      continue;
    }
    if (fetch) {
      for (int64_t k = 0; k < 4; ++k) values.Fetch(j + k + ahead, dim);
    }
    V factor[kRows][4];
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
      FOVEA_UNROLL for (int k = 0; k < 4; ++k) factor[r][k] = hn::Set(d, weights[r * weight_stride + j + k]);
    }
    for (int64_t i = 0; i < dim; i += lanes) {
      V value[4];
      if (i < whole) {
        FOVEA_UNROLL for (int k = 0; k < 4; ++k) {
          value[k] = LoadWide(d, values.at(j + k) + i);
        }
      } else {
        for (int k = 0; k < 4; ++k) value[k] = LoadWideN(d, values.at(j + k) + i, dim - i);
      }
      FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
        V sum = hn::LoadU(d, gathered + r * padded + i);
        FOVEA_UNROLL for (int k = 0; k < 4; ++k) sum = hn::MulAdd(factor[r][k], value[k], sum);
        hn::StoreU(sum, d, gathered + r * padded + i);
      }
    }
  }
}
#undef FOVEA_UNROLL

/// What else kernels of some S do in their own way: queries as StoredScores wants them, and what was gathered
/// put into order.
template <class T, class S>
HWY_INLINE void LoadQuery(S, const T* from, int64_t dim, int64_t padded, T* to) {
  Copy(from, dim, to);
  Fill(T{0}, padded - dim, to + dim);
}
template <class T, class S>
HWY_INLINE void Unravel(S, int64_t, T*) {}

/// Elements from row to row of gathered values: whole pairs of vectors.
template <class T>
HWY_INLINE int64_t SplitWidth(const Problem<T>& p) {
  return 2 * Padded<T>((p.value_dim + 1) / 2);
}

/// How the keys are cut. Enough chunks for 32 units of work, 256 keys each at least: a chunk costs a state
/// and a row of values to merge, a hundredth of reading 256 keys.
constexpr int64_t kSplitUnits = 32, kChunkKeys = 256;
struct Chunks {
  int64_t count, keys;
};
template <class T>
HWY_INLINE Chunks ChunksOf(const Problem<T>& p) {
  const int64_t heads = Most(p.batch * p.kv_heads, 1);
  const int64_t wanted = Least((kSplitUnits + heads - 1) / heads, (p.key_len + kChunkKeys - 1) / kChunkKeys);
  const int64_t keys = (Most(p.key_len, 1) + wanted - 1) / Most(wanted, 1);
  const int64_t rounded = (keys + kTileKeys - 1) / kTileKeys * kTileKeys;
  return {(p.key_len + rounded - 1) / rounded, rounded};
}

/// Rows that share a key: the queries of all heads of a group, head by head.
template <class T>
HWY_INLINE int64_t GroupRows(const Problem<T>& p) {
  return p.query_heads / p.kv_heads * Least(p.query_len, most_direct_queries);
}

template <class T>
struct SplitScratch {
  T *queries, *scores, *gathered, *keep;
  RowState<T>* states;
  ModBuffers<T> mods;
};
template <class T>
HWY_INLINE SplitScratch<T> TakeSplitScratch(const Problem<T>& p, Carve& carve) {
  const int64_t rows = GroupRows(p), stride = TileStride<T>(p.key_len);
  return {carve.Take<T>(rows * Padded<T>(p.score_dim)),
          carve.Take<T>(rows * stride),
          carve.Take<T>(rows * SplitWidth(p)),
          carve.Take<T>(stride),
          carve.Take<RowState<T>>(rows),
          TakeModBuffers(p.mods, 1, false, carve)};
}

/// One chunk's states and unfinished values, a row of [maximum, sum, values] each.
template <class T>
HWY_INLINE int64_t PartialWidth(const Problem<T>& p) {
  return 2 + p.value_dim;
}

/// Scores of one piece for the rows of `heads` heads from at.h on: rows of `scratch.scores`, as the score
/// mods leave them, -inf where a row does not see a key.
template <class T, class S>
HWY_INLINE void PieceScores(const Problem<T>& p, const StoredRows<S>& keys, const BlockAt<T>& at,
                            int64_t heads, const BlockSchedule& schedule, const Piece& piece, int64_t stride,
                            const SplitScratch<T>& scratch) {
  const int64_t padded = Padded<T>(p.score_dim), n = piece.end - piece.begin, rows = heads * at.rows;
  if (piece.full) {
    const StoredRows<S> from{keys.at(piece.begin), keys.stride};
    ForRowGroups(rows, [&]<int kRows>(int64_t r) {
      StoredScores<kRows>(scratch.queries + r * padded, padded, from, p.score_dim, n, r == 0,
                          scratch.scores + r * stride, stride);
    });
  }
  for (int64_t r = 0; r < rows; ++r) {
    T* scores = scratch.scores + r * stride;
    if (piece.full) {
      ScaleEarly(p, n, scores);
    } else {
      Fill(p.has_mods ? T{0} : kHidden<T>, n, scores);
      ForRuns(piece, schedule.row(r % at.rows), [&](int64_t begin, int64_t end) {
        T* run = scores + (begin - piece.begin);
        StoredScores<1>(scratch.queries + r * padded, padded, StoredRows<S>{keys.at(begin), keys.stride},
                        p.score_dim, end - begin, false, run, stride);
        ScaleEarly(p, end - begin, run);
      });
    }
    if (!p.has_mods) continue;
    apply_mods<T>(p, {at.b, at.h + r / at.rows, at.row + r % at.rows, 1, piece.begin, n}, scores, n,
                  scratch.mods);
    if (!piece.full) HideOutside(schedule.row(r % at.rows), piece.begin, piece.end, scores);
  }
}

/// One head's rows, or those of all heads of a group, against keys [key_begin, key_end).
template <class T, class S>
HWY_NOINLINE void SplitBlock(const Problem<T>& p, const StoredRows<S>& keys, const StoredRows<S>& values,
                             const BlockAt<T>& at, int64_t heads, int64_t key_begin, int64_t key_end,
                             const SplitScratch<T>& scratch) {
  const BlockSchedule& schedule = ScheduleOf(p, at, key_begin, key_end);
  const int64_t rows = heads * at.rows, stride = TileStride<T>(p.key_len), padded = Padded<T>(p.score_dim),
                width = SplitWidth(p);
  const T scale = ScaleOf(p);
  for (int64_t r = 0; r < rows; ++r) {
    LoadQuery(S(), RowAt(p.query, at.b, at.h + r / at.rows, at.row + r % at.rows), p.score_dim, padded,
              scratch.queries + r * padded);
    Fill(T{0}, width, scratch.gathered + r * width);
    scratch.states[r] = RowState<T>();
  }
  for (int64_t n = 0; n < schedule.piece_count(); ++n) {
    const Piece& piece = schedule.pieces()[n];
    const int64_t count = piece.end - piece.begin;
    PieceScores(p, keys, at, heads, schedule, piece, stride, scratch);
    for (int64_t r = 0; r < rows; ++r) {
      T* scores = scratch.scores + r * stride;
      const T factor = Normalize(p, scale, count, scores, scratch.states[r]);
      if (factor != T{1}) Scale(factor, p.value_dim, scratch.gathered + r * width);
      if (p.dropout_rate > 0) {
        dropout_factors<T>(p.dropout_rate, p.dropout_seed,
                           {at.b, at.h + r / at.rows, at.row + r % at.rows + p.query_offset, piece.begin},
                           count, scratch.keep);
        MultiplyInto(scratch.keep, count, scores);
      }
    }
    const StoredRows<S> from{values.at(piece.begin), values.stride};
    ForRowGroups(rows, [&]<int kRows>(int64_t r) {
      AddStoredRows<kRows>(scratch.scores + r * stride, stride, from, p.value_dim, count, r == 0,
                           scratch.gathered + r * width, width);
    });
  }
  for (int64_t r = 0; r < rows; ++r) Unravel(S(), width, scratch.gathered + r * width);
}

/// What row r of a head of a unit has gathered: finished where the keys are one chunk, else kept for the
/// merge.
template <class T>
HWY_INLINE void LeaveRow(const Problem<T>& p, const ForwardOutputs<T>& out, const BlockAt<T>& at, int64_t r,
                         const RowState<T>& state, const T* gathered, T* partial) {
  if (partial) {
    partial[0] = state.maximum;
    partial[1] = state.sum;
    return Copy(gathered, p.value_dim, partial + 2);
  }
  const T log_sum_exp =
      Finish(state, SinkOf(p, at.h), p.value_dim, gathered, RowAt(out.output, at.b, at.h, at.row + r));
  if (out.log_sum_exp)
    out.log_sum_exp[(at.b * p.query_heads + at.h) * p.query_len + at.row + r] = log_sum_exp;
}

/// Row (b, h, r) of chunk `chunk` among the partial results.
template <class T>
HWY_INLINE T* PartialAt(const Problem<T>& p, T* partials, int64_t chunks, int64_t chunk, int64_t row) {
  return partials + (row * chunks + chunk) * PartialWidth(p);
}

template <class T, class S>
HWY_NOINLINE void SplitUnit(const Problem<T>& p, const ForwardOutputs<T>& out, const Operand<const S*>& keys,
                            const Operand<const S*>& values, const Chunks& chunks, int64_t unit, T* partials,
                            const SplitScratch<T>& scratch) {
  const int64_t chunk = unit % chunks.count, kv = unit / chunks.count % p.kv_heads,
                b = unit / chunks.count / p.kv_heads;
  const int64_t key_begin = chunk * chunks.keys, key_end = Least(p.key_len, key_begin + chunks.keys);
  const int64_t heads = p.query_heads / p.kv_heads, width = SplitWidth(p);
  const StoredRows<S> key_rows{keys.data + b * keys.batch_stride + kv * keys.head_stride, keys.row_stride};
  const StoredRows<S> value_rows{values.data + b * values.batch_stride + kv * values.head_stride,
                                 values.row_stride};
  // Heads share the reading of a key where they see the same keys.
  const int64_t together = mask_reads_head(*p.mask) ? 1 : heads;
  for (int64_t first = 0; first < heads; first += together) {
    BlockAt<T> at{b, kv * heads + first, kv, 0, p.query_len};
    SplitBlock(p, key_rows, value_rows, at, together, key_begin, key_end, scratch);
    for (int64_t r = 0; r < together * p.query_len; ++r) {
      const BlockAt<T> row{b, at.h + r / p.query_len, kv, 0, p.query_len};
      const int64_t index = (b * p.query_heads + row.h) * p.query_len + r % p.query_len;
      LeaveRow(p, out, row, r % p.query_len, scratch.states[r], scratch.gathered + r * width,
               partials ? PartialAt(p, partials, chunks.count, chunk, index) : nullptr);
    }
  }
}

/// The merge law of attention/state over one row's chunks, in order. Of a sigmoid the values add, and its
/// states only say whether anything was seen.
template <class T>
HWY_NOINLINE void MergeRow(const Problem<T>& p, const ForwardOutputs<T>& out, int64_t chunks, int64_t index,
                           T* partials) {
  RowState<T> whole;
  for (int64_t c = 0; c < chunks; ++c) {
    const T maximum = *PartialAt(p, partials, chunks, c, index);
    whole.maximum = maximum > whole.maximum ? maximum : whole.maximum;
  }
  T* gathered = PartialAt(p, partials, chunks, 0, index) + 2;
  for (int64_t c = 0; c < chunks; ++c) {
    T* partial = PartialAt(p, partials, chunks, c, index);
    const T factor =
        partial[0] == whole.maximum ? T{1} : static_cast<T>(std::exp(partial[0] - whole.maximum));
    if (p.normalizer == NormalizerKind::sigmoid) {
      whole.sum = partial[1] > whole.sum ? partial[1] : whole.sum;
    } else {
      whole.sum += factor * partial[1];
    }
    if (c == 0) {
      if (factor != T{1}) Scale(factor, p.value_dim, gathered);
    } else if (factor != T{0}) {
      AddScaled(factor, partial + 2, p.value_dim, gathered);
    }
  }
  const int64_t r = index % p.query_len, h = index / p.query_len % p.query_heads,
                b = index / p.query_len / p.query_heads;
  LeaveRow(p, out, BlockAt<T>{b, h, h / (p.query_heads / p.kv_heads), 0, p.query_len}, r, whole, gathered,
           static_cast<T*>(nullptr));
}

/// What a row of partial results takes, for a call of at most this size: a smaller batch has more chunks.
template <class T>
HWY_INLINE int64_t PartialElements(const Problem<T>& p) {
  if (p.key_len <= kChunkKeys) return 0;
  return (kSplitUnits + p.batch * p.kv_heads) * GroupRows(p) * PartialWidth(p);
}

template <class T>
HWY_NOINLINE size_t SplitForwardBytes(const Problem<T>& p, int threads) {
  Carve carve(nullptr);
  carve.Take<T>(PartialElements(p));
  for (int t = 0; t < threads; ++t) TakeSplitScratch(p, carve);
  return carve.Used();
}

template <class T, class S>
HWY_NOINLINE void SplitForward(const Problem<T>& p, const ForwardOutputs<T>& out,
                               const Operand<const S*>& keys, const Operand<const S*>& values,
                               Executor& executor, std::byte* memory) {
  Carve carve(memory), one(nullptr);
  const Chunks chunks = ChunksOf(p);
  T* partials = chunks.count > 1 ? carve.Take<T>(PartialElements(p)) : nullptr;
  std::byte* scratch = memory + carve.Used();
  TakeSplitScratch(p, one);
  executor.parallel_for(p.batch * p.kv_heads * chunks.count, [&](int64_t unit, int worker) {
    Carve mine(scratch + static_cast<size_t>(worker) * one.Used());
    SplitUnit(p, out, keys, values, chunks, unit, partials, TakeSplitScratch(p, mine));
  });
  if (!partials) return;
  executor.parallel_for(p.batch * p.query_heads * p.query_len,
                        [&](int64_t index, int) { MergeRow(p, out, chunks.count, index, partials); });
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif
