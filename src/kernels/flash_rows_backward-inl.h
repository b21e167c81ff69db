// Backward of whole-row problems: unit (batch, kv head, group of queries). A row's scores are made again,
// then all that its gradient needs is at hand, D too; five products (six with mods). dK and dV in one partial
// a group, added up in group order.
#if defined(FOVEA_FLASH_ROWS_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_FLASH_ROWS_BACKWARD_INL_H_
#undef FOVEA_FLASH_ROWS_BACKWARD_INL_H_
#else
#define FOVEA_FLASH_ROWS_BACKWARD_INL_H_
#endif

#include "kernels/flash_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

template <class T>
struct RowsShape {
  int64_t blocks, block_rows, groups, group_blocks, dim, value_dim;  // dims padded where tiled
};

template <bool kTiled, class T>
HWY_INLINE RowsShape<T> RowsShapeOf(const Problem<T>& p) {
  const int64_t rows = kTiled ? kBlockRows : kDirectRows, blocks = Most((p.query_len + rows - 1) / rows, 1);
  const int64_t groups = p.score == ScoreKind::coverage ? 1 : KeyGroups(p, blocks);
  return {blocks,
          rows,
          groups,
          (blocks + groups - 1) / groups,
          kTiled ? Padded<T>(p.score_dim) : p.score_dim,
          kTiled ? Padded<T>(p.value_dim) : p.value_dim};
}

template <class T>
struct RowsOperands {
  Packed<T> keys_transposed, values_transposed;
  Operand<const T*> keys;
  ModSums<T> sums, weight_sums;
  T *d_key, *d_value;                        ///< [units][key_len, dim]
  T *d_vector, *d_coverage, *d_transitions;  ///< [units][score_dim], [units][score_dim], [units][heads, 4]
};

/// What one unit adds to, and which group it is.
template <class T>
struct RowsTarget {
  T *d_key, *d_value, *d_vector, *d_coverage, *d_transitions;
  int64_t group, dim, value_dim;
};

/// With u = ds·v∘(1 - t²), t = tanh(q + k + w·seen): dq += u, dk += u, dv += ds·t, dw += seen·u; returns u·w.
template <class T>
HWY_INLINE T CoverageGradient(const Problem<T>& p, const T* q, const T* k, T seen, T ds, T* d_query, T* d_key,
                              T* d_vector, T* d_coverage) {
  const T *v = p.additive_vector, *w = p.coverage_vector;
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), n = p.score_dim;
  const auto factor = hn::Set(d, ds), much = hn::Set(d, seen), one = hn::Set(d, T(1));
  auto sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto weight = hn::LoadU(d, w + i);
    const auto t = Tanh(d, hn::MulAdd(much, weight, hn::Add(hn::LoadU(d, q + i), hn::LoadU(d, k + i))));
    const auto u = hn::Mul(hn::Mul(factor, hn::LoadU(d, v + i)), hn::NegMulAdd(t, t, one));
    hn::StoreU(hn::Add(hn::LoadU(d, d_query + i), u), d, d_query + i);
    hn::StoreU(hn::Add(hn::LoadU(d, d_key + i), u), d, d_key + i);
    hn::StoreU(hn::MulAdd(factor, t, hn::LoadU(d, d_vector + i)), d, d_vector + i);
    hn::StoreU(hn::MulAdd(much, u, hn::LoadU(d, d_coverage + i)), d, d_coverage + i);
    sum = hn::MulAdd(u, weight, sum);
  }
  T result = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < n; ++i) {
    const T t = static_cast<T>(std::tanh(q[i] + k[i] + w[i] * seen)), u = ds * v[i] * (1 - t * t);
    d_query[i] += u;
    d_key[i] += u;
    d_vector[i] += ds * t;
    d_coverage[i] += seen * u;
    result += u * w[i];
  }
  return result;
}

/// d_scores ← dO·Vᵀ, where the panel sees a key.
template <bool kTiled, class T>
HWY_INLINE void PanelValueGradient(const Problem<T>& p, const BackwardProblem<T>& g,
                                   const RowsOperands<T>& in, const Panel<T>& panel, int64_t n,
                                   const RowsScratch<T>& s) {
  const BlockAt<T>& at = panel.at;
  if (!g.d_output.data) {
    for (int64_t r = 0; r < at.rows; ++r) Fill(T{0}, n, s.d_scores + r * s.stride);
    return;
  }
  ForPieces(*panel.schedule, [&](const Piece& piece, int64_t offset) {
    if constexpr (kTiled) {
      const T* values =
          in.values_transposed.Tile(at.b, at.kv, piece.begin / kTileKeys) + piece.begin % kTileKeys;
      const int64_t width = Padded<T>(p.value_dim);
      Product<false, T>(at.rows, Padded<T>(piece.end - piece.begin),
                        {s.d_output, width, 1, values, in.values_transposed.stride, s.d_scores + offset,
                         s.stride, p.value_dim});
    } else {
      const T* d_output = RowAt(g.d_output, at.b, at.h, at.row);
      for (int64_t j = piece.begin; j < piece.end; ++j) {
        T& to = s.d_scores[offset + j - piece.begin];
        to = s.scores[offset + j - piece.begin] == kHidden<T>
                 ? T{0}
                 : Dot(d_output, RowAt(p.value, at.b, at.kv, j), p.value_dim);
      }
    }
  });
}

/// What reaches the returned weights of row r beside what the values tell: added to `gradient`.
template <class T>
HWY_INLINE void AddWeightGradient(const BackwardProblem<T>& g, const Panel<T>& panel, int64_t r,
                                  const T* later, T* gradient) {
  if (g.d_weights.data) {
    ForSlots(g.weight_heads, g.weight_rows, panel.at.h, panel.at.row + r, [&](int64_t head, int64_t row) {
      const T* from = RowAt(g.d_weights, panel.at.b, head, row);
      ForPieces(*panel.schedule, [&](const Piece& piece, int64_t offset) {
        AddScaled(T{1}, from + piece.begin, piece.end - piece.begin, gradient + offset);
      });
    });
  }
  if (!later) return;
  ForPieces(*panel.schedule, [&](const Piece& piece, int64_t offset) {
    AddScaled(T{1}, later + piece.begin, piece.end - piece.begin, gradient + offset);
  });
}

/// Row r: weights ← what multiplied the values, d_scores ← dS, factors ← derivative by the factors.
template <class T>
HWY_NOINLINE void RowGradients(const Problem<T>& p, const BackwardProblem<T>& g, const Panel<T>& panel,
                               int64_t r, int64_t n, T log_sum_exp, T* d_transitions,
                               const RowsScratch<T>& s) {
  T *weights = s.weights + r * s.stride, *gradient = s.d_scores + r * s.stride;
  const T* scores = s.scores + r * s.stride;
  const int64_t index = (panel.at.b * p.query_heads + panel.at.h) * p.query_len + panel.at.row + r;
  if (g.mean) g.mean[index] = 0;
  if (log_sum_exp == kHidden<T>) {
    Fill(T{0}, n, gradient);
    if (p.has_weight_mods) Fill(T{0}, n, s.factors + r * s.stride);
    return;
  }
  const bool drops = p.dropout_rate > 0;
  if (drops) {
    DropoutRow(p, panel, r, s.keep);
    MultiplyInto(s.keep, n, gradient);
  }
  AddWeightGradient(g, panel, r, s.later, gradient);
  for (int64_t j = 0; j < n; ++j) {
    if (scores[j] == kHidden<T>) gradient[j] = 0;  // it may hold a NaN of a value that this row does not see
  }
  if (p.has_weight_mods) {
    if (!drops) Fill(T{1}, n, s.keep);
    T* factors = s.factors + r * s.stride;
    for (int64_t j = 0; j < n; ++j) {
      const T factor = factors[j];
      factors[j] = weights[j] * gradient[j];
      gradient[j] *= factor;
      s.keep[j] *= factor;
    }
  }
  const WholeRow<T> row = RowOf(p, panel, r, n, s);
  const T mean = NormalizerGradient(
      p, row, {scores, weights, log_sum_exp, g.advantage ? g.advantage[index] : T{0}, d_transitions},
      gradient);
  if (g.mean) g.mean[index] = mean;
  if (drops || p.has_weight_mods) MultiplyInto(s.keep, n, weights);
  const T scale = GradientScale(p);
  if (scale != T{1}) Scale(scale, n, gradient);
}

/// Back through the mods, whose stages are made again a piece at a time.
template <bool kTiled, class T>
HWY_INLINE void PanelModGradients(const Problem<T>& p, const RowsOperands<T>& in, const Panel<T>& panel,
                                  int64_t group, const RowsScratch<T>& s, const T* seen) {
  ForPieces(*panel.schedule, [&](const Piece& piece, int64_t offset) {
    const ModPlace at = PlaceOf(panel, piece, group);
    if (p.has_weight_mods) {
      apply_weight_mods<T>(p, at, s.scores + offset, s.stride, s.weight_mods);
      weight_mods_gradient<T>(p, at, s.factors + offset, s.stride, s.weight_mods, in.weight_sums);
    }
    if (p.has_mods) {
      PieceScores<kTiled>(p, in.keys_transposed, panel, piece, s.scores + offset, s, seen);
      mods_gradient<T>(p, at, s.d_scores + offset, s.stride, s.mods, in.sums);
    }
  });
}

template <class T>
HWY_INLINE void TiledProducts(const BackwardProblem<T>& g, const RowsOperands<T>& in, const Panel<T>& panel,
                              const RowsTarget<T>& to, const RowsScratch<T>& s) {
  const BlockAt<T>& at = panel.at;
  Fill(T{0}, at.rows * to.dim, s.d_query);
  ForPieces(*panel.schedule, [&](const Piece& piece, int64_t offset) {
    const int64_t count = piece.end - piece.begin;
    if (g.d_value.data) {
      Product<true, T>(count, to.value_dim,
                       {s.weights + offset, 1, s.stride, s.d_output, to.value_dim,
                        to.d_value + piece.begin * to.value_dim, to.value_dim, at.rows});
    }
    if (g.d_key.data) {
      Product<true, T>(count, to.dim,
                       {s.d_scores + offset, 1, s.stride, s.query, to.dim, to.d_key + piece.begin * to.dim,
                        to.dim, at.rows});
    }
    if (!g.d_query.data) return;
    ForRuns(piece, panel.schedule->visible(), [&](int64_t begin, int64_t end) {
      Product<true, T>(
          at.rows, to.dim,
          {s.d_scores + offset + (begin - piece.begin), s.stride, 1, RowAt(in.keys, at.b, at.kv, begin),
           in.keys.row_stride, s.d_query, to.dim, end - begin});
    });
  });
}

template <class T>
HWY_INLINE void DirectProducts(const Problem<T>& p, const BackwardProblem<T>& g, const Panel<T>& panel,
                               const RowsTarget<T>& to, const RowsScratch<T>& s, const T* seen) {
  const BlockAt<T>& at = panel.at;
  const T* q = RowAt(p.query, at.b, at.h, at.row);
  Fill(T{0}, p.score_dim, s.d_query);
  ForPieces(*panel.schedule, [&](const Piece& piece, int64_t offset) {
    for (int64_t j = piece.begin; j < piece.end; ++j) {
      const T weight = s.weights[offset + j - piece.begin], ds = s.d_scores[offset + j - piece.begin];
      if (weight != T{0} && g.d_value.data)
        AddScaled(weight, RowAt(g.d_output, at.b, at.h, at.row), p.value_dim, to.d_value + j * to.value_dim);
      if (ds == T{0}) continue;  // hidden, or nothing to give
      const T* k = RowAt(p.key, at.b, at.kv, j);
      T* d_key = to.d_key + j * to.dim;
      if (p.score == ScoreKind::dot) {
        AddScaled(ds, k, p.score_dim, s.d_query);
        AddScaled(ds, q, p.score_dim, d_key);
      } else if (seen) {
        s.later[j] += CoverageGradient(p, q, k, seen[j], ds, s.d_query, d_key, to.d_vector, to.d_coverage);
      } else {
        AdditiveGradient(q, k, p.additive_vector, ds, p.score_dim, s.d_query, d_key, to.d_vector);
      }
    }
  });
}

/// Rows that the loss does not depend on: it is one of some weights alone, and of none of theirs.
template <class T>
HWY_INLINE bool Untouched(const Problem<T>& p, const BackwardProblem<T>& g, const BlockAt<T>& at) {
  if (g.d_output.data || g.advantage || p.score == ScoreKind::coverage) return false;
  bool asked = false;
  for (int64_t r = 0; r < at.rows; ++r)
    ForSlots(g.weight_heads, g.weight_rows, at.h, at.row + r, [&](int64_t, int64_t) { asked = true; });
  return !asked;
}

template <bool kTiled, class T>
HWY_NOINLINE void RowsBackwardPanel(const Problem<T>& p, const BackwardProblem<T>& g,
                                    const RowsOperands<T>& in, const Panel<T>& panel, const T* seen,
                                    const RowsTarget<T>& to, const RowsScratch<T>& s) {
  const BlockAt<T>& at = panel.at;
  if (Untouched(p, g, at)) {
    for (int64_t r = 0; r < at.rows; ++r) {
      if (g.d_query.data) Fill(T{0}, p.score_dim, RowAt(g.d_query, at.b, at.h, at.row + r));
      if (g.mean) g.mean[(at.b * p.query_heads + at.h) * p.query_len + at.row + r] = 0;
    }
    return;
  }
  const int64_t n = PanelScores<kTiled>(p, in.keys_transposed, panel, s, seen);
  T log_sum_exp[kBlockRows];
  for (int64_t r = 0; r < at.rows; ++r) {
    T* weights = s.weights + r * s.stride;
    Copy(s.scores + r * s.stride, n, weights);
    log_sum_exp[r] = SolveRow(p, RowOf(p, panel, r, n, s), weights);
    if constexpr (kTiled) {  // a NaN in a row that sees nothing is nobody's: the products read 0
      T *d_output = s.d_output + r * to.value_dim, *query = s.query + r * to.dim;
      const bool sees = log_sum_exp[r] != kHidden<T>;
      const int64_t outputs = sees && g.d_output.data ? p.value_dim : 0, queries = sees ? p.score_dim : 0;
      if (outputs > 0) Copy(RowAt(g.d_output, at.b, at.h, at.row + r), outputs, d_output);
      Fill(T{0}, to.value_dim - outputs, d_output + outputs);
      Copy(RowAt(p.query, at.b, at.h, at.row + r), queries, query);
      Fill(T{0}, to.dim - queries, query + queries);
    }
  }
  PanelValueGradient<kTiled>(p, g, in, panel, n, s);
  if (p.has_weight_mods) PanelFactors(p, panel, n, s);
  for (int64_t r = 0; r < at.rows; ++r) RowGradients(p, g, panel, r, n, log_sum_exp[r], to.d_transitions, s);
  if (p.has_mods || p.has_weight_mods) PanelModGradients<kTiled>(p, in, panel, to.group, s, seen);
  if constexpr (kTiled)
    TiledProducts(g, in, panel, to, s);
  else
    DirectProducts(p, g, panel, to, s, seen);
  for (int64_t r = 0; g.d_query.data && r < at.rows; ++r)
    Copy(s.d_query + r * to.dim, p.score_dim, RowAt(g.d_query, at.b, at.h, at.row + r));
}

/// Forward once more through rows [row, end) of a head, from what had been seen before them, which stands in
/// the first row of s.seen. `keep`: what each row had seen stays, row after row; else the last alone.
template <class T>
HWY_NOINLINE void CoverageOfRows(const Problem<T>& p, BlockAt<T> at, int64_t end, bool keep,
                                 const RowsScratch<T>& s) {
  T* seen = s.seen;
  for (; at.row < end; at.row += kDirectRows) {
    at.rows = Least(kDirectRows, end - at.row);
    ForPanels<false>(p, at, false, [&](const Panel<T>& panel) {
      T* next = keep ? seen + p.key_len : seen;
      const int64_t n = PanelScores<false>(p, Packed<T>(), panel, s, seen);
      if (p.has_weight_mods) PanelFactors(p, panel, n, s);
      SolveRow(p, RowOf(p, panel, int64_t{0}, n, s), s.scores);
      if (p.has_weight_mods) MultiplyInto(s.factors, n, s.scores);
      if (keep) Copy(seen, p.key_len, next);
      ForPieces(*panel.schedule, [&](const Piece& piece, int64_t offset) {
        AddScaled(T{1}, s.scores + offset, piece.end - piece.begin, next + piece.begin);
      });
      seen = next;
    });
  }
}

/// One head with coverage: forward for the checkpoints, then segment by segment back.
template <class T>
HWY_NOINLINE void CoverageBackward(const Problem<T>& p, const BackwardProblem<T>& g,
                                   const RowsOperands<T>& in, BlockAt<T> at, const RowsTarget<T>& to,
                                   const RowsScratch<T>& s) {
  const int64_t segment = CoverageSegment(p), count = (p.query_len + segment - 1) / segment;
  Fill(T{0}, p.key_len, s.seen);
  Fill(T{0}, p.key_len, s.later);
  for (int64_t n = 0; n < count; ++n) {
    Copy(s.seen, p.key_len, s.checkpoints + n * p.key_len);
    at.row = n * segment;
    if (n + 1 < count) CoverageOfRows(p, at, at.row + segment, false, s);
  }
  for (int64_t n = count; n-- > 0;) {
    const int64_t first = n * segment, end = Least(p.query_len, first + segment);
    Copy(s.checkpoints + n * p.key_len, p.key_len, s.seen);
    at.row = first;
    CoverageOfRows(p, at, end, true, s);
    for (int64_t row = (end - 1 - first) / kDirectRows * kDirectRows + first; row >= first;
         row -= kDirectRows) {
      at.row = row;
      at.rows = Least(kDirectRows, end - row);
      ForPanels<false>(p, at, true, [&](const Panel<T>& panel) {
        const T* seen = s.seen + (panel.at.row - first) * p.key_len;
        RowsBackwardPanel<false>(p, g, in, panel, seen, to, s);
      });
    }
  }
}

template <bool kTiled, class T>
HWY_NOINLINE void RowsBackwardUnit(const Problem<T>& p, const BackwardProblem<T>& g,
                                   const RowsOperands<T>& in, const RowsShape<T>& shape, int64_t unit,
                                   const RowsScratch<T>& s) {
  const int64_t group = unit % shape.groups, kv = unit / shape.groups % p.kv_heads,
                b = unit / shape.groups / p.kv_heads, heads = p.query_heads / p.kv_heads;
  RowsTarget<T> to{in.d_key + unit * p.key_len * shape.dim,
                   in.d_value + unit * p.key_len * shape.value_dim,
                   in.d_vector + unit * p.score_dim,
                   in.d_coverage + unit * p.score_dim,
                   in.d_transitions + unit * heads * 4,
                   group,
                   shape.dim,
                   shape.value_dim};
  Fill(T{0}, p.key_len * shape.dim, to.d_key);
  Fill(T{0}, p.key_len * shape.value_dim, to.d_value);
  Fill(T{0}, p.score_dim, to.d_vector);
  Fill(T{0}, p.score_dim, to.d_coverage);
  Fill(T{0}, heads * 4, to.d_transitions);
  const int64_t first = group * shape.group_blocks, last = Least(shape.blocks, first + shape.group_blocks);
  for (int64_t h = kv * heads; h < (kv + 1) * heads; ++h) {
    if (p.score == ScoreKind::coverage) {
      if constexpr (!kTiled) CoverageBackward(p, g, in, BlockAt<T>{b, h, kv, 0, 0}, to, s);
    } else {
      for (int64_t block = first; block < last; ++block) {
        const int64_t row = block * shape.block_rows;
        const BlockAt<T> at{b, h, kv, row, Least(shape.block_rows, p.query_len - row)};
        ForPanels<kTiled>(p, at, false, [&](const Panel<T>& panel) {
          RowsBackwardPanel<kTiled>(p, g, in, panel, static_cast<const T*>(nullptr), to, s);
        });
      }
    }
    to.d_transitions += 4;
  }
}

template <bool kTiled, class T>
HWY_NOINLINE size_t RowsBackwardBytes(const Problem<T>& p, int threads) {
  Carve carve(nullptr);
  const RowsShape<T> shape = RowsShapeOf<kTiled>(p);
  const int64_t units = MostUnits(p, shape.blocks);
  if (kTiled) {
    carve.Take<T>(TransposedSize(p, p.score_dim));
    carve.Take<T>(TransposedSize(p, p.value_dim));
    carve.Take<T>(PaddedRowsSize(p, p.score_dim));
  }
  carve.Take<T>(units * p.key_len * shape.dim);
  carve.Take<T>(units * p.key_len * shape.value_dim);
  for (int n = 0; n < 2; ++n) carve.Take<T>(units * p.score_dim);
  carve.Take<T>(units * p.query_heads / p.kv_heads * 4);
  carve.Take<T>(most_mod_sum_elements(p, p.mods, units));
  carve.Take<T>(most_mod_sum_elements(p, p.weight_mods, units));
  for (int t = 0; t < threads; ++t) TakeRowsScratch(p, kTiled, true, carve);
  return carve.Used();
}

/// to[row] = Σ partials of the groups, in group order, for every row of every (batch, kv head).
template <class T>
HWY_NOINLINE void AddKeyPartials(const Problem<T>& p, const Operand<T*>& to, int64_t groups, int64_t dim,
                                 int64_t width, const T* partials, Executor& executor) {
  executor.parallel_for(p.batch * p.kv_heads, [&](int64_t unit, int) {
    for (int64_t j = 0; j < p.key_len; ++j) {
      const T* from = partials + (unit * groups * p.key_len + j) * width;
      T* row = RowAt(to, unit / p.kv_heads, unit % p.kv_heads, j);
      Copy(from, dim, row);
      for (int64_t group = 1; group < groups; ++group)
        AddScaled(T{1}, from + group * p.key_len * width, dim, row);
    }
  });
}

template <class T>
HWY_NOINLINE void AddUnits(int64_t units, int64_t n, const T* parts, T* to) {
  if (!to) return;
  Fill(T{0}, n, to);
  for (int64_t unit = 0; unit < units; ++unit) AddScaled(T{1}, parts + unit * n, n, to);
}

template <bool kTiled, class T>
HWY_NOINLINE void RowsBackward(const Problem<T>& p, const BackwardProblem<T>& g, Executor& executor,
                               std::byte* memory) {
  Carve carve(memory);
  const RowsShape<T> shape = RowsShapeOf<kTiled>(p);
  const int64_t units = p.batch * p.kv_heads * shape.groups, heads = p.query_heads / p.kv_heads;
  RowsOperands<T> in;
  if constexpr (kTiled) {
    PackTransposed(p, p.key, p.score_dim, carve.Take<T>(TransposedSize(p, p.score_dim)), executor,
                   &in.keys_transposed);
    T* values = carve.Take<T>(TransposedSize(p, p.value_dim));
    if (g.d_output.data) PackTransposed(p, p.value, p.value_dim, values, executor, &in.values_transposed);
    in.keys = PadRows(p, p.key, p.score_dim, carve.Take<T>(PaddedRowsSize(p, p.score_dim)), executor);
  }
  in.d_key = carve.Take<T>(units * p.key_len * shape.dim);
  in.d_value = carve.Take<T>(units * p.key_len * shape.value_dim);
  in.d_vector = carve.Take<T>(units * p.score_dim);
  in.d_coverage = carve.Take<T>(units * p.score_dim);
  in.d_transitions = carve.Take<T>(units * heads * 4);
  in.sums = TakeModSums(p, p.mods, shape.groups, carve);
  in.weight_sums = TakeModSums(p, p.weight_mods, shape.groups, carve);
  if (p.has_mods) begin_mod_gradients<T>(p, p.mods, in.sums, shape.groups);
  if (p.has_weight_mods) begin_mod_gradients<T>(p, p.weight_mods, in.weight_sums, shape.groups);
  std::byte* scratch = memory + carve.Used();
  Carve one(nullptr);
  TakeRowsScratch(p, kTiled, true, one);
  ForUnits(p, shape.groups, executor, [&](int64_t unit, int worker) {
    Carve mine(scratch + static_cast<size_t>(worker) * one.Used());
    RowsBackwardUnit<kTiled>(p, g, in, shape, unit, TakeRowsScratch(p, kTiled, true, mine));
  });
  if (g.d_key.data) AddKeyPartials(p, g.d_key, shape.groups, p.score_dim, shape.dim, in.d_key, executor);
  if (g.d_value.data)
    AddKeyPartials(p, g.d_value, shape.groups, p.value_dim, shape.value_dim, in.d_value, executor);
  if (p.has_mods) finish_mod_gradients<T>(p, p.mods, in.sums, shape.groups);
  if (p.has_weight_mods) finish_mod_gradients<T>(p, p.weight_mods, in.weight_sums, shape.groups);
  AddUnits(units, p.score_dim, in.d_vector, g.d_additive_vector);
  AddUnits(units, p.score_dim, in.d_coverage, g.d_coverage_vector);
  if (!g.d_transitions) return;
  Fill(T{0}, p.query_heads * 4, g.d_transitions);
  for (int64_t unit = 0; unit < units; ++unit) {
    const int64_t kv = unit / shape.groups % p.kv_heads;
    AddScaled(T{1}, in.d_transitions + unit * heads * 4, heads * 4, g.d_transitions + kv * heads * 4);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif
