// Softmax attention by products of bf16 (tiles/product.h): for 16-bit operands, and for f32 split into bf16
// terms. For each block of 64 queries, for each chunk of 32 keys: S^T = K·Q^T, weights P^T. For each 256
// keys: O^T += V^T·P^T.
//
// The scores are stored as S^T, one row for each key. So the softmax runs along vectors of queries, the
// weights come out in the pairs that V^T·P^T reads, and only V is transposed, once for each call. The scores
// of a chunk (8 KiB), the weights of 256 keys and the gathered O^T of the block stay in the cache.
//
// The maximum that is subtracted from a row's scores is lazy. It is computed when the row sees its first
// keys. It is computed again only if the sum of a chunk's weights shows that scores have risen far beyond it.
// No precision is lost in between, because bf16 and f32 have enough exponents. A pass that finds the maxima
// costs a tenth of a call (docs/performance.md).
#if defined(FOVEA_TILES_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_TILES_FORWARD_INL_H_
#undef FOVEA_TILES_FORWARD_INL_H_
#else
#define FOVEA_TILES_FORWARD_INL_H_
#endif

#include "kernels/tiles/chunk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// The number of keys whose weights are collected for one product with their values.
constexpr int64_t kValueKeys = 256;
/// The limit of the sum of a chunk's weights, beyond which its maximum is determined anew: 32 weights of e^8,
/// or of 2^12 in powers of 2 (Exponents::headroom).
constexpr float kMostSum = 0x1p17f;

/// The running softmax of a block's queries, in the units of Exponents. While a row has seen no score above
/// -inf, its maximum is -inf and its shift 0.
struct TileStates {
  alignas(64) float maximum[kBlockQueries], shift[kBlockQueries], sum[kBlockQueries];
  bool all_seen = false;
};

/// The scratch buffers of one thread; 16-bit and pair buffers have one such matrix for each term.
struct TileScratch {
  uint16_t* query_rows;             ///< [64][dim]
  uint32_t *query_pairs, *weights;  ///< pairs of dims [dim / 2][64]; pairs of keys [kValueKeys / 2][64]
  float *scores, *gathered;         ///< [kChunk][64]; O^T [value_dim][64]
  float* spare;                     ///< the transpose of O^T, and products to add
  uint16_t* clean;                  ///< V^T of a chunk without hidden numbers: [value_dim][kChunk]
  ChunkRows rows;
};
struct TileSizes {
  int64_t dim, value_dim;  // rounded up: the depth of the scores' product, and the rows of V^T
};
HWY_INLINE TileSizes TileSizesOf(const Problem<float>& p) {
  return {RoundUp(p.score_dim, kDepth), RoundUp(p.value_dim, 16)};
}
HWY_INLINE TileScratch TakeTileScratch(const Problem<float>& p, const Split& split, Carve& carve) {
  const TileSizes s = TileSizesOf(p);
  return {carve.Take<uint16_t>(kBlockQueries * s.dim * split.terms),
          carve.Take<uint32_t>(kBlockQueries * s.dim / 2 * split.terms),
          carve.Take<uint32_t>(kBlockQueries * kValueKeys / 2 * split.terms),
          carve.Take<float>(kChunk * kBlockQueries),
          carve.Take<float>(kBlockQueries * s.value_dim),
          carve.Take<float>(kBlockQueries * s.value_dim),
          carve.Take<uint16_t>(s.value_dim * kChunk * split.terms),
          TakeChunkRows(p, false, carve)};
}

struct TileOperands {
  Split split;
  const TileEngine* engine = nullptr;
  PackedRows keys;
  PackedColumns values;
};

/// Writes output and log-sum-exp of one query row, as LeaveRow does, but the output may also be in 16 bits.
/// In that case the row is finished in `values`, whose contents are lost.
HWY_INLINE void LeaveTileRow(const Problem<float>& p, const ForwardOutputs<float>& out, int64_t b, int64_t h,
                             int64_t row, const RowState<float>& state, float* values) {
  if (!out.stored_output.data) return LeaveRow(p, out, b, h, row, state, values);
  Finish(state, sink_of(p, h), p.value_dim, values, values);
  uint16_t* to = RowAt(out.stored_output, b, h, row);
  p.stored_dtype == DType::bf16 ? NarrowRow<hwy::bfloat16_t>(values, p.value_dim, to)
                                : NarrowRow<hwy::float16_t>(values, p.value_dim, to);
  if (out.log_sum_exp) out.log_sum_exp[(b * p.query_heads + h) * p.query_len + row] = LogSumExp(state);
}

/// The loop of one block of queries over its keys.
class TileForward {
 public:
  TileForward(const Problem<float>& p, const TileOperands& in, const BlockAt<float>& at,
              const TileScratch& scratch)
      : p_(p),
        in_(in),
        at_(at),
        scratch_(scratch),
        sizes_(TileSizesOf(p)),
        all_{0, RoundUp(at.rows, 16)},
        columns_(all_),
        exponents_(ExponentsOf(p, in.split)),
        dropout_(p) {}

  HWY_INLINE void Run(const BlockSchedule& schedule, const Piece* pieces) {
    const EngineUse use(*in_.engine);
    PackQueries();
    Fill(0.0f, sizes_.value_dim * kBlockQueries, scratch_.gathered);
    for (int64_t r = 0; r < kBlockQueries; ++r) {
      // The padding rows behind the last query start with the maximum 0, which their scores never raise.
      // Started at -inf, a padding row would wait for a finite score. The numbers of hidden keys would then
      // decide when the maxima of all rows are found.
      states_.maximum[r] = r < at_.rows ? kHidden<float> : 0.0f;
      states_.shift[r] = states_.sum[r] = 0.0f;
    }
    for (int64_t n = 0; n < schedule.piece_count(); ++n) RunPiece(schedule, pieces[n]);
  }

  /// Prefetches the keys that the next blocks will read and this one does not. Under a window of 256 that
  /// gains 5 % of a call, elsewhere nothing.
  HWY_INLINE void FetchNext(const BlockSchedule& schedule) const {
    if (schedule.piece_count() == 0) return;
    const int64_t key = schedule.pieces()[schedule.piece_count() - 1].end;
    const uint16_t* rows = in_.keys.At(at_.b, at_.kv, key).data;
    for (int64_t r = 0; r < HWY_MIN(kBlockQueries, p_.key_len - key); ++r) {
      for (int64_t i = 0; i < p_.score_dim; i += 32) __builtin_prefetch(rows + r * in_.keys.stride + i, 0, 2);
    }
  }

  /// Writes the results of the block's rows. If the keys are split, these are the partial results of `chunk`.
  /// `states` gets those of the block's rows; null: they are not wanted.
  HWY_INLINE void Leave(const ForwardOutputs<float>& out, const Partials<float>& partials, int64_t chunk,
                        RowState<float>* states) {
    TransposeBlocks(reinterpret_cast<const uint32_t*>(scratch_.gathered), sizes_.value_dim, all_.end,
                    kBlockQueries, reinterpret_cast<uint32_t*>(scratch_.spare), sizes_.value_dim);
    for (int64_t r = 0; r < at_.rows; ++r) {
      const bool unseen = states_.maximum[r] == kHidden<float> && states_.sum[r] == 0.0f;
      const RowState<float> state{unseen ? kHidden<float> : states_.shift[r] * exponents_.unit,
                                  states_.sum[r]};
      float* values = scratch_.spare + r * sizes_.value_dim;
      if (states) states[r] = state;
      if (partials.data)
        LeavePartial(p_, state, values,
                     partials.At((at_.b * p_.query_heads + at_.h) * p_.query_len + at_.row + r, chunk));
      else
        LeaveTileRow(p_, out, at_.b, at_.h, at_.row + r, state, values);
    }
  }

