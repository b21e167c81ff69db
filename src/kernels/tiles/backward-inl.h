// Backward of tiles/forward-inl.h: five products of bf16 terms. A unit of work is a (batch entry, kv head,
// group of keys), as in flash/tiled_backward-inl.h. It keeps dK and dV of its keys in f32 and runs over the
// blocks of queries of its heads. The weights P^T and dS^T have a row for each key, as dV = P^T·dO and dK =
// dS^T·Q read them. dS^T is also packed in pairs for dQ^T = K^T·dS^T.
#if defined(FOVEA_TILES_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_TILES_BACKWARD_INL_H_
#undef FOVEA_TILES_BACKWARD_INL_H_
#else
#define FOVEA_TILES_BACKWARD_INL_H_
#endif

#include "kernels/tiles/forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// For each query of a block: the shift of its exponents, D = ⟨dO, O⟩, and the share of the row that is not
/// its sink's. The shift is infinite if there is no query, or if it sees no key, so that the weights are 0.
struct TileRows {
  alignas(64) float shift[kBlockQueries], mean[kBlockQueries], share[kBlockQueries];
};

/// Replaces a NaN of any bits by one that stays a NaN when an addition rounds it to bf16.
HWY_INLINE float Plain(float x) {
  return x != x ? NAN : x;
}

/// The weights and score gradients of a chunk, in terms: rows [key][64] of both, and pairs of keys of the
/// score gradients.
struct ChunkGradients {
  Terms<uint16_t> weights, d_scores;
  Terms<uint32_t> pairs;
};

/// Stores one vector in terms as a row, and returns its terms in `halves`, for pairs.
template <int kTerms, class V, class VU>
HWY_INLINE void StoreTerms(V x, const Terms<uint16_t>& to, int64_t at, VU* halves) {
  const TileTag d;
  const UnsignedOf<TileTag> du;
  HWY_UNROLL(3)
  for (int term = 0; term < kTerms; ++term) {
    const auto rounded = hn::Add(hn::BitCast(du, x), hn::Set(du, 0x8000u));  // to the nearest, ties away from
                                                                             // 0
    halves[term] = hn::ShiftRight<16>(rounded);
    StoreHalves(du, halves[term], to.of(term) + at);
    if (term + 1 < kTerms) x = hn::Sub(x, hn::BitCast(d, hn::And(rounded, hn::Set(du, 0xffff0000u))));
  }
}

/// Stores the score gradients of keys j and j + 1 and the rows from `row` on, in terms and in pairs.
template <int kTerms, class V>
HWY_INLINE void StoreScoreGradients(const V (&x)[2], int64_t j, int64_t row, const ChunkGradients& to) {
  const UnsignedOf<TileTag> du;
  hn::Vec<UnsignedOf<TileTag>> halves[2][kTerms];
  HWY_UNROLL(2)
  for (int64_t i = 0; i < 2; ++i)
    StoreTerms<kTerms>(x[i], to.d_scores, (j + i) * kBlockQueries + row, halves[i]);
  HWY_UNROLL(3)
  for (int term = 0; term < kTerms; ++term)
    hn::StoreU(hn::Or(halves[0][term], hn::ShiftLeft<16>(halves[1][term])), du,
               to.pairs.of(term) + j / 2 * kBlockQueries + row);
}

/// From the products S^T and dP^T of a chunk: P = share·(power of min(factor·s - shift, 0)) and dS =
/// P∘(keep∘dP - D)·scale, where `keep` are the factors of dropout. dS is exactly 0 where P is 0: dP may be
/// NaN there. With kApart dS takes the place of dP^T, else it is stored in terms. The weights are stored
/// after dropout.
template <int kTerms, bool kDrops, bool kApart>
HWY_NOINLINE void GradientsOfChunk(const float* scores, float* d_weights, const TileRows& rows, float factor,
                                   float scale, const ChunkDropout& dropout, const ChunkGradients& to) {
  const TileTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto slope = hn::Set(d, factor), zero = hn::Zero(d), outer = hn::Set(d, scale);
  for (int64_t v = 0; v < kBlockQueries; v += lanes) {
    const auto shift = hn::Load(d, rows.shift + v), mean = hn::Load(d, rows.mean + v),
               share = hn::Load(d, rows.share + v);
    const auto absent = hn::Eq(shift, hn::Set(d, -kHidden<float>));
    for (int64_t j = 0; j < kChunk; j += 2) {
      hn::Vec<TileTag> d_scores[2] = {zero, zero};
      HWY_UNROLL(2)
      for (int64_t i = 0; i < 2; ++i) {
        const int64_t at = (j + i) * kBlockQueries + v;
        hn::Vec<UnsignedOf<TileTag>> halves[kTerms];
        const auto exponent = AtMost(zero, hn::MulSub(hn::LoadU(d, scores + at), slope, shift));
        // Without a query the product is 0, or NaN where the key holds one.
        const auto weight = hn::IfThenZeroElse(absent, hn::Mul(share, Power<kTerms == 1>(exponent)));
        auto d_weight = hn::LoadU(d, d_weights + at), kept = weight;
        if constexpr (kDrops) {
          const auto keep = dropout.Factors(j + i, v);
          d_weight = hn::Mul(d_weight, keep);
          kept = hn::Mul(kept, keep);
        }
        const auto gradient = hn::Mul(hn::Mul(weight, outer), hn::Sub(d_weight, mean));
        StoreTerms<kTerms>(kept, to.weights, at, halves);
        d_scores[i] = hn::IfThenZeroElse(hn::Eq(weight, zero), gradient);
        if constexpr (kApart) hn::StoreU(d_scores[i], d, d_weights + at);
      }
      if constexpr (!kApart) StoreScoreGradients<kTerms>(d_scores, j, v, to);
    }
  }
}

/// Stores score gradients [kChunk][64] in terms.
template <int kTerms>
HWY_NOINLINE void TermsOfChunk(const float* d_scores, const ChunkGradients& to) {
  const TileTag d;
  for (int64_t v = 0; v < kBlockQueries; v += static_cast<int64_t>(hn::Lanes(d))) {
    for (int64_t j = 0; j < kChunk; j += 2) {
      const hn::Vec<TileTag> both[2] = {hn::LoadU(d, d_scores + j * kBlockQueries + v),
                                        hn::LoadU(d, d_scores + (j + 1) * kBlockQueries + v)};
      StoreScoreGradients<kTerms>(both, j, v, to);
    }
  }
}

struct TileBackwardShape {
  int64_t groups, group_keys;
  int64_t depth, value_depth;  // dims rounded up to multiples of kDepth
  int64_t dim, value_dim;      // dims rounded up to 16, for tile registers
};
HWY_INLINE TileBackwardShape TileBackwardShapeOf(const Problem<float>& p) {
  const int64_t tiles = (p.key_len + kTileKeys - 1) / kTileKeys, groups = KeyGroups(p, tiles);
  return {groups,
          (tiles + groups - 1) / groups * kTileKeys,
          RoundUp(p.score_dim, kDepth),
          RoundUp(p.value_dim, kDepth),
          RoundUp(p.score_dim, 16),
          RoundUp(p.value_dim, 16)};
}

struct TileBackwardScratch {
  float *d_key, *d_value;                      // [group_keys][dim], f32
  uint16_t *query_rows, *d_output_rows;        // [64][depth]
  uint32_t *query_columns, *d_output_columns;  // pairs of dims [depth / 2][64]
  uint32_t *query_pairs, *d_output_pairs;      // pairs of queries [32][depth]
  float *scores, *d_weights;                   // [kChunk][64]
  uint16_t *weights, *d_scores;                // [kTileKeys][64]
  uint32_t* d_score_pairs;                     // [kTileKeys / 2][64]
  float *d_query, *spare;                      // [dim][64]; its transpose, and products to be added
  uint16_t* clean;
  ChunkRows rows;
};
HWY_INLINE TileBackwardScratch TakeTileBackwardScratch(const Problem<float>& p, const TileBackwardShape& s,
                                                       const Split& split, Carve& carve) {
  const int64_t keys = HWY_MIN(s.group_keys, PackedKeys(p)), terms = split.terms;
  return {carve.Take<float>(keys * s.dim),
          carve.Take<float>(keys * s.value_dim),
          carve.Take<uint16_t>(kBlockQueries * s.depth * terms),
          carve.Take<uint16_t>(kBlockQueries * s.value_depth * terms),
          carve.Take<uint32_t>(kBlockQueries / 2 * s.depth * terms),
          carve.Take<uint32_t>(kBlockQueries / 2 * s.value_depth * terms),
          carve.Take<uint32_t>(kBlockQueries / 2 * s.depth * terms),
          carve.Take<uint32_t>(kBlockQueries / 2 * s.value_depth * terms),
          carve.Take<float>(kChunk * kBlockQueries),
          carve.Take<float>(kChunk * kBlockQueries),
          carve.Take<uint16_t>(kTileKeys * kBlockQueries * terms),
          carve.Take<uint16_t>(kTileKeys * kBlockQueries * terms),
          carve.Take<uint32_t>(kTileKeys / 2 * kBlockQueries * terms),
          carve.Take<float>(s.dim * kBlockQueries),
          carve.Take<float>(kTileKeys * HWY_MAX(s.dim, s.value_dim)),
          carve.Take<uint16_t>(s.dim * kChunk * terms),
          TakeChunkRows(p, true, carve)};
}

