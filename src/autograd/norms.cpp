// Norms of rows. A loop is one pass over each row, which stays in the first-level cache.
#include <algorithm>
#include <cmath>
#include <string>

#include "autograd/norm_rows.h"
#include "autograd/record.h"
#include "autograd/rows.h"
#include "autograd/vector_math.h"
#include "fovea/autograd/ops.h"
#include "fovea/core/profile.h"

namespace fovea::autograd {
namespace {

FOVEA_CLONES float sum_of(const float* x, std::int64_t n) {
  float total = 0.0f;
#pragma omp simd reduction(+ : total)
  for (std::int64_t i = 0; i < n; ++i) total += x[i];
  return total;
}

FOVEA_CLONES float squares_about(const float* x, float mean, std::int64_t n) {
  float total = 0.0f;
#pragma omp simd reduction(+ : total)
  for (std::int64_t i = 0; i < n; ++i) total += (x[i] - mean) * (x[i] - mean);
  return total;
}

FOVEA_CLONES void scale(const float* x, float mean, float inverse, const float* factor, std::int64_t n,
                        float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * inverse * factor[i];
}

FOVEA_CLONES void scale_and_shift(const float* x, float mean, float inverse, const float* factor,
                                  const float* shift, std::int64_t n, float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * inverse * factor[i] + shift[i];
}

// Sums over one row that its gradient needs, and the row's share of those of gamma and beta.
struct RowSums {
  float sum, dot;  // of g and of g·normal, g the gradient by the normalised row
};
FOVEA_CLONES RowSums row_sums(const float* x, float mean, float inverse, const float* factor, const float* dy,
                              std::int64_t n, float* d_gamma, float* d_beta) {
  float sum = 0.0f, dot = 0.0f;
#pragma omp simd reduction(+ : sum, dot)
  for (std::int64_t i = 0; i < n; ++i) {
    const float normal = (x[i] - mean) * inverse, g = dy[i] * factor[i];
    sum += g;
    dot += g * normal;
    d_gamma[i] += dy[i] * normal;
    d_beta[i] += dy[i];
  }
  return {sum, dot};
}

FOVEA_CLONES void row_gradient(const float* x, float mean, float inverse, const float* factor,
                               const float* dy, float mean_sum, float mean_dot, std::int64_t n, float* dx) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float normal = (x[i] - mean) * inverse;
    dx[i] = inverse * (dy[i] * factor[i] - mean_sum - normal * mean_dot);
  }
}

Tensor shifted(const Tensor& x, float offset) {
  Tensor y(DType::f32, x.shape());
  std::transform(x.data<float>(), x.data<float>() + x.count(), y.data<float>(),
                 [offset](float value) { return value + offset; });
  return y;
}

}  // namespace

NormRows::NormRows(const char* function, const Shape& shape, const RowNorm& norm)
    : center_(norm.kind == RowNorm::Kind::layer),
      epsilon_(norm.epsilon),
      gamma_(norm.gamma),
      beta_(norm.beta) {
  if (!(epsilon_ >= 0.0f && std::isfinite(epsilon_)))
    throw InvalidArgument(function, "epsilon", "a finite number of at least 0", std::to_string(epsilon_));
  expect_elements(function, "gamma", gamma_.value());
  dim_ = gamma_.value().count();
  if (shape.rank() < 1 || shape[-1] != dim_) {
    throw InvalidArgument(function, "gamma", "[D] with D the last size of x " + to_string(shape),
                          to_string(gamma_.shape()));
  }
  if (!beta_.empty() && beta_.value().count() != dim_)
    throw InvalidArgument(function, "beta", "[" + std::to_string(dim_) + "]", to_string(beta_.shape()));
  rows_ = dim_ > 0 ? shape.count() / dim_ : 0;
  factor_ = norm.gamma_offset == 0.0f ? gamma_.value() : shifted(gamma_.value(), norm.gamma_offset);
  if (!beta_.empty()) shift_ = beta_.value();
}

void NormRows::forward(const float* x, float* y, float* moments) const {
  const auto size = static_cast<float>(dim_);
  const float mean = center_ ? sum_of(x, dim_) / size : 0.0f,
              inverse = 1.0f / std::sqrt(squares_about(x, mean, dim_) / size + epsilon_);
  if (shift_)
    scale_and_shift(x, mean, inverse, factor_.data<float>(), shift_.data<float>(), dim_, y);
  else
    scale(x, mean, inverse, factor_.data<float>(), dim_, y);
  if (!moments) return;
  moments[0] = mean;
  moments[1] = inverse;
}

void NormRows::backward(const float* x, const float* moments, const float* dy, float* sums, float* dx) const {
  const auto size = static_cast<float>(dim_);
  const float mean = moments[0], inverse = moments[1];
  const RowSums of = row_sums(x, mean, inverse, factor_.data<float>(), dy, dim_, sums, sums + dim_);
  // If the center is zero it does not depend on the row, and adds nothing to the gradient.
  row_gradient(x, mean, inverse, factor_.data<float>(), dy, center_ ? of.sum / size : 0.0f, of.dot / size,
               dim_, dx);
}

void NormRows::add_sums(const Tensor& sums) const {
  for (std::int64_t group = 0; group < groups(); ++group) {
    const float* of_group = sums.data<float>() + group * 2 * dim_;
    if (gamma_.recorded()) add_row(of_group, dim_, gradient_of(gamma_).data<float>());
    if (beta_.recorded()) add_row(of_group + dim_, dim_, gradient_of(beta_).data<float>());
  }
}

namespace {

Var normalized(const char* function, const Var& x, const RowNorm& by) {
  expect_elements(function, "x", x.value());
  const NormRows norm(function, x.shape(), by);
  const std::int64_t dim = norm.dim();
  Tape* tape = tape_of({&x, &by.gamma, &by.beta});
  const Tensor moments = tape ? Tensor(DType::f32, {norm.rows(), 2}) : Tensor();
  Tensor y(DType::f32, x.shape());
  norm.for_groups([&](std::int64_t, std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      norm.forward(x.value().data<float>() + r * dim, y.data<float>() + r * dim,
                   moments ? moments.data<float>() + 2 * r : nullptr);
  });
  if (!tape) return y;
  return {y, tape->record([=](const Tensor& dy) {
            Tensor dx(DType::f32, x.shape());
            const Tensor sums = norm.new_sums();
            norm.for_groups([&](std::int64_t group, std::int64_t begin, std::int64_t end) {
              for (std::int64_t r = begin; r < end; ++r)
                norm.backward(x.value().data<float>() + r * dim, moments.data<float>() + 2 * r,
                              dy.data<float>() + r * dim, sums.data<float>() + group * 2 * dim,
                              dx.data<float>() + r * dim);
            });
            norm.add_sums(sums);
            accumulate(x, dx);
          })};
}

}  // namespace

Var layer_norm(const Var& x, const Var& gamma, const Var& beta, float epsilon, float gamma_offset) {
  static constexpr ProfileLabel label{"layer norm", ProfilePart::norms};
  const ProfileSpan span(label, moved({&x}, x.value().count()));
  return normalized("layer_norm", x,
                    {.gamma = gamma, .beta = beta, .epsilon = epsilon, .gamma_offset = gamma_offset});
}

Var rms_norm(const Var& x, const Var& gamma, float epsilon, float gamma_offset) {
  static constexpr ProfileLabel label{"rms norm", ProfilePart::norms};
  const ProfileSpan span(label, moved({&x}, x.value().count()));
  return normalized(
      "rms_norm", x,
      {.kind = RowNorm::Kind::rms, .gamma = gamma, .epsilon = epsilon, .gamma_offset = gamma_offset});
}

}  // namespace fovea::autograd