  /// Computes the scores of the block once more, and writes the weights of its rows, before dropout. `states`
  /// are those of the rows' softmax over all keys.
  HWY_INLINE void WriteWeights(const ForwardOutputs<float>& out, const BlockSchedule& schedule,
                               const Piece* pieces, const RowState<float>* states) {
    const EngineUse use(*in_.engine);
    PackQueries();
    ChunkShares shares;
    for (int64_t r = 0; r < kBlockQueries; ++r) {
      const RowState<float> state = r < at_.rows ? states[r] : RowState<float>();
      shares.shift[r] = Unseen(state) ? 0.0f : state.maximum / exponents_.unit;
      shares.share[r] = Unseen(state) ? 0.0f : FactorOf(state, sink_of(p_, at_.h));
    }
    const auto for_slots = [&](auto&& body) HWY_ATTR {
      for (int64_t slot = weight_slot(out.weight_heads, at_.h, 0); slot >= 0;
           slot = weight_slot(out.weight_heads, at_.h, slot + 1)) {
        for (int64_t r = 0; r < at_.rows; ++r) body(r, RowAt(out.weights, at_.b, slot, at_.row + r));
      }
    };
    for_slots([&](int64_t, float* row) HWY_ATTR { Fill(0.0f, p_.key_len, row); });
    for (int64_t n = 0; n < schedule.piece_count(); ++n) {
      const Piece& piece = pieces[n];
      const int64_t begin = piece.begin / kChunk * kChunk;
      alignas(64) uint64_t hidden[kValueKeys + 1];
      HiddenBits(schedule, piece, at_.rows, begin, RoundUp(piece.end, kChunk) - begin, hidden);
      for (int64_t key = begin; key < piece.end; key += kChunk) {
        Score(key, hidden + (key - begin));
        in_.split.terms == 1 ? FinalChunk<true>(exponents_.factor, all_, shares, scratch_.scores)
                             : FinalChunk<false>(exponents_.factor, all_, shares, scratch_.scores);
        RowsOfChunk(scratch_.scores, all_, scratch_.rows.rows);
        const int64_t from = HWY_MAX(key, piece.begin), count = HWY_MIN(key + kChunk, piece.end) - from;
        for_slots([&](int64_t r, float* row)
                      HWY_ATTR { Copy(scratch_.rows.rows + r * kChunk + (from - key), count, row + from); });
      }
    }
  }

 private:
  HWY_INLINE Terms<uint32_t> Weights() const { return {scratch_.weights, kBlockQueries * kValueKeys / 2}; }

  HWY_INLINE void PackQueries() {
    const Terms<uint16_t> rows{scratch_.query_rows, kBlockQueries * sizes_.dim};
    const auto pack = [&](const auto& x) {
      PackRows(x, at_.b, at_.h, at_.row, at_.rows, kBlockQueries, p_.score_dim, sizes_.dim, in_.split.terms,
               rows);
    };
    WithStored(p_, p_.query, p_.stored_query, pack);
    for (int term = 0; term < in_.split.terms; ++term)
      TransposeBlocks(reinterpret_cast<const uint32_t*>(rows.of(term)), kBlockQueries, sizes_.dim / 2,
                      sizes_.dim / 2, scratch_.query_pairs + term * kBlockQueries * sizes_.dim / 2,
                      kBlockQueries);
  }

  HWY_NOINLINE void RunPiece(const BlockSchedule& schedule, const Piece& piece) {
    const int64_t begin = piece.begin / kChunk * kChunk;
    const bool partial = !piece.full || piece.begin != begin || piece.end % kChunk != 0;
    alignas(64) uint64_t hidden[kValueKeys + 1];
    if (partial) HiddenBits(schedule, piece, at_.rows, begin, RoundUp(piece.end, kChunk) - begin, hidden);
    from_ = begin;
    for (int64_t key = begin; key < piece.end; key += kChunk) {
      const uint64_t* chunk = hidden + (key - begin);
      uint64_t any = 0;
      if (partial) {
        for (int64_t j = 0; j < kChunk; ++j) any |= chunk[j];
      }
      See(key, any ? SeeingColumns(chunk, at_.rows, all_) : all_);
      if (columns_.Count() == 0) {
        from_ = key + kChunk;
        continue;
      }
      // Whether the sums are split here must not depend on the numbers in hidden keys, so the mask alone
      // decides.
      const bool apart = any && HidesFromAll(chunk, at_.rows);
      if (apart) Gather(key);
      Score(key, any ? chunk : nullptr);
      if (dropout_.Drops()) dropout_.Decide(p_, at_, key);
      Absorb(key);
      if (apart) in_.values.Wild(at_.b, at_.kv, key) ? GatherClean(key, chunk) : Gather(key + kChunk);
    }
    Gather(RoundUp(piece.end, kChunk));
  }

  /// Computes the chunk's scores of the current columns. `hidden`: HiddenBits of the chunk, null for none.
  HWY_INLINE void Score(int64_t key, const uint64_t* hidden) {
    const Terms<const uint32_t> queries{scratch_.query_pairs + columns_.begin,
                                        kBlockQueries * sizes_.dim / 2};
    TileProduct(
        *in_.engine, in_.split, kChunk, columns_.Count(), in_.keys.At(at_.b, at_.kv, key), queries,
        {in_.keys.stride, kBlockQueries, sizes_.dim, scratch_.scores + columns_.begin, kBlockQueries});
    if (p_.has_mods) ModChunk(p_, at_, columns_, key, scratch_.rows, scratch_.scores);
    if (hidden) HideScores(hidden, scratch_.scores);
  }

  /// From `key` on, only `columns` are computed. Weights that are not yet multiplied by their values belong
  /// to the previous columns, so they are gathered first.
  HWY_INLINE void See(int64_t key, const Columns& columns) {
    if (columns == columns_) return;
    Gather(key);
    columns_ = columns;
  }

  /// Turns the scores of the chunk into weights. If a row has no maximum yet, or one that is too low, the
  /// maxima are found first.
  HWY_INLINE void Absorb(int64_t key) {
    alignas(64) float sums[kBlockQueries];
    if (!states_.all_seen) {
      Fill(0.0f, kBlockQueries, sums);
      Raise(key, sums);
    }
    Weigh(key, sums);
    if (!Fits(sums)) {
      Raise(key, sums);
      Weigh(key, sums);
    }
    const TileTag d;
    for (int64_t v = columns_.begin; v < columns_.end; v += static_cast<int64_t>(hn::Lanes(d)))
      hn::Store(hn::Add(hn::Load(d, states_.sum + v), hn::Load(d, sums + v)), d, states_.sum + v);
  }
  HWY_INLINE void Weigh(int64_t key, float* sums) {
    const Terms<uint32_t> all = Weights(), to{all.data + (key - from_) / 2 * kBlockQueries, all.term_stride};
    dropout_.Drops() ? WeighTerms<true>(sums, to) : WeighTerms<false>(sums, to);
    for (int64_t r = HWY_MAX(at_.rows, columns_.begin); r < columns_.end; ++r) sums[r] = 0.0f;
  }
  template <bool kDrops>
  HWY_INLINE void WeighTerms(float* sums, const Terms<uint32_t>& to) const {
    const auto weigh = [&]<int kTerms>() HWY_ATTR {
      ChunkWeights<kTerms, kDrops>(scratch_.scores, columns_, exponents_.factor, states_.shift, dropout_,
                                   sums, to);
    };
    if (in_.split.terms == 1)
      weigh.template operator()<1>();
    else if (in_.split.terms == 2)
      weigh.template operator()<2>();
    else
      weigh.template operator()<3>();
  }
  HWY_INLINE bool Fits(const float* sums) const {
    const TileTag d;
    const auto most = hn::Set(d, kMostSum);
    auto fits = hn::FirstN(d, hn::Lanes(d));
    for (int64_t v = columns_.begin; v < columns_.end; v += static_cast<int64_t>(hn::Lanes(d)))
      fits = hn::And(fits, hn::Le(hn::Load(d, sums + v), most));
    return hn::AllTrue(d, fits);
  }

  /// Gives a new maximum to each row that has none, or whose scores have passed it by more than the headroom,
  /// and scales the gathered values to it. Weights of this piece that are not gathered yet belong to the old
  /// maxima, so they are gathered first. By position, only a row whose own sum of this chunk is too large is
  /// raised: another row's sum must not change this row's bits.
  HWY_NOINLINE void Raise(int64_t key, const float* sums) {
    const TileTag d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    alignas(64) float factors[kBlockQueries];
    const auto hidden = hn::Set(d, kHidden<float>), slope = hn::Set(d, exponents_.factor), zero = hn::Zero(d);
    bool scaled = false;
    states_.all_seen = true;
    for (int64_t r = 0; r < all_.end; ++r) {
      if (r < columns_.begin || r >= columns_.end)
        states_.all_seen = states_.all_seen && states_.maximum[r] != kHidden<float>;
    }
    for (int64_t v = columns_.begin; v < columns_.end; v += lanes) {
      auto best = hidden;
      for (int64_t j = 0; j < kChunk; ++j) {
        const auto score = hn::Mul(hn::LoadU(d, scratch_.scores + j * kBlockQueries + v), slope);
        best = hn::IfThenElse(hn::Gt(score, best), score, best);  // false for a NaN
      }
      const auto old = hn::Load(d, states_.maximum + v);
      const auto unseen = hn::Eq(old, hidden);
      const auto asks = hn::Gt(hn::Load(d, sums + v), hn::Set(d, p_.by_position ? kMostSum : -1.0f));
      const auto raise =
          hn::Or(unseen, hn::And(asks, hn::Gt(hn::Sub(best, old), hn::Set(d, exponents_.headroom))));
      const auto now = hn::IfThenElse(raise, best, old);
      const auto shift = hn::IfThenElse(hn::Eq(now, hidden), zero, now);
      const auto change = hn::IfThenElse(unseen, zero, hn::Sub(old, shift));
      hn::Store(Power<false>(hn::Mul(change, hn::Set(d, exponents_.unit))), d, factors + v);
      hn::Store(now, d, states_.maximum + v);
      hn::Store(shift, d, states_.shift + v);
      scaled = scaled || !hn::AllTrue(d, hn::Eq(change, zero));
      states_.all_seen = states_.all_seen && hn::AllFalse(d, hn::Eq(now, hidden));
    }
    if (!scaled) return;
    Gather(key);
    for (int64_t v = columns_.begin; v < columns_.end; v += lanes) {
      const auto factor = hn::Load(d, factors + v);
      hn::Store(hn::Mul(factor, hn::Load(d, states_.sum + v)), d, states_.sum + v);
      for (int64_t i = 0; i < sizes_.value_dim; ++i) {
        float* x = scratch_.gathered + i * kBlockQueries + v;
        hn::StoreU(hn::Mul(factor, hn::LoadU(d, x)), d, x);
      }
    }
  }

  /// gathered += V^T·P^T for the weights of keys [from_, key). Their buffer is then free again.
  HWY_INLINE void Gather(int64_t key) {
    if (key > from_) {
      const Terms<const uint32_t> weights{scratch_.weights + columns_.begin, kBlockQueries * kValueKeys / 2};
      AddTileProduct(
          *in_.engine, in_.split, sizes_.value_dim, columns_.Count(), in_.values.At(at_.b, at_.kv, from_),
          weights,
          {in_.values.stride, kBlockQueries, key - from_, scratch_.gathered + columns_.begin, kBlockQueries},
          scratch_.spare);
    }
    from_ = key;
  }

  /// Gathers one chunk whose values hold an infinity or a NaN, some of them perhaps hidden.
  HWY_NOINLINE void GatherClean(int64_t key, const uint64_t* hidden) {
    const Terms<const uint16_t> clean = CleanColumns(in_.values, in_.split, at_, key, hidden, scratch_.clean);
    const Terms<const uint32_t> weights{scratch_.weights + columns_.begin, kBlockQueries * kValueKeys / 2};
    AddTileProduct(*in_.engine, in_.split, sizes_.value_dim, columns_.Count(), clean, weights,
                   {kChunk, kBlockQueries, kChunk, scratch_.gathered + columns_.begin, kBlockQueries},
                   scratch_.spare);
    from_ = key + kChunk;
  }

  const Problem<float>& p_;
  const TileOperands& in_;
  const BlockAt<float>& at_;
  const TileScratch& scratch_;
  TileSizes sizes_;
  Columns all_, columns_;  ///< the columns of the block's 64 that hold queries, and those that see keys of
                           ///< this chunk
  Exponents exponents_;
  ChunkDropout dropout_;
  TileStates states_;
  int64_t from_ = 0;  ///< the first key whose weights are not yet multiplied by their values
};

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif
