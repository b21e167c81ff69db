// The size of a tile of a product of f32 whose sums stay in registers, for products of layers.
#if defined(FOVEA_SIMD_REGISTER_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_SIMD_REGISTER_TILE_INL_H_
#undef FOVEA_SIMD_REGISTER_TILE_INL_H_
#else
#define FOVEA_SIMD_REGISTER_TILE_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

// Two vectors of columns times as many rows as leave registers for the two vectors and one of the rows.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr int kTileRows = 12;
#else
constexpr int kTileRows = 6;
#endif
constexpr int64_t kTileColumns = 2 * hwy::HWY_NAMESPACE::MaxLanes(hwy::HWY_NAMESPACE::ScalableTag<float>());

// How many times kTileColumns a tile of so many rows takes: one chain of sums waits four cycles for each
// step, so eight chains or more keep both units busy.
constexpr int GroupsOf(int rows) {
  return rows == 1 ? 4 : rows <= 3 ? 2 : 1;
}

// The rows of the next tile, where `left` rows are left. Tiles share them evenly: 32 rows in tiles of six
// would leave two rows, whose four chains keep one unit of two busy.
constexpr int64_t TileRowsOf(int64_t left) {
  const int64_t tiles = (left + kTileRows - 1) / kTileRows;
  return (left + tiles - 1) / tiles;
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif
