// The algorithm `short`: dot products of a few dozen queries with a few dozen keys, as in batches of
// sentences. The lanes of a vector are queries. Scores are K·Qᵀ, a row of them for each key, so the maxima
// and the sums of all queries run down whole vectors. `tiled` takes both within a vector, query by query.
// Nothing is padded to tiles: a block has at most 32 queries, and its scores are [key_len][queries].
//
// Only queries, and in backward the gradients of their outputs, are transposed. The other operands are read
// where they lie: products read one operand an element at a time, by any stride, and rows of the other.
#if defined(FOVEA_FLASH_SHORT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_FLASH_SHORT_INL_H_
#undef FOVEA_FLASH_SHORT_INL_H_
#else
#define FOVEA_FLASH_SHORT_INL_H_
#endif

#include "kernels/flash/tiled_backward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

constexpr int64_t kShortRows = short_queries;

/// The lanes of a row of scores: whole vectors, and whole blocks of Transpose.
template <class T>
HWY_INLINE int64_t ShortStride(const Problem<T>& p) {
  return (Padded<T>(HWY_MIN(kShortRows, HWY_MAX(p.query_len, 1))) + 15) / 16 * 16;
}

/// The scratch buffers of one thread. `query` and `d_output` are transposed, [dim][stride]; scores and
/// d_scores are [key_len][stride], and so are the factors of dropout, `kept`; keep has those of a row. Rows
/// are padded to whole vectors: gathered [32][value_dim], of backward query_rows and d_output_rows [32],
/// d_query [32], d_key and d_value [key_len].
template <class T>
struct ShortScratch {
  T *query, *scores, *keep, *gathered;
  T *d_output, *d_scores, *kept, *query_rows, *d_output_rows, *d_query, *d_key, *d_value;
};

template <class T>
HWY_INLINE ShortScratch<T> TakeShortScratch(const Problem<T>& p, bool backward, Carve& carve) {
  const int64_t stride = ShortStride(p), dim = Padded<T>(p.score_dim), value_dim = Padded<T>(p.value_dim);
  ShortScratch<T> s{};
  s.query = carve.Take<T>(p.score_dim * stride);
  s.scores = carve.Take<T>(p.key_len * stride);
  s.keep = carve.Take<T>(Padded<T>(p.key_len));
  s.gathered = carve.Take<T>(kShortRows * value_dim);
  if (!backward) return s;
  s.d_output = carve.Take<T>(p.value_dim * stride);
  s.d_scores = carve.Take<T>(p.key_len * stride);
  s.kept = carve.Take<T>(p.dropout_rate > 0 ? p.key_len * stride : 0);
  s.query_rows = carve.Take<T>(kShortRows * dim);
  s.d_output_rows = carve.Take<T>(kShortRows * value_dim);
  s.d_query = carve.Take<T>(kShortRows * dim);
  s.d_key = carve.Take<T>(p.key_len * dim);
  s.d_value = carve.Take<T>(p.key_len * value_dim);
  return s;
}

/// scores[j][r] = k_j · q_r for the keys of all pieces, those that a row does not see -inf.
template <class T>
HWY_INLINE void ShortScores(const Problem<T>& p, const BlockAt<T>& at, const BlockSchedule& schedule,
                            int64_t stride, const ShortScratch<T>& s) {
  for (int64_t n = 0; n < schedule.piece_count(); ++n) {
    const Piece& piece = schedule.pieces()[n];
    T* scores = s.scores + piece.begin * stride;
    Product<false, T>(piece.end - piece.begin, Padded<T>(at.rows),
                      {RowAt(p.key, at.b, at.kv, piece.begin), p.key.row_stride, 1, s.query, stride, scores,
                       stride, p.score_dim});
    for (int64_t j = 0; p.scale <= 0 && j < piece.end - piece.begin; ++j)
      ScaleEarly(p, at.rows, scores + j * stride);
    if (piece.full) continue;
    for (int64_t r = 0; r < at.rows; ++r) {
      const SpanList spans = schedule.row(r);
      int64_t j = piece.begin;
      const auto hide_until = [&](int64_t end) {
        for (; j < HWY_MIN(end, piece.end); ++j) s.scores[j * stride + r] = kHidden<T>;
      };
      for (int64_t span = 0; span < spans.count; ++span) {
        hide_until(spans.data[span].begin);
        j = HWY_MAX(j, spans.data[span].end);
      }
      hide_until(piece.end);
    }
  }
}

/// body(j) for every key of the pieces.
template <class Body>
HWY_INLINE void ForKeys(const BlockSchedule& schedule, Body&& body) {
  const int64_t pieces = schedule.piece_count();
  const Piece* piece = schedule.pieces();
  for (int64_t n = 0; n < pieces; ++n) {
    for (int64_t j = piece[n].begin; j < piece[n].end; ++j) body(j);
  }
}

/// body(begin, end) for the runs of keys that some row of the block sees.
template <class Body>
HWY_INLINE void ForSeen(const BlockSchedule& schedule, Body&& body) {
  for (int64_t n = 0; n < schedule.piece_count(); ++n)
    ForRuns(schedule.pieces()[n], schedule.visible(), body);
}

/// Turns scores into weights relative to the maximum of each row; leaves maxima and sums in `states`.
template <class T>
HWY_INLINE void ShortSoftmax(const Problem<T>& p, const BlockSchedule& schedule, int64_t rows, int64_t stride,
                             T* scores, RowState<T>* states) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, ScaleOf(p)), hidden = hn::Set(d, kHidden<T>);
  alignas(64) T maxima[kShortRows], sums[kShortRows];
  for (int64_t v = 0; v < rows; v += lanes) {
    auto best = hidden;
    ForKeys(schedule,
            [&](int64_t j) HWY_ATTR { best = hn::Max(hn::LoadU(d, scores + j * stride + v), best); });
    best = hn::Mul(best, factor);
    // A row that sees nothing: its weights become 0.
    const auto shift = hn::IfThenZeroElse(hn::Eq(best, hidden), best);
    auto sum = hn::Zero(d);
    ForKeys(schedule, [&](int64_t j) HWY_ATTR {
      T* at = scores + j * stride + v;
      const auto e = Exp(d, hn::Sub(hn::Mul(hn::LoadU(d, at), factor), shift));
      hn::StoreU(e, d, at);
      sum = hn::Add(sum, e);
    });
    hn::StoreU(best, d, maxima + v);
    hn::StoreU(sum, d, sums + v);
  }
  for (int64_t r = 0; r < rows; ++r) states[r] = {maxima[r], sums[r]};
}

/// The factors of dropout of a row, for all keys.
template <class T>
HWY_INLINE void ShortKeep(const Problem<T>& p, const BlockAt<T>& at, int64_t r, T* keep) {
  KeepFactors(p, SiteOf(p, at.b, at.h, at.row + r, 0), p.key_len, keep);
}

template <class T>
HWY_NOINLINE void ShortForwardBlock(const Problem<T>& p, const ForwardOutputs<T>& out,
                                    const Operand<const T*>& values, const BlockAt<T>& at,
                                    const ShortScratch<T>& s) {
  const int64_t stride = ShortStride(p), width = Padded<T>(p.value_dim);
  Transpose(RowAt(p.query, at.b, at.h, at.row), p.query.row_stride, at.rows, p.score_dim, stride, s.query);
  const BlockSchedule& schedule = ScheduleOf(p, at, 0, p.key_len);
  ShortScores(p, at, schedule, stride, s);
  RowState<T> states[kShortRows];
  ShortSoftmax(p, schedule, at.rows, stride, s.scores, states);
  if (p.dropout_rate > 0) {
    for (int64_t r = 0; r < at.rows; ++r) {
      ShortKeep(p, at, r, s.keep);
      ForKeys(schedule, [&](int64_t j) { s.scores[j * stride + r] *= s.keep[j]; });
    }
  }
  bool first = true;
  ForSeen(schedule, [&](int64_t begin, int64_t end) HWY_ATTR {
    const ProductArgs<T> product{
        s.scores + begin * stride, 1,          stride, RowAt(values, at.b, at.kv, begin),
        values.row_stride,         s.gathered, width,  end - begin};
    first ? Product<false, T>(at.rows, width, product) : Product<true, T>(at.rows, width, product);
    first = false;
  });
  for (int64_t r = 0; r < at.rows; ++r)
    LeaveRow(p, out, at.b, at.h, at.row + r, states[r], s.gathered + r * width);
}

template <class T>
HWY_NOINLINE size_t ShortForwardBytes(const Problem<T>& p, int threads) {
  Carve carve(nullptr);
  carve.Take<T>(PaddedRowsSize(p, p.value_dim));
  for (int t = 0; t < threads; ++t) TakeShortScratch(p, false, carve);
  return carve.Used();
}

template <class T>
HWY_NOINLINE void ShortForward(const Problem<T>& p, const ForwardOutputs<T>& out, Executor& executor,
                               std::byte* memory) {
  Carve carve(memory), one(nullptr);
  const Operand<const T*> values =
      PadRows(p, p.value, p.value_dim, carve.Take<T>(PaddedRowsSize(p, p.value_dim)), executor);
  std::byte* scratch = memory + carve.Used();
  TakeShortScratch(p, false, one);
  const int64_t blocks = (p.query_len + kShortRows - 1) / kShortRows;
  executor.parallel_for(p.batch * p.query_heads * blocks, [&](int64_t unit, int worker) {
    Carve mine(scratch + static_cast<size_t>(worker) * one.Used());
    ShortForwardBlock(p, out, values, BlockOf(p, unit, kShortRows), TakeShortScratch(p, false, mine));
  });
}

/// Rows of a block as the right operand of products: where they lie, or copied with zeros behind. A `dead`
/// block has rows that see nothing. Zeros take their place, so that a NaN in them does not spread.
template <class T>
HWY_INLINE const T* ShortRows(const Operand<const T*>& x, const BlockAt<T>& at, int64_t dim, bool dead,
                              const T* log_sum_exp, T* to, int64_t* row_stride) {
  const int64_t width = Padded<T>(dim);
  if (!dead && width == dim) {
    *row_stride = x.row_stride;
    return RowAt(x, at.b, at.h, at.row);
  }
  *row_stride = width;
  for (int64_t r = 0; r < at.rows; ++r) {
    const int64_t count = log_sum_exp[r] == kHidden<T> ? 0 : dim;
    Copy(RowAt(x, at.b, at.h, at.row + r), count, to + r * width);
    Fill(T{0}, width - count, to + r * width + count);
  }
  return to;
}

/// Scores become weights after dropout P∘keep, and d_scores, the products of values and d_output, dS.
template <class T>
HWY_INLINE void ShortScoreGradients(const Problem<T>& p, const BlockAt<T>& at, const BlockSchedule& schedule,
                                    const T* log_sum_exp, const T* mean, int64_t stride,
                                    const ShortScratch<T>& s) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  alignas(64) T shifts[kShortRows], shares[kShortRows], centers[kShortRows];
  for (int64_t r = 0; r < kShortRows; ++r) {
    const bool seen = r < at.rows && log_sum_exp[r] != kHidden<T>;
    shifts[r] = seen ? log_sum_exp[r] : T{0};
    shares[r] = seen ? ShareOf(log_sum_exp[r], sink_of(p, at.h)) : T{0};
    centers[r] = seen ? mean[r] : T{0};
  }
  const auto factor = hn::Set(d, ScaleOf(p)), scale = hn::Set(d, GradientScale(p)), zero = hn::Zero(d),
             hidden = hn::Set(d, kHidden<T>);
  const bool drops = p.dropout_rate > 0;
  if (drops) {
    for (int64_t r = 0; r < at.rows; ++r) {
      ShortKeep(p, at, r, s.keep);
      ForKeys(schedule, [&](int64_t j) { s.kept[j * stride + r] = s.keep[j]; });
    }
  }
  for (int64_t v = 0; v < at.rows; v += lanes) {
    const auto shift = hn::LoadU(d, shifts + v), share = hn::LoadU(d, shares + v),
               center = hn::LoadU(d, centers + v);
    ForKeys(schedule, [&](int64_t j) HWY_ATTR {
      T *weights = s.scores + j * stride + v, *gradients = s.d_scores + j * stride + v;
      const auto score = hn::LoadU(d, weights);
      auto exponent = hn::Sub(hn::Mul(score, factor), shift);
      exponent = hn::IfThenZeroElse(hn::Gt(exponent, zero), exponent);
      const auto weight = hn::IfThenZeroElse(hn::Eq(score, hidden), hn::Mul(Exp(d, exponent), share));
      auto product = hn::LoadU(d, gradients), left = weight;
      if (drops) {
        const auto kept = hn::LoadU(d, s.kept + j * stride + v);
        product = hn::Mul(product, kept);
        left = hn::Mul(weight, kept);
      }
      const auto gradient = hn::Mul(hn::Mul(weight, scale), hn::Sub(product, center));
      hn::StoreU(left, d, weights);
      hn::StoreU(hn::IfThenZeroElse(hn::Eq(weight, zero), gradient), d, gradients);
    });
  }
}

/// Adds a block's gradients to those of its keys, and writes those of its queries.
template <class T>
HWY_NOINLINE void ShortBackwardBlock(const Problem<T>& p, const BackwardProblem<T>& g,
                                     const Operand<const T*>& keys, const BlockAt<T>& at,
                                     const ShortScratch<T>& s) {
  const int64_t stride = ShortStride(p), dim = Padded<T>(p.score_dim), value_dim = Padded<T>(p.value_dim);
  const T* log_sum_exp = g.log_sum_exp + (at.b * p.query_heads + at.h) * p.query_len + at.row;
  T mean[kShortRows];
  bool dead = false;
  for (int64_t r = 0; r < at.rows; ++r) {
    dead = dead || log_sum_exp[r] == kHidden<T>;
    mean[r] =
        Dot(RowAt(g.d_output, at.b, at.h, at.row + r), RowAt(g.output, at.b, at.h, at.row + r), p.value_dim);
  }
  int64_t query_stride = 0, d_output_stride = 0;
  const T* queries = ShortRows(p.query, at, p.score_dim, dead, log_sum_exp, s.query_rows, &query_stride);
  const T* d_output =
      ShortRows(g.d_output, at, p.value_dim, dead, log_sum_exp, s.d_output_rows, &d_output_stride);
  Transpose(queries, query_stride, at.rows, p.score_dim, stride, s.query);
  Transpose(d_output, d_output_stride, at.rows, p.value_dim, stride, s.d_output);
  const BlockSchedule& schedule = ScheduleOf(p, at, 0, p.key_len);
  ShortScores(p, at, schedule, stride, s);
  for (int64_t n = 0; n < schedule.piece_count(); ++n) {
    const Piece& piece = schedule.pieces()[n];
    Product<false, T>(piece.end - piece.begin, Padded<T>(at.rows),
                      {RowAt(p.value, at.b, at.kv, piece.begin), p.value.row_stride, 1, s.d_output, stride,
                       s.d_scores + piece.begin * stride, stride, p.value_dim});
  }
  ShortScoreGradients(p, at, schedule, log_sum_exp, mean, stride, s);
  if (g.d_query.data) Fill(T{0}, at.rows * dim, s.d_query);
  ForSeen(schedule, [&](int64_t begin, int64_t end) HWY_ATTR {
    const int64_t first = begin * stride, count = end - begin;
    if (g.d_value.data)
      Product<true, T>(count, value_dim,
                       {s.scores + first, stride, 1, d_output, d_output_stride, s.d_value + begin * value_dim,
                        value_dim, at.rows});
    if (g.d_key.data)
      Product<true, T>(
          count, dim,
          {s.d_scores + first, stride, 1, queries, query_stride, s.d_key + begin * dim, dim, at.rows});
    if (g.d_query.data)
      Product<true, T>(at.rows, dim,
                       {s.d_scores + first, 1, stride, RowAt(keys, at.b, at.kv, begin), keys.row_stride,
                        s.d_query, dim, count});
  });
  if (!g.d_query.data) return;
  for (int64_t r = 0; r < at.rows; ++r)
    Copy(s.d_query + r * dim, p.score_dim, RowAt(g.d_query, at.b, at.h, at.row + r));
}

template <class T>
HWY_NOINLINE size_t ShortBackwardBytes(const Problem<T>& p, int threads) {
  Carve carve(nullptr);
  carve.Take<T>(PaddedRowsSize(p, p.score_dim));
  for (int t = 0; t < threads; ++t) TakeShortScratch(p, true, carve);
  return carve.Used();
}

template <class T>
HWY_NOINLINE void ShortBackward(const Problem<T>& p, const BackwardProblem<T>& g, Executor& executor,
                                std::byte* memory) {
  Carve carve(memory), one(nullptr);
  const Operand<const T*> keys =
      PadRows(p, p.key, p.score_dim, carve.Take<T>(PaddedRowsSize(p, p.score_dim)), executor);
  std::byte* scratch = memory + carve.Used();
  TakeShortScratch(p, true, one);
  const int64_t dim = Padded<T>(p.score_dim), value_dim = Padded<T>(p.value_dim),
                heads = p.query_heads / HWY_MAX(p.kv_heads, 1);
  executor.parallel_for(p.batch * p.kv_heads, [&](int64_t unit, int worker) {
    Carve mine(scratch + static_cast<size_t>(worker) * one.Used());
    const ShortScratch<T> s = TakeShortScratch(p, true, mine);
    const int64_t kv = unit % p.kv_heads, b = unit / p.kv_heads;
    Fill(T{0}, p.key_len * dim, s.d_key);
    Fill(T{0}, p.key_len * value_dim, s.d_value);
    for (int64_t h = kv * heads; h < (kv + 1) * heads; ++h) {
      for (int64_t row = 0; row < p.query_len; row += kShortRows)
        ShortBackwardBlock(p, g, keys, {b, h, kv, row, HWY_MIN(kShortRows, p.query_len - row)}, s);
    }
    for (int64_t j = 0; j < p.key_len; ++j) {
      if (g.d_key.data) Copy(s.d_key + j * dim, p.score_dim, RowAt(g.d_key, b, kv, j));
      if (g.d_value.data) Copy(s.d_value + j * value_dim, p.value_dim, RowAt(g.d_value, b, kv, j));
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif
