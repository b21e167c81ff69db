// Backward of flash/whole_rows-inl.h. A unit of work is a (batch entry, kv head, group of queries), which
// takes its panels of rows one after the other (whole_rows_gradient-inl.h). With coverage it takes the rows
// of a head from the last to the first. Each group of queries has its own partial dK and dV, which are added
// up in the order of the groups.
#if defined(FOVEA_FLASH_WHOLE_ROWS_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_FLASH_WHOLE_ROWS_BACKWARD_INL_H_
#undef FOVEA_FLASH_WHOLE_ROWS_BACKWARD_INL_H_
#else
#define FOVEA_FLASH_WHOLE_ROWS_BACKWARD_INL_H_
#endif

#include "kernels/flash/whole_rows_gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

template <class T>
struct RowsShape {
  int64_t blocks, block_rows, groups, group_blocks, dim, value_dim;  // dims padded to whole vectors where
                                                                     // tiled
};

template <bool kTiled, class T>
HWY_INLINE RowsShape<T> RowsShapeOf(const Problem<T>& p) {
  const int64_t rows = kTiled ? kBlockRows : kDirectRows,
                blocks = HWY_MAX((p.query_len + rows - 1) / rows, 1);
  const int64_t groups = p.score == ScoreKind::coverage ? 1 : KeyGroups(p, blocks);
  return {blocks,
          rows,
          groups,
          (blocks + groups - 1) / groups,
          kTiled ? Padded<T>(p.score_dim) : p.score_dim,
          kTiled ? Padded<T>(p.value_dim) : p.value_dim};
}

/// Runs forward again through rows [at.row, end) of a head. The coverage before these rows is in the first
/// row of s.seen. With `keep` the coverage before each row stays, one row after the other, else only the last
/// one.
template <class T>
HWY_NOINLINE void CoverageOfRows(const Problem<T>& p, BlockAt<T> at, int64_t end, bool keep,
                                 const RowsScratch<T>& s) {
  T* seen = s.seen;
  for (; at.row < end; at.row += kDirectRows) {
    at.rows = HWY_MIN(kDirectRows, end - at.row);
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

/// One head with coverage: forward for the checkpoints, then backward segment by segment.
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
    const int64_t first = n * segment, end = HWY_MIN(p.query_len, first + segment);
    Copy(s.checkpoints + n * p.key_len, p.key_len, s.seen);
    at.row = first;
    CoverageOfRows(p, at, end, true, s);
    for (int64_t row = (end - 1 - first) / kDirectRows * kDirectRows + first; row >= first;
         row -= kDirectRows) {
      at.row = row;
      at.rows = HWY_MIN(kDirectRows, end - row);
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
                   g.d_normalizer ? in.d_normalizer + unit * heads * p.normalizer_elements : nullptr,
                   group,
                   shape.dim,
                   shape.value_dim};
  Fill(T{0}, p.key_len * shape.dim, to.d_key);
  Fill(T{0}, p.key_len * shape.value_dim, to.d_value);
  Fill(T{0}, p.score_dim, to.d_vector);
  Fill(T{0}, p.score_dim, to.d_coverage);
  if (to.d_normalizer) Fill(T{0}, heads * p.normalizer_elements, to.d_normalizer);
  const int64_t first = group * shape.group_blocks, last = HWY_MIN(shape.blocks, first + shape.group_blocks);
  for (int64_t h = kv * heads; h < (kv + 1) * heads; ++h) {
    if (p.score == ScoreKind::coverage) {
      if constexpr (!kTiled) CoverageBackward(p, g, in, BlockAt<T>{b, h, kv, 0, 0}, to, s);
    } else {
      for (int64_t block = first; block < last; ++block) {
        const int64_t row = block * shape.block_rows;
        const BlockAt<T> at{b, h, kv, row, HWY_MIN(shape.block_rows, p.query_len - row)};
        ForPanels<kTiled>(p, at, false, [&](const Panel<T>& panel) {
          RowsBackwardPanel<kTiled>(p, g, in, panel, static_cast<const T*>(nullptr), to, s);
        });
      }
    }
    if (to.d_normalizer) to.d_normalizer += p.normalizer_elements;
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
  carve.Take<T>(units * p.query_heads / p.kv_heads * p.normalizer_elements);
  carve.Take<T>(most_mod_sum_elements(p, p.mods, units));
  carve.Take<T>(most_mod_sum_elements(p, p.weight_mods, units));
  for (int t = 0; t < threads; ++t) TakeRowsScratch(p, kTiled, true, carve);
  return carve.Used();
}

/// to[row] = Σ of the groups' partial results, in the order of the groups, for every row of every (batch, kv
/// head).
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
  in.d_normalizer = carve.Take<T>(units * heads * p.normalizer_elements);
  in.sums = TakeModSums(p, p.mods, shape.groups, carve);
  in.weight_sums = TakeModSums(p, p.weight_mods, shape.groups, carve);
  if (p.has_mods) begin_mod_gradients<T>(p, p.mods, in.sums, shape.groups, executor);
  if (p.has_weight_mods) begin_mod_gradients<T>(p, p.weight_mods, in.weight_sums, shape.groups, executor);
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
  if (p.has_mods) finish_mod_gradients<T>(p, p.mods, in.sums, shape.groups, executor);
  if (p.has_weight_mods) finish_mod_gradients<T>(p, p.weight_mods, in.weight_sums, shape.groups, executor);
  AddUnits(units, p.score_dim, in.d_vector, g.d_additive_vector);
  AddUnits(units, p.score_dim, in.d_coverage, g.d_coverage_vector);
  if (!g.d_normalizer) return;
  const int64_t elements = heads * p.normalizer_elements;  // of the query heads of one kv head
  Fill(T{0}, p.kv_heads * elements, g.d_normalizer);
  for (int64_t unit = 0; unit < units; ++unit) {
    const int64_t kv = unit / shape.groups % p.kv_heads;
    AddScaled(T{1}, in.d_normalizer + unit * elements, elements, g.d_normalizer + kv * elements);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif
