// The algorithms `direct` and `additive`: one row of scores at a time, straight from the operands. They
// compute additive scores, and `direct` also, for few queries with other scores, the weights and the
// gradients. `additive` has an exponential a row (flash/additive-inl.h) where `direct` has a tanh a pair.
//
// Nothing is packed: with one query, packing would double the traffic, and an additive score costs an
// exponential or a tanh for each element, beside which packing gains nothing. There is no [query_len,
// key_len, hidden] buffer: backward computes each tanh again. In forward a block of 16 rows runs over the
// keys piece by piece; the scores of one piece for all these rows stay in the cache.
#if defined(FOVEA_FLASH_DIRECT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_FLASH_DIRECT_INL_H_
#undef FOVEA_FLASH_DIRECT_INL_H_
#else
#define FOVEA_FLASH_DIRECT_INL_H_
#endif

#include "kernels/flash/additive-inl.h"
#include "kernels/flash/tiled_backward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

constexpr int64_t kDirectRows = direct_queries;

/// Returns Σ v_d tanh(q_d + k_d).
template <class T>
HWY_INLINE T AdditiveScore(const T* HWY_RESTRICT q, const T* HWY_RESTRICT k, const T* HWY_RESTRICT v,
                           int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    sum = hn::MulAdd(hn::LoadU(d, v + i), Tanh(d, hn::Add(hn::LoadU(d, q + i), hn::LoadU(d, k + i))), sum);
  }
  T result = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < n; ++i) result += v[i] * static_cast<T>(std::tanh(q[i] + k[i]));
  return result;
}

/// With u = ds·v∘(1 - t²): dq += u, dk += u, dv += ds·t.
template <class T>
HWY_INLINE void AdditiveGradient(const T* HWY_RESTRICT q, const T* HWY_RESTRICT k, const T* HWY_RESTRICT v,
                                 T ds, int64_t n, T* HWY_RESTRICT dq, T* HWY_RESTRICT dk,
                                 T* HWY_RESTRICT dv) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, ds), one = hn::Set(d, T(1));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto t = Tanh(d, hn::Add(hn::LoadU(d, q + i), hn::LoadU(d, k + i)));
    const auto u = hn::Mul(hn::Mul(factor, hn::LoadU(d, v + i)), hn::NegMulAdd(t, t, one));
    hn::StoreU(hn::Add(hn::LoadU(d, dq + i), u), d, dq + i);
    hn::StoreU(hn::Add(hn::LoadU(d, dk + i), u), d, dk + i);
    hn::StoreU(hn::MulAdd(factor, t, hn::LoadU(d, dv + i)), d, dv + i);
  }
  for (; i < n; ++i) {
    const T t = static_cast<T>(std::tanh(q[i] + k[i])), u = ds * v[i] * (1 - t * t);
    dq[i] += u;
    dk[i] += u;
    dv[i] += ds * t;
  }
}

/// Returns Σ v_d tanh(q_d + k_d + w_d·seen). `seen` is the coverage of the key: the sum of the weights that
/// earlier queries gave it.
template <class T>
HWY_INLINE T CoverageScore(const T* HWY_RESTRICT q, const T* HWY_RESTRICT k, const T* HWY_RESTRICT v,
                           const T* HWY_RESTRICT w, T seen, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, seen);
  auto sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto inner =
        hn::MulAdd(factor, hn::LoadU(d, w + i), hn::Add(hn::LoadU(d, q + i), hn::LoadU(d, k + i)));
    sum = hn::MulAdd(hn::LoadU(d, v + i), Tanh(d, inner), sum);
  }
  T result = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < n; ++i) result += v[i] * static_cast<T>(std::tanh(q[i] + k[i] + w[i] * seen));
  return result;
}

/// The scores of the keys that row r sees; the others become -inf and are not read. The schedule counts its
/// rows from `schedule_row` rows before `at`. `seen` is the coverage of each key, else null. `fast` is the
/// fast path of an additive score.
template <class T>
HWY_INLINE void DirectScores(const Problem<T>& p, const BlockAt<T>& at, int64_t r,
                             const BlockSchedule& schedule, const Piece& piece, T* scores,
                             const ModBuffers<T>& mods, const T* seen = nullptr, int64_t schedule_row = 0,
                             const AdditiveQuery<T>& fast = {}) {
  const T* q = RowAt(p.query, at.b, at.h, at.row + r);
  const int64_t padded = Padded<T>(p.score_dim);
  const auto range = [&](int64_t begin, int64_t end) {
    if (fast.row && AllSmall(*fast.keys, fast.head_row, begin, end)) {
      AdditiveScores<1>(fast.row, fast.keys->rows + (fast.head_row + begin) * padded, padded,
                        fast.keys->vector, fast.keys->sum, end - begin, scores + (begin - piece.begin),
                        int64_t{0});
      return ScaleEarly(p, end - begin, scores + (begin - piece.begin));
    }
    for (int64_t j = begin; j < end; ++j) {
      const T* k = RowAt(p.key, at.b, at.kv, j);
      scores[j - piece.begin] =
          p.score == ScoreKind::dot ? Dot(q, k, p.score_dim)
          : seen ? CoverageScore(q, k, p.additive_vector, p.coverage_vector, seen[j], p.score_dim)
                 : AdditiveScore(q, k, p.additive_vector, p.score_dim);
    }
    ScaleEarly(p, end - begin, scores + (begin - piece.begin));
  };
  const int64_t n = piece.end - piece.begin;
  if (!piece.full) Fill(p.has_mods ? T{0} : kHidden<T>, n, scores);
  piece.full ? range(piece.begin, piece.end) : ForRuns(piece, schedule.row(schedule_row + r), range);
  if (!p.has_mods) return;
  apply_mods<T>(p, {at.b, at.h, at.row + r, 1, piece.begin, n}, scores, n, mods);
  if (!piece.full) HideOutside(schedule.row(schedule_row + r), piece.begin, piece.end, scores);
}

/// The scratch buffers of one thread. Forward has a row of scores and of gathered values for each query of a
/// block, backward one of each. d_scores, keep (factors of dropout), d_key and d_vector are one row.
template <class T>
struct DirectScratch {
  T *scores, *d_scores, *gathered, *keep, *d_key, *d_vector;
  T* additive_queries;  ///< E (flash/additive-inl.h) of the block's queries, Padded<T>(score_dim) apart
  RowState<T>* states;
  ModBuffers<T> mods;
};

template <class T>
HWY_NOINLINE DirectScratch<T> TakeDirectScratch(const Problem<T>& p, bool backward, Carve& carve) {
  const int64_t stride = TileStride<T>(p.key_len),
                rows = backward ? 1 : HWY_MIN(kDirectRows, HWY_MAX(p.query_len, 1)),
                padded = Padded<T>(p.score_dim);
  return {carve.Take<T>(rows * stride),
          carve.Take<T>(stride),
          carve.Take<T>(rows * p.value_dim),
          carve.Take<T>(stride),
          carve.Take<T>(padded),
          carve.Take<T>(padded),
          carve.Take<T>(p.score == ScoreKind::additive ? rows * padded : 0),
          carve.Take<RowState<T>>(rows),
          TakeModBuffers(p.mods, 1, backward, carve)};
}

/// Computes E of row r into slot `slot` of the scratch buffer.
template <class T>
HWY_INLINE AdditiveQuery<T> AdditiveQueryOf(const Problem<T>& p, const AdditiveKeys<T>& keys,
                                            const BlockAt<T>& at, int64_t r, int64_t slot,
                                            const DirectScratch<T>& scratch) {
  if (!keys.rows) return {};
  T* row = scratch.additive_queries + slot * Padded<T>(p.score_dim);
  const bool small = AdditiveRow(RowAt(p.query, at.b, at.h, at.row + r), p.score_dim, row);
  return {&keys, small ? row : nullptr, (at.b * p.kv_heads + at.kv) * p.key_len};
}

/// The scores of all rows of a block for one piece, row r at r · stride. Four rows share each key where every
/// row has an E.
template <class T>
HWY_INLINE void DirectPieceScores(const Problem<T>& p, const BlockAt<T>& at, const BlockSchedule& schedule,
                                  const Piece& piece, const AdditiveQuery<T>* fast, int64_t stride,
                                  const DirectScratch<T>& scratch) {
  const int64_t n = piece.end - piece.begin, padded = Padded<T>(p.score_dim);
  bool together = piece.full && !p.has_mods && fast[0].keys &&
                  AllSmall(*fast[0].keys, fast[0].head_row, piece.begin, piece.end);
  for (int64_t r = 0; r < at.rows && together; ++r) together = fast[r].row != nullptr;
  if (!together) {
    for (int64_t r = 0; r < at.rows; ++r)
      DirectScores(p, at, r, schedule, piece, scratch.scores + r * stride, scratch.mods,
                   static_cast<const T*>(nullptr), int64_t{0}, fast[r]);
    return;
  }
  const AdditiveKeys<T>& keys = *fast[0].keys;
  ForRowGroups<4>(at.rows, [&]<int kRows>(int64_t r) {
    AdditiveScores<kRows>(scratch.additive_queries + r * padded,
                          keys.rows + (fast[0].head_row + piece.begin) * padded, padded, keys.vector,
                          keys.sum, n, scratch.scores + r * stride, stride);
  });
  for (int64_t r = 0; r < at.rows; ++r) ScaleEarly(p, n, scratch.scores + r * stride);
}

template <class T>
HWY_NOINLINE void DirectForwardBlock(const Problem<T>& p, const ForwardOutputs<T>& out, const BlockAt<T>& at,
                                     const AdditiveKeys<T>& keys, const DirectScratch<T>& scratch) {
  const BlockSchedule& schedule = ScheduleOf(p, at, 0, p.key_len);
  const int64_t stride = TileStride<T>(p.key_len);
  const T scale = ScaleOf(p);
  AdditiveQuery<T> fast[kDirectRows];
  for (int64_t r = 0; r < at.rows; ++r) {
    fast[r] = AdditiveQueryOf(p, keys, at, r, r, scratch);
    scratch.states[r] = RowState<T>();
    Fill(T{0}, p.value_dim, scratch.gathered + r * p.value_dim);
  }
  for (int64_t n = 0; n < schedule.piece_count(); ++n) {
    const Piece& piece = schedule.pieces()[n];
    const int64_t count = piece.end - piece.begin;
    DirectPieceScores(p, at, schedule, piece, fast, stride, scratch);
    for (int64_t r = 0; r < at.rows; ++r) {
      T *scores = scratch.scores + r * stride, *gathered = scratch.gathered + r * p.value_dim;
      const T factor = Normalize(p, scale, count, scores, scratch.states[r]);
      if (!out.output.data) continue;  // only the weights are wanted
      if (factor != T{1}) Scale(factor, p.value_dim, gathered);
      if (p.dropout_rate > 0) {
        KeepFactors(p, SiteOf(p, at.b, at.h, at.row + r, piece.begin), count, scratch.keep);
        MultiplyInto(scratch.keep, count, scores);
      }
      for (int64_t j = 0; j < count; ++j) {
        if (scores[j] != T{0})
          AddScaled(scores[j], RowAt(p.value, at.b, at.kv, piece.begin + j), p.value_dim, gathered);
      }
    }
  }
  for (int64_t r = 0; r < at.rows; ++r) {
    T* gathered = scratch.gathered + r * p.value_dim;
    Finish(scratch.states[r], sink_of(p, at.h), p.value_dim, gathered,
           out.output.data ? RowAt(out.output, at.b, at.h, at.row + r) : gathered);
    if (out.log_sum_exp)
      out.log_sum_exp[(at.b * p.query_heads + at.h) * p.query_len + at.row + r] =
          LogSumExp(scratch.states[r]);
    if (!out.weights.data) continue;
    for (int64_t slot = weight_slot(out.weight_heads, at.h, 0); slot >= 0;
         slot = weight_slot(out.weight_heads, at.h, slot + 1)) {
      T* to = RowAt(out.weights, at.b, slot, at.row + r);
      Fill(T{0}, p.key_len, to);
      for (int64_t n = 0; n < schedule.piece_count(); ++n) {
        const Piece& piece = schedule.pieces()[n];
        DirectScores(p, at, r, schedule, piece, scratch.scores, scratch.mods, static_cast<const T*>(nullptr),
                     int64_t{0}, fast[r]);
        FinalWeights(p, scale, scratch.states[r], sink_of(p, at.h), piece.end - piece.begin, scratch.scores);
        Copy(scratch.scores, piece.end - piece.begin, to + piece.begin);
      }
    }
  }
}

template <AdditivePath kPath, class T>
HWY_NOINLINE size_t DirectForwardBytes(const Problem<T>& p, int threads) {
  Carve carve(nullptr);
  TakeAdditiveKeys(p, kPath, carve);
  for (int t = 0; t < threads; ++t) TakeDirectScratch(p, false, carve);
  return carve.Used();
}

template <AdditivePath kPath, class T>
HWY_NOINLINE void DirectForward(const Problem<T>& p, const ForwardOutputs<T>& out, Executor& executor,
                                std::byte* memory) {
  Carve carve(memory), one(nullptr);
  AdditiveKeys<T> keys = TakeAdditiveKeys(p, kPath, carve);
  FillAdditiveKeys(p, executor, keys);
  std::byte* scratch = memory + carve.Used();
  TakeDirectScratch(p, false, one);
  const int64_t blocks = (p.query_len + kDirectRows - 1) / kDirectRows;
  executor.parallel_for(p.batch * p.query_heads * blocks, [&](int64_t unit, int worker) {
    Carve mine(scratch + static_cast<size_t>(worker) * one.Used());
    DirectForwardBlock(p, out, BlockOf(p, unit, kDirectRows), keys, TakeDirectScratch(p, false, mine));
  });
}

/// The gradient of one row and one piece: adds to dq, to the outputs' dK and dV, and to dv.
template <class T>
HWY_INLINE void DirectGradientRow(const Problem<T>& p, const BackwardProblem<T>& g, const BlockAt<T>& at,
                                  int64_t r, const Piece& piece, T mean, const T* keep, T* d_query,
                                  int64_t group, const ModSums<T>& sums, const AdditiveQuery<T>& fast,
                                  const DirectScratch<T>& scratch) {
  const T scale = GradientScale(p);
  const int64_t padded = Padded<T>(p.score_dim);
  const T *q = RowAt(p.query, at.b, at.h, at.row + r), *d_output = RowAt(g.d_output, at.b, at.h, at.row + r);
  const bool sigmoid = p.normalizer == NormalizerKind::sigmoid;
  for (int64_t j = piece.begin; j < piece.end; ++j) {
    const T weight = scratch.scores[j - piece.begin];
    scratch.d_scores[j - piece.begin] = 0;
    if (weight == T{0}) continue;  // hidden, or no gradient to pass on
    const T kept = keep ? keep[j - piece.begin] : T{1};
    if (g.d_value.data) AddScaled(weight * kept, d_output, p.value_dim, RowAt(g.d_value, at.b, at.kv, j));
    scratch.d_scores[j - piece.begin] =
        weight * scale *
        (sigmoid ? (T{1} - weight) * kept * Dot(d_output, RowAt(p.value, at.b, at.kv, j), p.value_dim)
                 : kept * Dot(d_output, RowAt(p.value, at.b, at.kv, j), p.value_dim) - mean);
  }
  if (p.has_mods) {
    const int64_t n = piece.end - piece.begin;
    mods_gradient<T>(p, {at.b, at.h, at.row + r, 1, piece.begin, n, group}, scratch.d_scores, n, scratch.mods,
                     sums);
  }
  for (int64_t j = piece.begin; j < piece.end; ++j) {
    if (scratch.scores[j - piece.begin] == T{0}) continue;
    const T ds = scratch.d_scores[j - piece.begin];
    const T* k = RowAt(p.key, at.b, at.kv, j);
    T* d_key = g.d_key.data ? RowAt(g.d_key, at.b, at.kv, j) : scratch.d_key;
    if (p.score == ScoreKind::dot) {
      AddScaled(ds, k, p.score_dim, d_query);
      AddScaled(ds, q, p.score_dim, d_key);
    } else if (fast.row && fast.keys->small[fast.head_row + j]) {
      AdditivePairGradient(fast.row, fast.keys->rows + (fast.head_row + j) * padded, fast.keys->vector, ds,
                           p.score_dim, d_query, d_key, scratch.d_vector);
    } else {
      AdditiveGradient(q, k, p.additive_vector, ds, p.score_dim, d_query, d_key, scratch.d_vector);
    }
  }
}

template <class T>
HWY_NOINLINE void DirectBackwardUnit(const Problem<T>& p, const BackwardProblem<T>& g,
                                     const BackwardShape<T>& s, int64_t unit, T* partials,
                                     const ModSums<T>& sums, const AdditiveKeys<T>& keys,
                                     const DirectScratch<T>& scratch) {
  const int64_t group = unit % s.groups, kv = unit / s.groups % p.kv_heads, b = unit / s.groups / p.kv_heads;
  const int64_t key_begin = group * s.group_keys, key_end = HWY_MIN(p.key_len, key_begin + s.group_keys);
  const int64_t heads = p.query_heads / p.kv_heads;
  for (int64_t j = key_begin; j < key_end; ++j) {
    if (g.d_key.data) Fill(T{0}, p.score_dim, RowAt(g.d_key, b, kv, j));
    if (g.d_value.data) Fill(T{0}, p.value_dim, RowAt(g.d_value, b, kv, j));
  }
  Fill(T{0}, p.score_dim, scratch.d_key);
  for (int64_t h = kv * heads; h < (kv + 1) * heads; ++h) {
    for (int64_t row = 0; row < p.query_len; row += kDirectRows) {
      const BlockAt<T> at{b, h, kv, row, HWY_MIN(kDirectRows, p.query_len - row)};
      const BlockSchedule& schedule = ScheduleOf(p, at, key_begin, HWY_MAX(key_end, key_begin));
      for (int64_t r = 0; r < at.rows; ++r) {
        const int64_t index = (b * p.query_heads + h) * p.query_len + row + r;
        T* d_query = partials + (group * p.batch * p.query_heads * p.query_len + index) * p.score_dim;
        Fill(T{0}, p.score_dim, d_query);
        if (g.log_sum_exp[index] == kHidden<T>) continue;
        const T mean = Dot(RowAt(g.d_output, b, h, row + r), RowAt(g.output, b, h, row + r), p.value_dim);
        const AdditiveQuery<T> fast = AdditiveQueryOf(p, keys, at, r, int64_t{0}, scratch);
        for (int64_t n = 0; n < schedule.piece_count(); ++n) {
          const Piece& piece = schedule.pieces()[n];
          const int64_t count = piece.end - piece.begin;
          DirectScores(p, at, r, schedule, piece, scratch.scores, scratch.mods,
                       static_cast<const T*>(nullptr), int64_t{0}, fast);
          SavedWeights(p, ScaleOf(p), g.log_sum_exp[index], sink_of(p, h), count, scratch.scores);
          if (p.dropout_rate > 0) {
            KeepFactors(p, SiteOf(p, b, h, row + r, piece.begin), count, scratch.keep);
          }
          DirectGradientRow(p, g, at, r, piece, mean, p.dropout_rate > 0 ? scratch.keep : nullptr, d_query,
                            group, sums, fast, scratch);
        }
      }
    }
  }
}

template <AdditivePath kPath, class T>
HWY_NOINLINE size_t DirectBackwardBytes(const Problem<T>& p, int threads) {
  Carve carve(nullptr);
  const BackwardShape<T> s = BackwardShapeOf(p);
  const int64_t units = MostUnits(p, s.tiles);
  carve.Take<T>(PartialsSize(p, units, p.score_dim));
  carve.Take<T>(units * p.score_dim);
  carve.Take<T>(most_mod_sum_elements(p, p.mods, units));
  TakeAdditiveKeys(p, kPath, carve);
  for (int t = 0; t < threads; ++t) TakeDirectScratch(p, true, carve);
  return carve.Used();
}

template <AdditivePath kPath, class T>
HWY_NOINLINE void DirectBackward(const Problem<T>& p, const BackwardProblem<T>& g, Executor& executor,
                                 std::byte* memory) {
  Carve carve(memory);
  const BackwardShape<T> s = BackwardShapeOf(p);
  const int64_t units = p.batch * p.kv_heads * s.groups;
  T* partials = carve.Take<T>(PartialsSize(p, units, p.score_dim));
  T* vectors = carve.Take<T>(units * p.score_dim);
  const ModSums<T> sums = TakeModSums(p, p.mods, s.groups, carve);
  if (p.has_mods) begin_mod_gradients<T>(p, p.mods, sums, s.groups, executor);
  AdditiveKeys<T> keys = TakeAdditiveKeys(p, kPath, carve);
  FillAdditiveKeys(p, executor, keys);
  std::byte* scratch = memory + carve.Used();
  Carve one(nullptr);
  TakeDirectScratch(p, true, one);
  ForUnits(p, s.groups, executor, [&](int64_t unit, int worker) {
    Carve mine(scratch + static_cast<size_t>(worker) * one.Used());
    DirectScratch<T> own = TakeDirectScratch(p, true, mine);
    own.d_vector = vectors + unit * p.score_dim;
    Fill(T{0}, p.score_dim, own.d_vector);
    DirectBackwardUnit(p, g, s, unit, partials, sums, keys, own);
  });
  if (g.d_query.data) AddPartials(p, g, s.groups, p.score_dim, partials, nullptr, 1, executor);
  if (p.has_mods) finish_mod_gradients<T>(p, p.mods, sums, s.groups, executor);
  if (!g.d_additive_vector) return;
  Fill(T{0}, p.score_dim, g.d_additive_vector);
  for (int64_t unit = 0; unit < units; ++unit)
    AddScaled(T{1}, vectors + unit * p.score_dim, p.score_dim, g.d_additive_vector);
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif
