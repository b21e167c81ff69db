// Weights in the order in which products read them. Inference multiplies many small batches of rows by the
// same matrices, and a product that finds its matrix in this order needs no copy of it.
#pragma once

#include <cstdint>

#include "fovea/core/tensor.h"

namespace fovea::autograd {

/// A copy of a matrix [out, in] in panels of 32 rows. Panel p holds, for each column k, the elements [32p,
/// 32p + 32) of column k side by side; rows past the last are zeros.
class PackedMatrix {
 public:
  static constexpr std::int64_t panel_rows = 32;
  /// Throws InvalidArgument if `weight` is not f32 [out, in].
  explicit PackedMatrix(const Tensor& weight);

  std::int64_t out() const noexcept { return out_; }
  std::int64_t in() const noexcept { return in_; }
  /// [panels, in, 32]
  const float* data() const noexcept { return panels_.data<float>(); }
  std::int64_t bytes() const noexcept { return panels_.count() * 4; }

 private:
  std::int64_t out_, in_;
  Tensor panels_;
};

}  // namespace fovea::autograd
