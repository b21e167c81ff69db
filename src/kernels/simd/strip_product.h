// What strip_product-inl.h multiplies.
#pragma once

#include <cstdint>

namespace fovea::kernels {

/// y = bias + x · w for x [rows, in], at least one row, and w [in, columns].
struct StripProduct {
  std::int64_t rows = 0, in = 0, columns = 0;
  const float* bias = nullptr;  ///< [columns], or null
  float* y = nullptr;           ///< [rows, columns]
  std::int64_t y_stride = 0;
};

}  // namespace fovea::kernels
