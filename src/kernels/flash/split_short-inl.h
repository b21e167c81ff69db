// The algorithm `split` for short heads of a cache. A sentence that a translator writes has some ten keys a
// head. SplitBlock copies queries and sums, and scores keys that are not there. Its loops have lengths that
// are known only at run time. For so few keys all that is more work than the products. Here each step runs
// over all heads of a unit, so that the heads do not wait for each other's sums.
#if defined(FOVEA_FLASH_SPLIT_SHORT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_FLASH_SPLIT_SHORT_INL_H_
#undef FOVEA_FLASH_SPLIT_SHORT_INL_H_
#else
#define FOVEA_FLASH_SPLIT_SHORT_INL_H_
#endif

#include "kernels/flash/split_pieces-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

#define FOVEA_UNROLL _Pragma("GCC unroll 16")

/// The vectors of a row that stay in registers beside the sums of kSums keys.
constexpr int kShortVectors = 4;
/// The most queries of an entry that ShortHeads takes.
constexpr int64_t kMostShortQueries = 16;

/// Some heads of keys of one entry of a cache.
template <class T>
struct HeadsOfEntry {
  const Problem<T>* problem = nullptr;  ///< null: no entry
  int64_t kv = 0;
};

/// Whether the rows of [0, length) are all there.
HWY_INLINE bool HoldsAll(const CachedRows& rows, int64_t length) {
  int64_t end = 0;
  for (int64_t n = 0; n < rows.count && rows.runs[n].position == end; ++n) end += rows.runs[n].count;
  return end >= length;
}

/// body(first row, count of rows, position of the first, number of the run) for the runs of rows [0, length)
/// of a head.
template <class S, class Body>
HWY_INLINE void ForRunsOfHead(const HeadRuns<S>& head, int64_t length, Body&& body) {
  for (int64_t n = 0, begin = 0; begin < length; begin += head.rows->runs[n++].count)
    body(head.First(n), HWY_MIN(head.rows->runs[n].count, length - begin), begin, n);
}

/// Fetches the lines of some heads, while those of another entry are computed. Between two steps of a decoder
/// all weights pass through the caches, and heads come from the third level or from memory. Fetched in one
/// go, lines wait for each other.
template <class S>
class LinesOfHeads {
 public:
  LinesOfHeads() = default;
  /// `heads` heads from `first` on. Nothing is fetched of rows that do not lie side by side.
  HWY_INLINE LinesOfHeads(const HeadRuns<S>& first, int64_t heads, int64_t dim)
      : head_(first), heads_(heads) {
    if (first.stride == dim) Run();
  }
  HWY_INLINE void Next(int64_t lines) {
    for (; lines > 0 && left_ > 0; --lines) {
      FetchLine(line_);
      line_ += kLine;
      left_ -= kLine;
      if (left_ <= 0) NextRun();
    }
  }

 private:
  static constexpr int64_t kLine = 64 / sizeof(S);
  HWY_INLINE void Run() {
    line_ = head_.First(run_);
    left_ = head_.rows->runs[run_].count * head_.stride;
  }
  HWY_INLINE void NextRun() {
    if (++run_ == head_.rows->count) {
      if (--heads_ == 0) return;
      run_ = 0;
      ++head_.head;
    }
    Run();
  }

  HeadRuns<S> head_;
  int64_t heads_ = 0, run_ = 0;
  const S* line_ = nullptr;
  int64_t left_ = 0;  ///< elements of this run from line_ on
};

/// Whether ShortHeads may run the heads of an entry. They are stored as S. By AVX-512 it was not measured.
/// Rows of one or two vectors have loops of their own there (IfShort).
template <class S, class T>
HWY_INLINE bool TakesShortHeads(const Problem<T>& p, const ForwardOutputs<T>& out) {
  if constexpr (!std::is_same_v<S, T> || (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3)) {
    return false;
  } else {
    const int64_t block = kShortVectors * static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
    return p.cached.count > 0 && IsShort<S>(p) && p.key_len > 0 && p.key_len <= kTileKeys &&
           p.query_len <= kMostShortQueries && p.score_dim % block == 0 && p.value_dim % block == 0 &&
           p.normalizer == NormalizerKind::softmax && !p.has_mods && p.dropout_rate == 0 && p.scale > 0 &&
           out.output.data && HoldsAll(p.cached, p.key_len) && !mask_reads_head(*p.mask);
  }
}

/// The products of a query with kKeys keys, of which the first `there` exist.
template <int kKeys, bool kWhole, class T>
HWY_INLINE void ShortGroup(const T* query, const T* keys, int64_t stride, int64_t dim, int64_t there,
                           T* scores) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V sums[kSums];
  FOVEA_UNROLL for (int k = 0; k < kSums; ++k) sums[k] = hn::Zero(d);
  const T* rows[kKeys];
  // Behind the last key the last one is read again.
  FOVEA_UNROLL for (int k = 0; k < kKeys; ++k) rows[k] = keys + (kWhole ? k : HWY_MIN(k, there - 1)) * stride;
  for (int64_t i = 0; i < dim; i += kShortVectors * lanes) {
    V part[kShortVectors];
    FOVEA_UNROLL for (int c = 0; c < kShortVectors; ++c) part[c] = hn::LoadU(d, query + i + c * lanes);
    FOVEA_UNROLL for (int k = 0; k < kKeys; ++k) {
      FOVEA_UNROLL for (int c = 0; c < kShortVectors; ++c) sums[k] =
          hn::MulAdd(part[c], hn::LoadU(d, rows[k] + i + c * lanes), sums[k]);
    }
  }
  alignas(64) T folded[kSums > kLanes ? kSums : kLanes];
  FoldSums<kSums, kLanes>(d, sums, folded);
  if (kWhole) {
    FOVEA_UNROLL for (int c = 0; c < kSums; c += kLanes) hn::StoreU(hn::LoadU(d, folded + c), d, scores + c);
    return;
  }
  for (int64_t c = 0; c < there; c += kLanes)
    hn::StoreU(hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(there - c)), hn::LoadU(d, folded + c),
                              hn::Set(d, kHidden<T>)),
               d, scores + c);
}

/// scores[j] = ⟨query, key j⟩ for keys [0, count), to the bits of StoredScores. Up to a vector less one is
/// written behind them.
template <class T>
HWY_INLINE void ShortProducts(const T* query, const T* keys, int64_t stride, int64_t dim, int64_t count,
                              T* scores, LinesOfHeads<T>& ahead) {
  const int64_t lines = dim * static_cast<int64_t>(sizeof(T)) / 64;
  int64_t j = 0;
  for (; j + kSums <= count; j += kSums) {
    ShortGroup<kSums, true>(query, keys + j * stride, stride, dim, kSums, scores + j);
    ahead.Next(kSums * lines);
  }
  if (count - j > kSums / 2)
    ShortGroup<kSums, false>(query, keys + j * stride, stride, dim, count - j, scores + j);
  else if (count > j)
    ShortGroup<kSums / 2, false>(query, keys + j * stride, stride, dim, count - j, scores + j);
  ahead.Next((count - j) * lines);
}

/// Turns the scores of kRows whole rows into weights as Absorb does; behind the scores stands -inf up to
/// whole vectors. Returns false where a weight is 0, or a score is NaN or infinite: SplitBlock then computes
/// all rows of the unit again.
template <int kRows, class T>
HWY_INLINE bool ShortWeights(T scale, int64_t count, T* scores, int64_t score_stride, RowState<T>* states) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const V factor = hn::Set(d, scale);
  V best[kRows], offset[kRows], sum[kRows];
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) best[r] = hn::LoadU(d, scores + r * score_stride);
  for (int64_t i = lanes; i < count; i += lanes) {
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) best[r] =
        hn::Max(best[r], hn::LoadU(d, scores + r * score_stride + i));
  }
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    states[r].maximum = hn::GetLane(hn::MaxOfLanes(d, best[r])) * scale;
    offset[r] = hn::Set(d, states[r].maximum);
    sum[r] = hn::Zero(d);
  }
  auto none = hn::FirstN(d, 0);
  for (int64_t i = 0; i < count; i += lanes) {
    const auto there = hn::FirstN(d, static_cast<size_t>(count - i));
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
      T* at = scores + r * score_stride + i;
      const V e = FullExponential::Of(d, hn::Sub(hn::Mul(hn::LoadU(d, at), factor), offset[r]));
      hn::StoreU(e, d, at);
      none = hn::Or(none, hn::And(hn::Eq(e, hn::Zero(d)), there));
      sum[r] = hn::Add(sum[r], e);
    }
  }
  bool all_weigh = hn::AllFalse(d, none);
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    states[r].sum = hn::GetLane(hn::SumOfLanes(d, sum[r]));
    all_weigh &= states[r].sum == states[r].sum && states[r].maximum > kHidden<T>;
  }
  return all_weigh;
}

/// outputs[r] = factors[r] Σ_j weights[r · weight_stride + j] · value j of head r, for kRows rows. The heads
/// lie in the same runs.
template <int kRows, class T>
HWY_INLINE void ShortValues(const T* weights, int64_t weight_stride, const HeadRuns<T>* heads, int64_t dim,
                            int64_t count, const T* factors, T* const* outputs, LinesOfHeads<T>& ahead) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), stride = heads[0].stride;
  for (int64_t i = 0; i < dim; i += kShortVectors * lanes) {
    V sums[kRows][kShortVectors];
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
      FOVEA_UNROLL for (int c = 0; c < kShortVectors; ++c) sums[r][c] = hn::Zero(d);
    }
    ForRunsOfHead(heads[0], count, [&](const T* first, int64_t rows, int64_t begin, int64_t run) HWY_ATTR {
      const T* weight = weights + begin;
      int64_t behind[kRows];  // a head behind the first
      FOVEA_UNROLL for (int r = 0; r < kRows; ++r) behind[r] =
          (heads[r].head - heads[0].head) * heads[0].rows->runs[run].value_head_stride;
      for (const T *value = first + i, *end = value + rows * stride; value != end;
           value += stride, ++weight) {
        ahead.Next(kRows * kShortVectors * lanes * static_cast<int64_t>(sizeof(T)) / 64);
        FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
          const V by = hn::Set(d, weight[r * weight_stride]);
          const T* from = value + behind[r];
          FOVEA_UNROLL for (int c = 0; c < kShortVectors; ++c) sums[r][c] =
              hn::MulAdd(by, hn::LoadU(d, from + c * lanes), sums[r][c]);
        }
      }
    });
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
      const V factor = hn::Set(d, factors[r]);
      FOVEA_UNROLL for (int c = 0; c < kShortVectors; ++c)
          hn::StoreU(hn::Mul(sums[r][c], factor), d, outputs[r] + i + c * lanes);
    }
  }
}

/// Computes `turns` heads of keys of an entry to the bits of SplitBlock. Every query sees all keys up to some
/// position, which may be another for each query. Meanwhile fetches as many heads of `next`. Returns false
/// where it cannot.
template <class T, class S>
HWY_NOINLINE bool ShortHeads(const Problem<T>& p, const ForwardOutputs<T>& out, int64_t kv, int64_t turns,
                             const HeadsOfEntry<T>& next, const SplitScratch<T>& scratch) {
  if (!TakesShortHeads<S>(p, out)) return false;
  if constexpr (std::is_same_v<S, T>) {
    const int64_t heads = p.query_heads / p.kv_heads, queries = p.query_len, rows = heads * queries,
                  lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>())), stride = scratch.stride;
    const BlockSchedule& schedule = ScheduleOf(p, {0, kv * heads, kv, 0, queries}, 0, p.key_len);
    if (schedule.piece_count() != 1) return false;
    const Piece piece = *schedule.pieces();
    int64_t seen[kMostShortQueries];
    for (int64_t r = 0; r < queries; ++r) {
      const KeySpan whole{piece.begin, piece.end};
      const SpanList spans = piece.full ? SpanList{&whole, 1} : schedule.row(r);
      if (spans.count != 1 || spans.data->begin != 0) return false;
      seen[r] = HWY_MIN(spans.data->end, piece.end);  // the spans of a caller's mask may end behind the keys
    }
    LinesOfHeads<T> keys_ahead, values_ahead;
    if (next.problem && next.problem->cached.count > 0 && IsShort<S>(*next.problem)) {
      const CachedRows& cached = next.problem->cached;
      keys_ahead = {KeyRuns<S>(cached, next.kv), turns, p.score_dim};
      values_ahead = {ValueRuns<S>(cached, next.kv), turns, p.value_dim};
    }
    for (int64_t n = 0; n < turns; ++n) {
      const HeadRuns<S> keys = KeyRuns<S>(p.cached, kv + n);
      for (int64_t r = 0; r < rows; ++r) {
        const T* query = RowAt(p.query, 0, (kv + n) * heads + r / queries, r % queries);
        T* scores = scratch.scores + (n * rows + r) * stride;
        const int64_t count = seen[r % queries];
        Fill(kHidden<T>, lanes, scores + Padded<T>(count) - lanes);
        ForRunsOfHead(keys, count, [&](const T* first, int64_t there, int64_t begin, int64_t) HWY_ATTR {
          ShortProducts(query, first, keys.stride, p.score_dim, there, scores + begin, keys_ahead);
        });
      }
    }
    bool all_weigh = true;
    const auto weigh = [&]<int kRows>(int64_t r) HWY_ATTR {
      all_weigh &= ShortWeights<kRows>(static_cast<T>(p.scale), seen[r % queries],
                                       scratch.scores + r * stride, stride, scratch.states + r);
    };
    const auto add = [&]<int kRows>(int64_t first) HWY_ATTR {
      HeadRuns<S> values[kRows];
      T *outputs[kRows], factors[kRows];
      FOVEA_UNROLL for (int k = 0; k < kRows; ++k) {
        const int64_t r = first + k, h = kv * heads + r / queries, row = r % queries;
        const RowState<T>& state = scratch.states[r];
        values[k] = ValueRuns<S>(p.cached, kv + r / rows);
        outputs[k] = RowAt(out.output, 0, h, row);
        factors[k] = FactorOf(state, sink_of(p, h));
        if (out.log_sum_exp) out.log_sum_exp[h * queries + row] = LogSumExp(state);
      }
      ShortValues<kRows>(scratch.scores + first * stride, stride, values, p.value_dim, seen[first % queries],
                         factors, outputs, values_ahead);
    };
    // Rows that see as many keys go side by side: one would wait for its own sums.
    const bool alike = piece.full || queries == 1;
    alike ? ForRowGroups<4>(turns * rows, weigh) : ForRowGroups<1>(turns * rows, weigh);
    if (!all_weigh) return false;
    keys_ahead.Next(INT64_MAX);
    alike ? ForRowGroups<2>(turns * rows, add) : ForRowGroups<1>(turns * rows, add);
    values_ahead.Next(INT64_MAX);
  }
  return true;
}

#undef FOVEA_UNROLL

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif
