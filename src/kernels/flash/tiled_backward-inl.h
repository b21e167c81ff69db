// Backward of flash/tiled-inl.h. A unit of work is a (batch entry, kv head, group of keys). It keeps dK and
// dV of its keys in a scratch buffer and runs over the blocks of queries of its heads. Each tile takes five
// products: S = Q·Kᵀ, dP = dO·Vᵀ, dV += Pᵀ·dO, dK += dSᵀ·Q, dQ += dS·K. Each group of keys has its own
// partial dQ, which are added up in the order of the groups.
#if defined(FOVEA_FLASH_TILED_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_FLASH_TILED_BACKWARD_INL_H_
#undef FOVEA_FLASH_TILED_BACKWARD_INL_H_
#else
#define FOVEA_FLASH_TILED_BACKWARD_INL_H_
#endif

#include "kernels/flash/tiled-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// The scratch buffers of one thread, dims padded: scores and d_scores [48][stride], query [48][dim],
/// d_output [48][value_dim], keep [stride] (factors of dropout), d_key [group_keys][dim], d_value
/// [group_keys][value_dim].
template <class T>
struct BackwardScratch {
  T *scores, *d_scores, *query, *d_output, *keep, *d_key, *d_value;
  ModBuffers<T> mods;
};

template <class T>
struct BackwardShape {
  int64_t tiles, groups, group_keys, dim, value_dim;  // dims padded to whole vectors
};

template <class T>
HWY_INLINE BackwardShape<T> BackwardShapeOf(const Problem<T>& p) {
  const int64_t tiles = (p.key_len + kTileKeys - 1) / kTileKeys, groups = KeyGroups(p, tiles);
  return {tiles, groups, (tiles + groups - 1) / groups * kTileKeys, Padded<T>(p.score_dim),
          Padded<T>(p.value_dim)};
}

template <class T>
HWY_INLINE BackwardScratch<T> TakeBackwardScratch(const Problem<T>& p, const BackwardShape<T>& s,
                                                  Carve& carve) {
  const int64_t stride = TileStride<T>(p.key_len), keys = HWY_MIN(s.group_keys, p.key_len);
  return {carve.Take<T>(kBlockRows * stride),
          carve.Take<T>(kBlockRows * stride),
          carve.Take<T>(kBlockRows * s.dim),
          carve.Take<T>(kBlockRows * s.value_dim),
          carve.Take<T>(stride),
          carve.Take<T>(keys * s.dim),
          carve.Take<T>(keys * s.value_dim),
          TakeModBuffers(p.mods, kBlockRows, true, carve)};
}

template <class T>
struct BackwardOperands {
  Packed<T> keys_transposed, values_transposed;
  Operand<const T*> keys;
  T* d_query;     // [groups][batch, query_heads, query_len, dim]
  bool* touched;  // [groups][batch, query_heads, blocks]: where d_query has been written
  ModSums<T> sums;
};

template <class T>
HWY_NOINLINE void BackwardBlock(const Problem<T>& p, const BackwardProblem<T>& g,
                                const BackwardOperands<T>& in, const BackwardShape<T>& s,
                                const BlockAt<T>& at, int64_t key_begin, int64_t key_end, T* d_query,
                                bool* touched, const BackwardScratch<T>& scratch) {
  const BlockSchedule& schedule = ScheduleOf(p, at, key_begin, key_end);
  // A block that sees no key of the group is skipped, and so is its partial dQ. Under a window most blocks
  // are, and memory that is never written is never taken from the system.
  *touched = schedule.piece_count() > 0;
  if (!*touched) return;
  if (g.d_query.data) Fill(T{0}, at.rows * s.dim, d_query);
  const int64_t stride = in.keys_transposed.stride;
  const T scale = GradientScale(p);
  T mean[kBlockRows];
  const T* log_sum_exp = g.log_sum_exp + (at.b * p.query_heads + at.h) * p.query_len + at.row;
  for (int64_t r = 0; r < at.rows; ++r) {
    if (log_sum_exp[r] == kHidden<T>) {  // a NaN in such a row must not spread: the products below read 0
      mean[r] = 0;
      Fill(T{0}, s.value_dim, scratch.d_output + r * s.value_dim);
      Fill(T{0}, s.dim, scratch.query + r * s.dim);
      continue;
    }
    const T* d_output = RowAt(g.d_output, at.b, at.h, at.row + r);
    mean[r] = Dot(d_output, RowAt(g.output, at.b, at.h, at.row + r), p.value_dim);
    Copy(d_output, p.value_dim, scratch.d_output + r * s.value_dim);
    Fill(T{0}, s.value_dim - p.value_dim, scratch.d_output + r * s.value_dim + p.value_dim);
    Copy(RowAt(p.query, at.b, at.h, at.row + r), p.score_dim, scratch.query + r * s.dim);
    Fill(T{0}, s.dim - p.score_dim, scratch.query + r * s.dim + p.score_dim);
  }
  for (int64_t n = 0; n < schedule.piece_count(); ++n) {
    const Piece& piece = schedule.pieces()[n];
    const int64_t count = piece.end - piece.begin, padded = Padded<T>(count);
    KeyRange ranges[kBlockRows];
    RangesOf<T>(schedule, piece, at.rows, ranges);
    BlockScores(p, in.keys_transposed, at, schedule, piece, ranges, scratch.scores, stride, scratch.mods);
    const T* values =
        in.values_transposed.Tile(at.b, at.kv, piece.begin / kTileKeys) + piece.begin % kTileKeys;
    StripProducts<T>(
        piece, at.rows, ranges,
        {scratch.d_output, s.value_dim, 1, values, stride, scratch.d_scores, stride, p.value_dim});
    for (int64_t r = 0; r < at.rows; ++r) {
      const KeyRange seen = SeenPart(ranges[r], count, scratch.scores + r * stride);
      SeenPart(ranges[r], count, scratch.d_scores + r * stride);
      if (seen.begin == seen.end) continue;
      SavedWeights(p, ScaleOf(p), log_sum_exp[r], sink_of(p, at.h), seen.end - seen.begin,
                   scratch.scores + r * stride + seen.begin);
      const bool drops = p.dropout_rate > 0;
      if (drops) {
        Fill(T{0}, padded, scratch.keep);
        KeepFactors(p, SiteOf(p, at.b, at.h, at.row + r, piece.begin), count, scratch.keep);
      }
      const int64_t from = r * stride + seen.begin;
      ScoreGradientRow(p, Padded<T>(seen.end) - seen.begin, mean[r], scale,
                       drops ? scratch.keep + seen.begin : nullptr, scratch.scores + from,
                       scratch.d_scores + from);
    }
    if (p.has_mods) {
      mods_gradient<T>(p, {at.b, at.h, at.row, at.rows, piece.begin, count, key_begin / s.group_keys},
                       scratch.d_scores, stride, scratch.mods, in.sums);
    }
    const int64_t first = piece.begin - key_begin;
    ForKeyStrips(piece, at.rows, ranges, [&](int64_t key, int64_t keys, int64_t row, int64_t rows) {
      const int64_t from = row * stride + key, to = first + key;
      if (g.d_value.data) {
        Product<true, T>(keys, s.value_dim,
                         {scratch.scores + from, 1, stride, scratch.d_output + row * s.value_dim, s.value_dim,
                          scratch.d_value + to * s.value_dim, s.value_dim, rows});
      }
      if (g.d_key.data) {
        Product<true, T>(keys, s.dim,
                         {scratch.d_scores + from, 1, stride, scratch.query + row * s.dim, s.dim,
                          scratch.d_key + to * s.dim, s.dim, rows});
      }
    });
    if (!g.d_query.data) continue;
    ForStrips(piece, at.rows, ranges, [&](int64_t row, int64_t rows, const KeyRange& hull) {
      ForRuns(piece, schedule.visible(), hull, [&](int64_t begin, int64_t end) {
        Product<true, T>(rows, s.dim,
                         {scratch.d_scores + row * stride + (begin - piece.begin), stride, 1,
                          RowAt(in.keys, at.b, at.kv, begin), in.keys.row_stride, d_query + row * s.dim,
                          s.dim, end - begin});
      });
    });
  }
}

template <class T>
HWY_NOINLINE void BackwardUnit(const Problem<T>& p, const BackwardProblem<T>& g,
                               const BackwardOperands<T>& in, const BackwardShape<T>& s, int64_t unit,
                               const BackwardScratch<T>& scratch) {
  const int64_t group = unit % s.groups, kv = unit / s.groups % p.kv_heads, b = unit / s.groups / p.kv_heads;
  const int64_t key_begin = group * s.group_keys, key_end = HWY_MIN(p.key_len, key_begin + s.group_keys);
  const int64_t keys = HWY_MAX(key_end - key_begin, 0), heads = p.query_heads / p.kv_heads;
  Fill(T{0}, keys * s.dim, scratch.d_key);
  Fill(T{0}, keys * s.value_dim, scratch.d_value);
  for (int64_t h = kv * heads; h < (kv + 1) * heads; ++h) {
    const int64_t head = (group * p.batch + b) * p.query_heads + h;
    T* d_query = in.d_query + head * p.query_len * s.dim;
    bool* touched = in.touched + head * QueryBlocks(p);
    for (int64_t row = 0; row < p.query_len; row += kBlockRows) {
      const BlockAt<T> at{b, h, kv, row, HWY_MIN(kBlockRows, p.query_len - row)};
      BackwardBlock(p, g, in, s, at, key_begin, HWY_MAX(key_end, key_begin), d_query + row * s.dim,
                    touched + row / kBlockRows, scratch);
    }
  }
  for (int64_t j = 0; j < keys; ++j) {
    if (g.d_key.data) Copy(scratch.d_key + j * s.dim, p.score_dim, RowAt(g.d_key, b, kv, key_begin + j));
    if (g.d_value.data)
      Copy(scratch.d_value + j * s.value_dim, p.value_dim, RowAt(g.d_value, b, kv, key_begin + j));
  }
}

/// body(unit, worker) for every (batch, kv head, group of keys), all in parallel. If heads add to one dense
/// gradient they run one after the other: the groups then share its columns.
template <class T, class Body>
HWY_INLINE void ForUnits(const Problem<T>& p, int64_t groups, Executor& executor, Body&& body) {
  const int64_t heads = p.batch * p.kv_heads;
  if (!p.shared_dense_gradient) return executor.parallel_for(heads * groups, body);
  executor.parallel_for(groups, [&](int64_t group, int worker) {
    for (int64_t head = 0; head < heads; ++head) body(head * groups + group, worker);
  });
}

/// d_query = Σ of the partial dQ in the order of the groups; only of those that were written, if `touched` is
/// given.
template <class T>
HWY_NOINLINE void AddPartials(const Problem<T>& p, const BackwardProblem<T>& g, int64_t groups, int64_t width,
                              const T* partials, const bool* touched, int64_t block_rows,
                              Executor& executor) {
  const int64_t heads = p.batch * p.query_heads, blocks = (p.query_len + block_rows - 1) / block_rows;
  executor.parallel_for(heads, [&](int64_t unit, int) {
    for (int64_t r = 0; r < p.query_len; ++r) {
      T* to = RowAt(g.d_query, unit / p.query_heads, unit % p.query_heads, r);
      bool first = true;
      for (int64_t group = 0; group < groups; ++group) {
        const int64_t head = group * heads + unit;
        if (touched && !touched[head * blocks + r / block_rows]) continue;
        const T* from = partials + (head * p.query_len + r) * width;
        first ? Copy(from, p.score_dim, to) : AddScaled(T{1}, from, p.score_dim, to);
        first = false;
      }
      if (first) Fill(T{0}, p.score_dim, to);
    }
  });
}

template <class T>
HWY_INLINE int64_t TouchedSize(const Problem<T>& p, int64_t units) {
  return units * (p.query_heads / p.kv_heads) * QueryBlocks(p);
}
template <class T>
HWY_INLINE int64_t PartialsSize(const Problem<T>& p, int64_t units, int64_t width) {
  return units * (p.query_heads / p.kv_heads) * p.query_len * width;
}

template <class T>
HWY_NOINLINE size_t TiledBackwardBytes(const Problem<T>& p, int threads) {
  Carve carve(nullptr);
  BackwardShape<T> s = BackwardShapeOf(p);
  if (p.has_mods) s.group_keys = MostGroupKeys(p, s.groups, kTileKeys);
  carve.Take<T>(TransposedSize(p, p.score_dim));
  carve.Take<T>(TransposedSize(p, p.value_dim));
  carve.Take<T>(PaddedRowsSize(p, p.score_dim));
  carve.Take<T>(PartialsSize(p, MostUnits(p, s.tiles), s.dim));
  carve.Take<bool>(TouchedSize(p, MostUnits(p, s.tiles)));
  carve.Take<T>(most_mod_sum_elements(p, p.mods, MostUnits(p, s.tiles)));
  for (int t = 0; t < threads; ++t) TakeBackwardScratch(p, s, carve);
  return carve.Used();
}

template <class T>
HWY_NOINLINE void TiledBackward(const Problem<T>& p, const BackwardProblem<T>& g, Executor& executor,
                                std::byte* memory) {
  Carve carve(memory);
  const BackwardShape<T> s = BackwardShapeOf(p);
  BackwardOperands<T> in;
  PackTransposed(p, p.key, p.score_dim, carve.Take<T>(TransposedSize(p, p.score_dim)), executor,
                 &in.keys_transposed);
  PackTransposed(p, p.value, p.value_dim, carve.Take<T>(TransposedSize(p, p.value_dim)), executor,
                 &in.values_transposed);
  in.keys = PadRows(p, p.key, p.score_dim, carve.Take<T>(PaddedRowsSize(p, p.score_dim)), executor);
  in.d_query = carve.Take<T>(PartialsSize(p, p.batch * p.kv_heads * s.groups, s.dim));
  in.touched = carve.Take<bool>(TouchedSize(p, p.batch * p.kv_heads * s.groups));
  in.sums = TakeModSums(p, p.mods, s.groups, carve);
  if (p.has_mods) begin_mod_gradients<T>(p, p.mods, in.sums, s.groups, executor);
  std::byte* scratch = memory + carve.Used();
  Carve one(nullptr);
  TakeBackwardScratch(p, s, one);
  ForUnits(p, s.groups, executor, [&](int64_t unit, int worker) {
    Carve mine(scratch + static_cast<size_t>(worker) * one.Used());
    BackwardUnit(p, g, in, s, unit, TakeBackwardScratch(p, s, mine));
  });
  if (g.d_query.data) AddPartials(p, g, s.groups, s.dim, in.d_query, in.touched, kBlockRows, executor);
  if (p.has_mods) finish_mod_gradients<T>(p, p.mods, in.sums, s.groups, executor);
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif
