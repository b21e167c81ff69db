// The gradients of a panel of whole rows. The scores are computed again; then everything that a row's
// gradient needs is there, D too. That takes five products: S = Q·Kᵀ, dP = dO·Vᵀ, dV, dK and dQ (six with
// mods, which need the scores once more).
#if defined(FOVEA_FLASH_WHOLE_ROWS_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_FLASH_WHOLE_ROWS_GRADIENT_INL_H_
#undef FOVEA_FLASH_WHOLE_ROWS_GRADIENT_INL_H_
#else
#define FOVEA_FLASH_WHOLE_ROWS_GRADIENT_INL_H_
#endif

#include "kernels/flash/whole_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

template <class T>
struct RowsOperands {
  Packed<T> keys_transposed, values_transposed;
  Operand<const T*> keys;
  ModSums<T> sums, weight_sums;
  T *d_key, *d_value;        ///< [units][key_len, dim]
  T *d_vector, *d_coverage;  ///< [units][score_dim]
  T* d_normalizer;           ///< [units][heads, normalizer_elements]
};

/// Where one unit adds its gradients, and the number of its group.
template <class T>
struct RowsTarget {
  T *d_key, *d_value, *d_vector, *d_coverage;
  T* d_normalizer;  ///< null: not wanted
  int64_t group, dim, value_dim;
};

/// With t = tanh(q + k + w·seen) and u = ds·v∘(1 - t²): dq += u, dk += u, dv += ds·t, dw += seen·u. Returns
/// u·w, the derivative by the coverage.
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

/// d_scores ← dO·Vᵀ, for the keys that the panel sees.
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

/// Adds to `gradient` the derivatives by the returned weights of row r that do not come from the values:
/// those of a loss on the weights, and those through coverage.
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

/// Row r: weights ← the factors of the values, d_scores ← dS, factors ← the derivative by the weight mods'
/// factors.
template <class T>
HWY_NOINLINE void RowGradients(const Problem<T>& p, const BackwardProblem<T>& g, const Panel<T>& panel,
                               int64_t r, int64_t n, T log_sum_exp, T* d_normalizer,
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
    if (scores[j] == kHidden<T>)
      gradient[j] = 0;  // dO·Vᵀ may be NaN there, from a value that this row does
                        // not see
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
      p, row, {scores, weights, log_sum_exp, g.advantage ? g.advantage[index] : T{0}, d_normalizer},
      gradient);
  if (g.mean) g.mean[index] = mean;
  if (drops || p.has_weight_mods) MultiplyInto(s.keep, n, weights);
  const T scale = GradientScale(p);
  if (scale != T{1}) Scale(scale, n, gradient);
}

/// Takes the gradient back through the mods, whose stages are computed again for each piece.
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
      if (ds == T{0}) continue;  // hidden, or no gradient to pass on
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

/// Whether the loss does not depend on these rows: it depends on some weights alone, and on none of these
/// rows' weights.
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
    if constexpr (kTiled) {  // a NaN in a row that sees nothing must not spread: the products read 0 instead
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
  for (int64_t r = 0; r < at.rows; ++r) RowGradients(p, g, panel, r, n, log_sum_exp[r], to.d_normalizer, s);
  if (p.has_mods || p.has_weight_mods) PanelModGradients<kTiled>(p, in, panel, to.group, s, seen);
  if constexpr (kTiled)
    TiledProducts(g, in, panel, to, s);
  else
    DirectProducts(p, g, panel, to, s, seen);
  for (int64_t r = 0; g.d_query.data && r < at.rows; ++r)
    Copy(s.d_query + r * to.dim, p.score_dim, RowAt(g.d_query, at.b, at.h, at.row + r));
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif
