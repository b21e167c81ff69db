// The algorithms `rows` and `tiled rows`: first all scores of some rows, then their weights, then the output.
// Memory stays O(length): a few rows of scores for each thread. `tiled rows` (kTiled) takes a block of 48
// rows and computes their dot products in register blocks. `rows` takes one row at a time, for additive
// scores and for few queries. With coverage the rows of a head run one after the other.
#if defined(FOVEA_FLASH_WHOLE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_FLASH_WHOLE_ROWS_INL_H_
#undef FOVEA_FLASH_WHOLE_ROWS_INL_H_
#else
#define FOVEA_FLASH_WHOLE_ROWS_INL_H_
#endif

#include "kernels/flash/direct-inl.h"
#include "kernels/flash/normalize-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// Rows that are computed together: all rows of a block, or one of them. Their scores are packed: the pieces
/// of the schedule follow one another without gaps.
template <class T>
struct Panel {
  BlockAt<T> at;     ///< the rows of the panel
  int64_t in_block;  ///< the first of them, counted from the first row of the schedule's block
  const BlockSchedule* schedule;
  int64_t row_slot = -1;  ///< the slot of weight_rows that receives the weights; -1: every slot that names
                          ///< the row
};

/// The scratch buffers of one thread: 48 rows where tiled, else one. Rows of scores, factors (of weight
/// mods), weights and d_scores are `stride` apart; keep (factors of dropout) and noise are one row.
template <class T>
struct RowsScratch {
  T *scores, *factors, *keep, *noise, *spare, *gathered;
  T *weights = nullptr, *d_scores = nullptr, *query = nullptr, *d_output = nullptr, *d_query = nullptr;
  /// For coverage. `seen`: the coverage of each key by the rows so far. `later`: the derivative by this
  /// coverage, to which later rows add. `checkpoints`: `seen` at the first row of each segment.
  T *seen = nullptr, *later = nullptr, *checkpoints = nullptr;
  ModBuffers<T> mods, weight_mods;
  int64_t stride = 0;
};

/// The number of rows in a segment. Backward through coverage keeps the coverage at the first row of each
/// segment, and at each row of the current segment. A segment has about √queries rows, in whole blocks. So
/// each of the two takes about √queries rows.
template <class T>
HWY_INLINE int64_t CoverageSegment(const Problem<T>& p) {
  int64_t rows = kDirectRows;
  while (rows * rows < p.query_len) rows += kDirectRows;
  return rows;
}

template <class T>
HWY_INLINE int64_t RowStride(const Problem<T>& p) {
  return Padded<T>(p.key_len) + Padded<T>(1);  // a piece may end anywhere, and products write whole vectors
}

template <class T>
HWY_NOINLINE RowsScratch<T> TakeRowsScratch(const Problem<T>& p, bool tiled, bool backward, Carve& carve) {
  const int64_t rows = tiled ? kBlockRows : 1, stride = RowStride(p), panel = rows * stride;
  const bool coverage = p.score == ScoreKind::coverage;
  RowsScratch<T> s;
  s.stride = stride;
  s.scores = carve.Take<T>(panel);
  s.factors = carve.Take<T>(p.has_weight_mods ? panel : 0);
  s.keep = carve.Take<T>(stride);
  s.noise = carve.Take<T>(stride);
  s.spare = carve.Take<T>(3 * stride);
  s.gathered = carve.Take<T>(rows * Padded<T>(p.value_dim));
  s.mods = TakeModBuffers(p.mods, rows, backward, carve);
  s.weight_mods = TakeModBuffers(p.weight_mods, rows, backward, carve);
  if (coverage) s.seen = carve.Take<T>((backward ? CoverageSegment(p) + 1 : 1) * p.key_len);
  if (!backward) return s;
  s.weights = carve.Take<T>(panel);
  s.d_scores = carve.Take<T>(panel);
  s.query = carve.Take<T>(rows * Padded<T>(p.score_dim));
  s.d_output = carve.Take<T>(rows * Padded<T>(p.value_dim));
  s.d_query = carve.Take<T>(rows * Padded<T>(p.score_dim));
  if (coverage) {
    s.later = carve.Take<T>(p.key_len);
    s.checkpoints = carve.Take<T>((p.query_len / CoverageSegment(p) + 1) * p.key_len);
  }
  return s;
}

/// Calls body(piece, offset) for every piece. `offset` is the place of the piece in a packed row. Returns the
/// packed length.
template <class Body>
HWY_INLINE int64_t ForPieces(const BlockSchedule& schedule, Body&& body) {
  int64_t offset = 0;
  for (int64_t n = 0; n < schedule.piece_count(); ++n) {
    const Piece& piece = schedule.pieces()[n];
    body(piece, offset);
    offset += piece.end - piece.begin;
  }
  return offset;
}

template <class T>
HWY_INLINE ModPlace PlaceOf(const Panel<T>& panel, const Piece& piece, int64_t group) {
  return {panel.at.b, panel.at.h, panel.at.row, panel.at.rows, piece.begin, piece.end - piece.begin, group};
}

template <bool kTiled, class T>
HWY_INLINE void PieceScores(const Problem<T>& p, const Packed<T>& keys, const Panel<T>& panel,
                            const Piece& piece, T* scores, const RowsScratch<T>& s, const T* seen) {
  if constexpr (kTiled) {
    KeyRange ranges[kBlockRows];
    RangesOf<T>(*panel.schedule, piece, panel.at.rows, ranges);
    BlockScores(p, keys, panel.at, *panel.schedule, piece, ranges, scores, s.stride, s.mods);
  } else {
    DirectScores(p, panel.at, int64_t{0}, *panel.schedule, piece, scores, s.mods, seen, panel.in_block);
  }
}

/// Computes the scores of the panel and scales them. Scores of hidden keys are -inf. Returns the packed
/// length.
template <bool kTiled, class T>
HWY_INLINE int64_t PanelScores(const Problem<T>& p, const Packed<T>& keys, const Panel<T>& panel,
                               const RowsScratch<T>& s, const T* seen) {
  const int64_t n = ForPieces(*panel.schedule, [&](const Piece& piece, int64_t offset) {
    PieceScores<kTiled>(p, keys, panel, piece, s.scores + offset, s, seen);
  });
  const T scale = ScaleOf(p);
  for (int64_t r = 0; scale != T{1} && r < panel.at.rows; ++r) Scale(scale, n, s.scores + r * s.stride);
  return n;
}

template <class T>
HWY_INLINE Site SiteOf(const Problem<T>& p, const Panel<T>& panel, int64_t r, int64_t key) {
  return SiteOf(p, panel.at.b, panel.at.h, panel.at.row + r, key);
}

template <class T>
HWY_INLINE WholeRow<T> RowOf(const Problem<T>& p, const Panel<T>& panel, int64_t r, int64_t n,
                             const RowsScratch<T>& s) {
  const bool sampled = p.normalizer == NormalizerKind::sample || p.normalizer == NormalizerKind::gumbel;
  if (sampled) {
    ForPieces(*panel.schedule, [&](const Piece& piece, int64_t offset) {
      gumbel_row<T>(p.sample_seed, SiteOf(p, panel, r, piece.begin), piece.end - piece.begin,
                    s.noise + offset);
    });
  }
  return {panel.at.h, n, sampled ? s.noise : nullptr, s.spare};
}

template <class T>
HWY_INLINE void DropoutRow(const Problem<T>& p, const Panel<T>& panel, int64_t r, T* keep) {
  ForPieces(*panel.schedule, [&](const Piece& piece, int64_t offset) {
    KeepFactors(p, SiteOf(p, panel, r, piece.begin), piece.end - piece.begin, keep + offset);
  });
}

/// factors ← the weight mods. `s.weight_mods` keeps their stages for one piece only. Where s.scores say that
/// a key is hidden, the factor becomes 0, because a mod may return anything there.
template <class T>
HWY_INLINE void PanelFactors(const Problem<T>& p, const Panel<T>& panel, int64_t n, const RowsScratch<T>& s) {
  ForPieces(*panel.schedule, [&](const Piece& piece, int64_t offset) {
    apply_weight_mods<T>(p, PlaceOf(panel, piece, 0), s.factors + offset, s.stride, s.weight_mods);
  });
  for (int64_t r = 0; r < panel.at.rows; ++r) {
    const T* scores = s.scores + r * s.stride;
    T* factors = s.factors + r * s.stride;
    for (int64_t j = 0; j < n; ++j) factors[j] = scores[j] == kHidden<T> ? T{0} : factors[j];
  }
}

/// Calls body(h, r) for every slot h of `heads` that names `head` and every slot r of `rows` that names
/// `row`.
template <class Body>
HWY_INLINE void ForSlots(std::span<const int64_t> heads, std::span<const int64_t> rows, int64_t head,
                         int64_t row, Body&& body) {
  for (int64_t h = weight_slot(heads, head, 0); h >= 0; h = weight_slot(heads, head, h + 1)) {
    for (int64_t r = weight_slot(rows, row, 0); r >= 0; r = weight_slot(rows, row, r + 1)) body(h, r);
  }
}

template <class T>
HWY_INLINE void WriteRow(const Problem<T>& p, const ForwardOutputs<T>& out, const Panel<T>& panel, int64_t r,
                         const T* weights) {
  ForSlots(out.weight_heads, out.weight_rows, panel.at.h, panel.at.row + r, [&](int64_t head, int64_t row) {
    if (panel.row_slot >= 0 && row != panel.row_slot) return;
    T* to = RowAt(out.weights, panel.at.b, head, row);
    Fill(T{0}, p.key_len, to);
    ForPieces(*panel.schedule, [&](const Piece& piece, int64_t offset) {
      Copy(weights + offset, piece.end - piece.begin, to + piece.begin);
    });
  });
}

template <bool kTiled, class T>
HWY_NOINLINE void RowsForwardPanel(const Problem<T>& p, const ForwardOutputs<T>& out, const Packed<T>& keys,
                                   const Operand<const T*>& values, const Panel<T>& panel,
                                   const RowsScratch<T>& s) {
  const BlockAt<T>& at = panel.at;
  const int64_t n = PanelScores<kTiled>(p, keys, panel, s, s.seen), width = Padded<T>(p.value_dim);
  if (p.has_weight_mods) PanelFactors(p, panel, n, s);
  for (int64_t r = 0; r < at.rows; ++r) {
    T* row = s.scores + r * s.stride;
    const T log_sum_exp = SolveRow(p, RowOf(p, panel, r, n, s), row);
    if (out.log_sum_exp)
      out.log_sum_exp[(at.b * p.query_heads + at.h) * p.query_len + at.row + r] = log_sum_exp;
    if (p.has_weight_mods) MultiplyInto(s.factors + r * s.stride, n, row);
    if (out.weights.data) WriteRow(p, out, panel, r, row);
    if (s.seen) {
      ForPieces(*panel.schedule, [&](const Piece& piece, int64_t offset) {
        AddScaled(T{1}, row + offset, piece.end - piece.begin, s.seen + piece.begin);
      });
    }
    if (p.dropout_rate > 0) {
      DropoutRow(p, panel, r, s.keep);
      MultiplyInto(s.keep, n, row);
    }
  }
  if (!out.output.data) return;
  Fill(T{0}, at.rows * width, s.gathered);
  ForPieces(*panel.schedule, [&](const Piece& piece, int64_t offset) {
    if constexpr (kTiled) {
      ForRuns(piece, panel.schedule->visible(), [&](int64_t begin, int64_t end) {
        Product<true, T>(
            at.rows, width,
            {s.scores + offset + (begin - piece.begin), s.stride, 1, RowAt(values, at.b, at.kv, begin),
             values.row_stride, s.gathered, width, end - begin});
      });
    } else {
      for (int64_t j = piece.begin; j < piece.end; ++j) {
        const T weight = s.scores[offset + j - piece.begin];
        if (weight != T{0}) AddScaled(weight, RowAt(values, at.b, at.kv, j), p.value_dim, s.gathered);
      }
    }
  });
  // A row whose weights are all 0 gives 0. Its sum may hold 0 · NaN, because the product of a block runs over
  // every key that one of the rows sees.
  for (int64_t r = 0; r < at.rows; ++r) {
    bool any = false;
    for (int64_t j = 0; j < n && !any; ++j) any = s.scores[r * s.stride + j] != T{0};
    T* to = RowAt(out.output, at.b, at.h, at.row + r);
    any ? Copy(s.gathered + r * width, p.value_dim, to) : Fill(T{0}, p.value_dim, to);
  }
}

/// Calls body for the rows of block `at` as panels: one panel of all rows if tiled, else one panel for each
/// row. Backward through coverage needs the rows in reverse order.
template <bool kTiled, class T, class Body>
HWY_INLINE void ForPanels(const Problem<T>& p, const BlockAt<T>& at, bool reverse, Body&& body) {
  const BlockSchedule& schedule = ScheduleOf(p, at, 0, p.key_len);
  if constexpr (kTiled) {
    body(Panel<T>{at, 0, &schedule});
  } else {
    for (int64_t n = 0; n < at.rows; ++n) {
      const int64_t r = reverse ? at.rows - 1 - n : n;
      body(Panel<T>{{at.b, at.h, at.kv, at.row + r, 1}, r, &schedule});
    }
  }
}

template <bool kTiled, class T>
HWY_NOINLINE size_t RowsForwardBytes(const Problem<T>& p, int threads) {
  Carve carve(nullptr);
  if (kTiled) {
    carve.Take<T>(TransposedSize(p, p.score_dim));
    carve.Take<T>(PaddedRowsSize(p, p.value_dim));
  }
  for (int t = 0; t < threads; ++t) TakeRowsScratch(p, kTiled, false, carve);
  return carve.Used();
}

template <bool kTiled, class T>
HWY_NOINLINE void RowsForward(const Problem<T>& p, const ForwardOutputs<T>& out, Executor& executor,
                              std::byte* memory) {
  Carve carve(memory);
  Packed<T> keys;
  Operand<const T*> values = p.value;
  if constexpr (kTiled) {
    PackTransposed(p, p.key, p.score_dim, carve.Take<T>(TransposedSize(p, p.score_dim)), executor, &keys);
    T* padded = carve.Take<T>(PaddedRowsSize(p, p.value_dim));
    if (out.output.data) values = PadRows(p, p.value, p.value_dim, padded, executor);
  }
  std::byte* scratch = memory + carve.Used();
  Carve one(nullptr);
  TakeRowsScratch(p, kTiled, false, one);
  // A unit is all rows of a head in turn if the score has coverage. It is one row if only the weights of
  // chosen rows are wanted. Otherwise it is a block.
  const bool coverage = p.score == ScoreKind::coverage;
  const int64_t chosen = coverage || out.output.data || out.log_sum_exp ? 0 : list_size(out.weight_rows);
  const int64_t rows = coverage ? p.query_len : chosen > 0 ? 1 : kTiled ? kBlockRows : kDirectRows;
  const int64_t blocks = chosen > 0 ? chosen : (p.query_len + rows - 1) / rows;
  executor.parallel_for(p.batch * p.query_heads * blocks, [&](int64_t unit, int worker) {
    const int64_t block = unit % blocks, h = unit / blocks % p.query_heads, b = unit / blocks / p.query_heads;
    if (!out.output.data && !out.log_sum_exp && weight_slot(out.weight_heads, h, 0) < 0) return;
    Carve mine(scratch + static_cast<size_t>(worker) * one.Used());
    const RowsScratch<T> s = TakeRowsScratch(p, kTiled, false, mine);
    const int64_t kv = h / (p.query_heads / p.kv_heads);
    const int64_t first = chosen > 0 ? list_at(out.weight_rows, block) : block * rows;
    const int64_t end = HWY_MIN(p.query_len, first + rows), step = kTiled ? kBlockRows : kDirectRows;
    if (s.seen) Fill(T{0}, p.key_len, s.seen);
    for (int64_t row = first; row < end; row += step) {
      ForPanels<kTiled>(p, BlockAt<T>{b, h, kv, row, HWY_MIN(step, end - row)}, false, [&](Panel<T> panel) {
        if (chosen > 0) panel.row_slot = block;
        RowsForwardPanel<kTiled>(p, out, keys, values, panel, s);
      });
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif
