// The values of `decode` for many rows: gathered[rows][dim] += weights[rows][keys] · values[keys][dim], with
// the sums in registers over a whole piece. Every sum has its terms in the order of AddEight
// (tiles/few_rows-inl.h). So a row has the same bits however many rows are beside it.
#if defined(FOVEA_TILES_VALUES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_TILES_VALUES_INL_H_
#undef FOVEA_TILES_VALUES_INL_H_
#else
#define FOVEA_TILES_VALUES_INL_H_
#endif

#include "kernels/tiles/scores-inl.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

#define FOVEA_UNROLL _Pragma("GCC unroll 16")

/// The columns of values that are multiplied at a time, in pairs of keys: four vectors. With six rows they
/// leave 8 registers of 32 for pairs and weights. The pairs of a piece (16 KiB) stay in the first-level
/// cache.
constexpr int kPanelVectors = 4;
constexpr int64_t kPanelPairs = tile_keys / 2, kPanelWidth = 16 * kPanelVectors;
using Panel = uint32_t[kPanelPairs * kPanelWidth];

/// Elements [i, i + 16 · kVectors) of `pairs` pairs of values, of which `dim` exist, interleaved.
template <int kVectors, Dots S>
HWY_INLINE void PackPanel(const S* const* values, int64_t pairs, int64_t i, int64_t dim, Panel& panel) {
  const PairTag d;
  constexpr int64_t kAhead = 8;
  for (int64_t k = 0; k < pairs; ++k) {
    for (int64_t n = 2 * (k + kAhead); k + kAhead < pairs && n < 2 * (k + kAhead) + 2; ++n)
      FetchIntoFirst<kVectors / 2>(values[n] + i);
    FOVEA_UNROLL for (int v = 0; v < kVectors; v += 2) {
      const int64_t from = i + v / 2 * kPairLanes;
      const Pairs a = LoadPairs(values[2 * k] + from, dim - from),
                  b = LoadPairs(values[2 * k + 1] + from, dim - from);
      auto* to = reinterpret_cast<uint16_t*>(panel + (k * kVectors + v) * 16);
      hn::Store(hn::InterleaveLower(d, a, b), d, to);
      hn::Store(hn::InterleaveUpper(d, a, b), d, to + kPairLanes);
    }
  }
}

/// gathered[r] += Σ weights · values for kRows rows and the columns of a panel. weights[16k] holds the pair k
/// of the first row, and those of the other rows lie behind it.
template <int kRows, int kVectors, class Ahead>
HWY_NOINLINE void AddPanel(const uint32_t* weights, const Panel& panel, int64_t pairs, float* gathered,
                           int64_t padded, Ahead& ahead) {
  const hn::ScalableTag<float> d;
  const PairTag d16;
  PairSums sums[kRows][kVectors];
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::LoadU(d, gathered + r * padded + 16 * v);
  }
  const uint32_t* values = panel;
  for (int64_t k = 0; k < pairs; ++k, values += 16 * kVectors, weights += kLaneRows) {
    if (k % 2 == 0) ahead.Fetch(1);
    Pairs value[kVectors];
    FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) value[v] =
        hn::Load(d16, reinterpret_cast<const uint16_t*>(values + 16 * v));
    FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
      const Pairs weight{_mm512_set1_epi32(static_cast<int>(weights[r]))};
      FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) AddDots(sums[r][v], weight, value[v]);
    }
  }
  FOVEA_UNROLL for (int r = 0; r < kRows; ++r) {
    FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[r][v], d, gathered + r * padded + 16 * v);
  }
}
#undef FOVEA_UNROLL

/// The same for the columns of a panel and `rows` of 16 rows.
template <int kVectors, class Ahead>
HWY_INLINE void AddPanelRows(int64_t rows, const uint32_t* weights, const Panel& panel, int64_t pairs,
                             float* gathered, int64_t padded, Ahead& ahead) {
  const auto add = [&]<int kRows>(int64_t r) HWY_ATTR {
    AddPanel<kRows, kVectors>(weights + r, panel, pairs, gathered + r * padded, padded, ahead);
  };
  if (rows == kLaneRows) {
    add.template operator()<6>(0);
    add.template operator()<5>(6);
    return add.template operator()<5>(11);
  }
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) add.template operator()<4>(r);
  if (r + 2 <= rows) {
    add.template operator()<2>(r);
    r += 2;
  }
  if (r < rows) add.template operator()<1>(r);
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();
#endif

#endif
