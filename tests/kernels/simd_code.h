// The functions of each instruction set that simd_test.cpp calls.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fovea::kernels {

template <class T>
struct SimdCodeOf {
  void (*exp)(const T* x, std::int64_t n, T* y);
  void (*tanh)(const T* x, std::int64_t n, T* y);
  void (*fold)(const T* sixteen_vectors, T* sums);
  std::int64_t (*lanes)();
  void (*transpose)(const T* from, std::int64_t row_stride, std::int64_t count, std::int64_t dim,
                    std::int64_t stride, T* to);
  void (*product)(std::int64_t m, std::int64_t n, std::int64_t k, const T* a, const T* b, std::int64_t ldb,
                  T* c, std::int64_t ldc, bool add);
};
struct SimdCode {
  SimdCodeOf<float> f32;
  SimdCodeOf<double> f64;
  void (*transpose_blocks)(const std::uint32_t* from, std::int64_t rows, std::int64_t columns,
                           std::int64_t from_stride, std::uint32_t* to, std::int64_t to_stride);
  void (*widened)(const std::uint16_t* from, std::int64_t n, float* to);
  std::size_t (*carve_two)(std::byte* base, std::int64_t first, double** second);
};

}  // namespace fovea::kernels