struct TileBackwardOperands {
  Split split;
  const TileEngine* engine = nullptr;
  PackedRows keys, values;
  PackedColumns key_columns;
  float* d_query;  // [groups][batch, query_heads, query_len, dim]
  bool* touched;   // [groups][batch, query_heads, blocks]
  ModSums<float> sums;
};

/// The loop of one unit of work.
class TileBackward {
 public:
  TileBackward(const Problem<float>& p, const BackwardProblem<float>& g, const TileBackwardOperands& in,
               const TileBackwardShape& shape, const TileBackwardScratch& scratch)
      : p_(p),
        g_(g),
        in_(in),
        s_(shape),
        scratch_(scratch),
        exponents_(ExponentsOf(p, in.split)),
        dropout_(p) {}

  HWY_NOINLINE void Run(int64_t unit) {
    const int64_t group = unit % s_.groups, kv = unit / s_.groups % p_.kv_heads,
                  b = unit / s_.groups / p_.kv_heads;
    begin_ = group * s_.group_keys;
    const int64_t end = HWY_MAX(HWY_MIN(p_.key_len, begin_ + s_.group_keys), begin_), keys = end - begin_;
    Fill(0.0f, RoundUp(keys, kChunk) * s_.dim, scratch_.d_key);
    Fill(0.0f, RoundUp(keys, kChunk) * s_.value_dim, scratch_.d_value);
    const int64_t heads = p_.query_heads / p_.kv_heads,
                  blocks = (p_.query_len + kBlockQueries - 1) / kBlockQueries;
    for (int64_t h = kv * heads; h < (kv + 1) * heads; ++h) {
      const int64_t head = (group * p_.batch + b) * p_.query_heads + h;
      for (int64_t n = 0; n < blocks; ++n) {
        const int64_t row = n * kBlockQueries;
        const BlockAt<float> at{b, h, kv, row, HWY_MIN(kBlockQueries, p_.query_len - row)};
        in_.touched[head * blocks + n] = Block(at, end, in_.d_query + (head * p_.query_len + row) * s_.dim);
      }
    }
    for (int64_t j = 0; j < keys; ++j) {
      if (g_.d_key.data) Copy(scratch_.d_key + j * s_.dim, p_.score_dim, RowAt(g_.d_key, b, kv, begin_ + j));
      if (g_.d_value.data)
        Copy(scratch_.d_value + j * s_.value_dim, p_.value_dim, RowAt(g_.d_value, b, kv, begin_ + j));
    }
  }

 private:
  HWY_NOINLINE bool Block(const BlockAt<float>& at, int64_t end, float* d_query) {
    const BlockSchedule& schedule = ScheduleOf(p_, at, begin_, end, kTileKeys);
    if (schedule.piece_count() == 0) return false;
    PackBlock(at);
    Fill(0.0f, s_.dim * kBlockQueries, scratch_.d_query);
    const Piece* pieces = schedule.pieces();
    {
      const EngineUse use(*in_.engine);
      for (int64_t n = 0; n < schedule.piece_count(); ++n) RunPiece(schedule, pieces[n], at);
    }
    if (!g_.d_query.data) return true;
    TransposeBlocks(reinterpret_cast<const uint32_t*>(scratch_.d_query), s_.dim, kBlockQueries, kBlockQueries,
                    reinterpret_cast<uint32_t*>(scratch_.spare), s_.dim);
    Copy(scratch_.spare, at.rows * s_.dim, d_query);
    return true;
  }

  HWY_INLINE Terms<uint16_t> QueryRows() const { return {scratch_.query_rows, kBlockQueries * s_.depth}; }
  HWY_INLINE Terms<uint16_t> OutputRows() const {
    return {scratch_.d_output_rows, kBlockQueries * s_.value_depth};
  }

  /// Packs queries and output gradients, by pairs of dims and by pairs of queries. A row that sees nothing is
  /// replaced by 0, whatever it holds, and its weights are 0.
  HWY_NOINLINE void PackBlock(const BlockAt<float>& at) {
    const Terms<uint16_t> queries = QueryRows(), d_outputs = OutputRows();
    PackRows(p_.query, at.b, at.h, at.row, at.rows, kBlockQueries, p_.score_dim, s_.depth, in_.split.terms,
             queries);
    PackRows(g_.d_output, at.b, at.h, at.row, at.rows, kBlockQueries, p_.value_dim, s_.value_depth,
             in_.split.terms, d_outputs);
    const float* log_sum_exp = g_.log_sum_exp + (at.b * p_.query_heads + at.h) * p_.query_len + at.row;
    for (int64_t r = 0; r < kBlockQueries; ++r) {
      const bool seen = r < at.rows && log_sum_exp[r] != kHidden<float>;
      rows_.shift[r] = seen ? Plain(log_sum_exp[r] / exponents_.unit) : -kHidden<float>;
      rows_.share[r] = seen ? ShareOf(log_sum_exp[r], sink_of(p_, at.h)) : 1.0f;
      rows_.mean[r] = seen ? Plain(Dot(RowAt(g_.d_output, at.b, at.h, at.row + r),
                                       RowAt(g_.output, at.b, at.h, at.row + r), p_.value_dim))
                           : 0.0f;
      if (seen || r >= at.rows) continue;
      for (int term = 0; term < in_.split.terms; ++term) {
        ZeroHalves(s_.depth, queries.of(term) + r * s_.depth);
        ZeroHalves(s_.value_depth, d_outputs.of(term) + r * s_.value_depth);
      }
    }
    for (int term = 0; term < in_.split.terms; ++term) {
      Spread(queries.of(term), s_.depth, scratch_.query_columns + term * kBlockQueries / 2 * s_.depth,
             scratch_.query_pairs + term * kBlockQueries / 2 * s_.depth);
      Spread(d_outputs.of(term), s_.value_depth,
             scratch_.d_output_columns + term * kBlockQueries / 2 * s_.value_depth,
             scratch_.d_output_pairs + term * kBlockQueries / 2 * s_.value_depth);
    }
  }
  static HWY_INLINE void Spread(const uint16_t* rows, int64_t depth, uint32_t* columns, uint32_t* pairs) {
    TransposeBlocks(reinterpret_cast<const uint32_t*>(rows), kBlockQueries, depth / 2, depth / 2, columns,
                    kBlockQueries);
    ZipRows(rows, kBlockQueries, depth, depth, pairs, depth);
  }

  HWY_NOINLINE void RunPiece(const BlockSchedule& schedule, const Piece& piece, const BlockAt<float>& at) {
    const int64_t first = piece.begin / kChunk * kChunk, last = RoundUp(piece.end, kChunk),
                  keys = last - first;
    const bool partial = !piece.full || piece.begin != first || piece.end != last;
    alignas(64) uint64_t hidden[kTileKeys + 1];
    if (partial) HiddenBits(schedule, piece, at.rows, first, keys, hidden);
    bool apart = false;  // as in TileForward, the mask alone decides
    for (int64_t key = first; key < last; key += kChunk) {
      uint64_t any = 0;
      for (int64_t j = 0; partial && j < kChunk; ++j) any |= hidden[key - first + j];
      Chunk(at, key, key - first, any ? hidden + (key - first) : nullptr);
      apart = apart || (any && HidesFromAll(hidden + (key - first), at.rows));
    }
    const Terms<const uint16_t> weights{scratch_.weights, kTileKeys * kBlockQueries},
        d_scores{scratch_.d_scores, kTileKeys * kBlockQueries};
    const Terms<const uint32_t> queries{scratch_.query_pairs, kBlockQueries / 2 * s_.depth},
        d_outputs{scratch_.d_output_pairs, kBlockQueries / 2 * s_.value_depth},
        pairs{scratch_.d_score_pairs, kTileKeys / 2 * kBlockQueries};
    if (g_.d_value.data)
      AddTileProduct(*in_.engine, in_.split, keys, s_.value_dim, weights, d_outputs,
                     {kBlockQueries, s_.value_depth, kBlockQueries,
                      scratch_.d_value + (first - begin_) * s_.value_dim, s_.value_dim},
                     scratch_.spare);
    if (g_.d_key.data)
      AddTileProduct(
          *in_.engine, in_.split, keys, s_.dim, d_scores, queries,
          {kBlockQueries, s_.depth, kBlockQueries, scratch_.d_key + (first - begin_) * s_.dim, s_.dim},
          scratch_.spare);
    if (!g_.d_query.data) return;
    if (!apart)
      return AddTileProduct(
          *in_.engine, in_.split, s_.dim, kBlockQueries, in_.key_columns.At(at.b, at.kv, first), pairs,
          {in_.key_columns.stride, kBlockQueries, keys, scratch_.d_query, kBlockQueries}, scratch_.spare);
    for (int64_t key = first; key < last; key += kChunk)
      AddTileProduct(
          *in_.engine, in_.split, s_.dim, kBlockQueries,
          CleanColumns(in_.key_columns, in_.split, at, key, hidden + (key - first), scratch_.clean),
          Terms<const uint32_t>{pairs.data + (key - first) / 2 * kBlockQueries, pairs.term_stride},
          {kChunk, kBlockQueries, kChunk, scratch_.d_query, kBlockQueries}, scratch_.spare);
  }

  HWY_INLINE void Chunk(const BlockAt<float>& at, int64_t key, int64_t offset, const uint64_t* hidden) {
    const Terms<const uint32_t> queries{scratch_.query_columns, kBlockQueries / 2 * s_.depth},
        d_outputs{scratch_.d_output_columns, kBlockQueries / 2 * s_.value_depth};
    TileProduct(*in_.engine, in_.split, kChunk, kBlockQueries, in_.keys.At(at.b, at.kv, key), queries,
                {in_.keys.stride, kBlockQueries, s_.depth, scratch_.scores, kBlockQueries});
    TileProduct(*in_.engine, in_.split, kChunk, kBlockQueries, in_.values.At(at.b, at.kv, key), d_outputs,
                {in_.values.stride, kBlockQueries, s_.value_depth, scratch_.d_weights, kBlockQueries});
    if (p_.has_mods) ModChunk(p_, at, {0, kBlockQueries}, key, scratch_.rows, scratch_.scores);
    if (hidden) HideScores(hidden, scratch_.scores);
    if (dropout_.Drops()) dropout_.Decide(p_, at, key);
    const int64_t size = kTileKeys * kBlockQueries;
    const ChunkGradients to{{scratch_.weights + offset * kBlockQueries, size},
                            {scratch_.d_scores + offset * kBlockQueries, size},
                            {scratch_.d_score_pairs + offset / 2 * kBlockQueries, size / 2}};
    switch (in_.split.terms) {
      case 1:
        return Gradients<1>(at, key, to);
      case 2:
        return Gradients<2>(at, key, to);
      default:
        return Gradients<3>(at, key, to);
    }
  }

  template <int kTerms>
  HWY_INLINE void Gradients(const BlockAt<float>& at, int64_t key, const ChunkGradients& to) {
    const auto compute = [&]<bool kApart>() HWY_ATTR {
      dropout_.Drops()
          ? GradientsOfChunk<kTerms, true, kApart>(scratch_.scores, scratch_.d_weights, rows_,
                                                   exponents_.factor, GradientScale(p_), dropout_, to)
          : GradientsOfChunk<kTerms, false, kApart>(scratch_.scores, scratch_.d_weights, rows_,
                                                    exponents_.factor, GradientScale(p_), dropout_, to);
    };
    if (!p_.has_mods) return compute.template operator()<false>();
    compute.template operator()<true>();
    const Columns all{0, kBlockQueries};
    RowsOfChunk(scratch_.d_weights, all, scratch_.rows.rows);
    mods_gradient<float>(p_, PlaceOfChunk(p_, at, all, key, begin_ / s_.group_keys), scratch_.rows.rows,
                         kChunk, scratch_.rows.mods, in_.sums);
    ChunkOfRows(scratch_.rows.rows, all, scratch_.d_weights);
    TermsOfChunk<kTerms>(scratch_.d_weights, to);
  }

  const Problem<float>& p_;
  const BackwardProblem<float>& g_;
  const TileBackwardOperands& in_;
  const TileBackwardShape& s_;
  const TileBackwardScratch& scratch_;
  Exponents exponents_;
  ChunkDropout dropout_;
  int64_t begin_ = 0;
  TileRows rows_;
};

HWY_NOINLINE TileBackwardOperands TakeTileBackwardOperands(const Problem<float>& p,
                                                           const TileBackwardShape& s, int threads,
                                                           Carve& carve, Executor* executor) {
  TileBackwardOperands in;
  in.split = SplitOf(p);
  in.keys = PackKeyRows(p, in.split, p.key, p.score_dim, carve, executor);
  in.values = PackKeyRows(p, in.split, p.value, p.value_dim, carve, executor);
  in.key_columns = PackKeyColumns(p, in.split, p.key, p.score_dim, kTileKeys, threads, carve, executor);
  // A call with a smaller batch may have more groups.
  const int64_t tiles = (p.key_len + kTileKeys - 1) / kTileKeys, heads = p.query_heads / p.kv_heads,
                units = executor ? p.batch * p.kv_heads * s.groups : MostUnits(p, tiles);
  in.d_query = carve.Take<float>(units * heads * p.query_len * s.dim);
  in.touched = carve.Take<bool>(units * heads * ((p.query_len + kBlockQueries - 1) / kBlockQueries));
  if (executor)
    in.sums = TakeModSums(p, p.mods, s.groups, carve);
  else
    carve.Take<float>(most_mod_sum_elements(p, p.mods, units));
  return in;
}

HWY_NOINLINE size_t TilesBackwardBytes(const Problem<float>& p, int threads) {
  Carve carve(nullptr);
  TileBackwardShape s = TileBackwardShapeOf(p);
  if (p.has_mods) s.group_keys = MostGroupKeys(p, s.groups, kTileKeys);
  TakeTileBackwardOperands(p, s, threads, carve, nullptr);
  for (int t = 0; t < threads; ++t) TakeTileBackwardScratch(p, s, SplitOf(p), carve);
  return carve.Used();
}

HWY_NOINLINE void TilesBackward(const Problem<float>& p, const BackwardProblem<float>& g,
                                const TileEngine& engine, Executor& executor, std::byte* memory) {
  Carve carve(memory), one(nullptr);
  const TileBackwardShape s = TileBackwardShapeOf(p);
  TileBackwardOperands in = TakeTileBackwardOperands(p, s, executor.thread_count(), carve, &executor);
  in.engine = &engine;
  if (p.has_mods) begin_mod_gradients<float>(p, p.mods, in.sums, s.groups, executor);
  std::byte* scratch = memory + carve.Used();
  TakeTileBackwardScratch(p, s, in.split, one);
  ForUnits(p, s.groups, executor, [&](int64_t unit, int worker) {
    Carve mine(scratch + static_cast<size_t>(worker) * one.Used());
    const TileBackwardScratch buffers = TakeTileBackwardScratch(p, s, in.split, mine);
    TileBackward walk(p, g, in, s, buffers);
    walk.Run(unit);
  });
  if (g.d_query.data) AddPartials(p, g, s.groups, s.dim, in.d_query, in.touched, kBlockQueries, executor);
  if (p.has_mods) finish_mod_gradients<float>(p, p.mods, in.sums, s.groups, executor);
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif
