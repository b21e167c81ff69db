// The norms by single rows, for operations that do more with a row while it lies in the first cache.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fovea/autograd/residual.h"
#include "fovea/core/executor.h"

namespace fovea::autograd {

/// y = (x - center) / sqrt(mean (x - center)² + epsilon) · (gamma + offset) + beta, the center being the mean
/// of layer norm and the zero of RMS norm.
class NormRows {
 public:
  /// For rows of x with this shape. Throws InvalidArgument, by `function`, for other sizes of gamma or beta.
  NormRows(const char* function, const Shape& shape, const RowNorm& norm);
  std::int64_t dim() const noexcept { return dim_; }
  std::int64_t rows() const noexcept { return rows_; }

  /// Calls body(group, begin, end) for groups of rows, on the default executor. Their size is fixed, so that
  /// sums over rows have the same order for every number of threads.
  template <class Body>
  void for_groups(Body&& body) const {
    default_executor().parallel_for(groups(), [&](std::int64_t group, int) {
      body(group, group * rows_of_a_group, std::min(rows_, (group + 1) * rows_of_a_group));
    });
  }
  /// One row. `moments`, if not null, receives its mean and 1 / deviation, for backward. y may be x.
  void forward(const float* x, float* y, float* moments) const;
  /// The row's gradient from that of y. Adds the row's share of the gradients of gamma and beta to `sums`
  /// [2, dim], those of its group. dx may be dy.
  void backward(const float* x, const float* moments, const float* dy, float* sums, float* dx) const;
  /// Zeros [groups, 2, dim] for `sums`.
  Tensor new_sums() const { return Tensor::zeros(DType::f32, {groups(), 2, dim_}); }
  /// Adds them to the gradients of gamma and beta.
  void add_sums(const Tensor& sums) const;

 private:
  static constexpr std::int64_t rows_of_a_group = 128;
  std::int64_t groups() const noexcept { return (rows_ + rows_of_a_group - 1) / rows_of_a_group; }
  bool center_;
  float epsilon_;
  std::int64_t dim_ = 0, rows_ = 0;
  Var gamma_, beta_;
  Tensor factor_, shift_;  // shift_: empty without beta
};

}  // namespace fovea::autograd
