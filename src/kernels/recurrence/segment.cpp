#include "kernels/recurrence/segment.h"

#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/recurrence/segment.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/simd/best.h"
#include "kernels/simd/memory-inl.h"
#include "kernels/simd/subnormals.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

// The products want rows of whole vectors, so both operands are copied.
template <class T>
void MapStates(const T* m, const T* x, const T* add, int64_t dim, int64_t columns, T* to, std::byte* memory) {
  const FlushSubnormals flush;
  const int64_t stride = Padded<T>(columns);
  Carve carve(memory);
  T *padded = carve.Take<T>(dim * stride), *sums = carve.Take<T>(dim * stride);
  for (int64_t i = 0; i < dim; ++i) {
    Fill(T{0}, stride, padded + i * stride);
    Fill(T{0}, stride, sums + i * stride);
    Copy(x + i * columns, columns, padded + i * stride);
    if (add) Copy(add + i * columns, columns, sums + i * stride);
  }
  Product<true, T>(dim, stride, {m, dim, 1, padded, stride, sums, stride, dim});
  for (int64_t i = 0; i < dim; ++i) Copy(sums + i * stride, columns, to + i * columns);
}

void MapStatesF32(const float* m, const float* x, const float* add, int64_t dim, int64_t columns, float* to,
                  std::byte* memory) {
  MapStates(m, x, add, dim, columns, to, memory);
}
void MapStatesF64(const double* m, const double* x, const double* add, int64_t dim, int64_t columns,
                  double* to, std::byte* memory) {
  MapStates(m, x, add, dim, columns, to, memory);
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fovea::kernels {

std::size_t map_states_bytes(std::int64_t dim, std::int64_t columns) {
  constexpr std::int64_t most_lanes = 16;
  const std::int64_t elements = dim * (columns + most_lanes);
  return 2 * static_cast<std::size_t>((elements * 8 + 63) / 64 * 64);
}
void map_states(const float* m, const float* x, const float* add, std::int64_t dim, std::int64_t columns,
                float* to, std::byte* memory) {
  FOVEA_BEST(MapStatesF32)(m, x, add, dim, columns, to, memory);
}
void map_states(const double* m, const double* x, const double* add, std::int64_t dim, std::int64_t columns,
                double* to, std::byte* memory) {
  FOVEA_BEST(MapStatesF64)(m, x, add, dim, columns, to, memory);
}

}  // namespace fovea::kernels
#endif
