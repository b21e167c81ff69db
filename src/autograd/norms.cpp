// Norms of rows, with our own loops instead of oneDNN's primitive. A loop is one pass over each row in L1. A
// primitive would be built for every number of rows, and the rows of a padded batch change in every step.
#include <algorithm>
#include <cmath>
#include <string>

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

// Rows in each unit of parallel work. The number is fixed, so that sums over rows have the same order for
// every number of threads.
constexpr std::int64_t row_group = 128;

Tensor shifted(const Tensor& x, float offset) {
  Tensor y(DType::f32, x.shape());
  std::transform(x.data<float>(), x.data<float>() + x.count(), y.data<float>(),
                 [offset](float value) { return value + offset; });
  return y;
}

enum class Center : std::uint8_t { mean, zero };

// y = (x - center) / sqrt(mean (x - center)² + epsilon) · (gamma + offset) + beta.
Var normalized(const char* function, Center center, const Var& x, const Var& gamma, const Var& beta,
               float epsilon, float offset) {
  const std::int64_t dim = gamma.value().count();
  if (x.shape().rank() < 1 || x.size(-1) != dim) {
    throw InvalidArgument(function, "gamma", "[D] with D the last size of x " + to_string(x.shape()),
                          to_string(gamma.shape()));
  }
  if (!beta.empty() && beta.value().count() != dim)
    throw InvalidArgument(function, "beta", "[" + std::to_string(dim) + "]", to_string(beta.shape()));
  const std::int64_t rows = dim > 0 ? x.value().count() / dim : 0,
                     groups = (rows + row_group - 1) / row_group;
  const Tensor factor = offset == 0.0f ? gamma.value() : shifted(gamma.value(), offset),
               shift = beta.empty() ? Tensor::zeros(DType::f32, {dim}) : beta.value();
  Tape* tape = tape_of({&x, &gamma, &beta});
  // Of each row its mean and 1 / deviation, for backward.
  const Tensor moments = tape ? Tensor(DType::f32, {rows, 2}) : Tensor();
  const auto size = static_cast<float>(dim);
  Tensor y(DType::f32, x.shape());
  const float* from = x.value().data<float>();
  float* to = y.data<float>();
  default_executor().parallel_for(groups, [&](std::int64_t group, int) {
    for (std::int64_t r = group * row_group; r < std::min(rows, (group + 1) * row_group); ++r) {
      const float* row = from + r * dim;
      const float mean = center == Center::mean ? sum_of(row, dim) / size : 0.0f,
                  inverse = 1.0f / std::sqrt(squares_about(row, mean, dim) / size + epsilon);
      scale_and_shift(row, mean, inverse, factor.data<float>(), shift.data<float>(), dim, to + r * dim);
      if (!moments) continue;
      moments.data<float>()[2 * r] = mean;
      moments.data<float>()[2 * r + 1] = inverse;
    }
  });
  if (!tape) return y;
  return {y, tape->record([=](const Tensor& dy) {
            Tensor dx(DType::f32, x.shape());
            Tensor partial = Tensor::zeros(DType::f32, {groups, 2, dim});
            default_executor().parallel_for(groups, [&](std::int64_t group, int) {
              float* sums = partial.data<float>() + group * 2 * dim;
              for (std::int64_t r = group * row_group; r < std::min(rows, (group + 1) * row_group); ++r) {
                const float* row = x.value().data<float>() + r * dim;
                const float* d = dy.data<float>() + r * dim;
                const float mean = moments.data<float>()[2 * r], inverse = moments.data<float>()[2 * r + 1];
                const RowSums of =
                    row_sums(row, mean, inverse, factor.data<float>(), d, dim, sums, sums + dim);
                // If the center is zero it does not depend on the row, and adds nothing to the gradient.
                row_gradient(row, mean, inverse, factor.data<float>(), d,
                             center == Center::mean ? of.sum / size : 0.0f, of.dot / size, dim,
                             dx.data<float>() + r * dim);
              }
            });
            for (std::int64_t group = 0; group < groups; ++group) {
              const float* sums = partial.data<float>() + group * 2 * dim;
              if (gamma.recorded()) add_row(sums, dim, gradient_of(gamma).data<float>());
              if (beta.recorded()) add_row(sums + dim, dim, gradient_of(beta).data<float>());
            }
            accumulate(x, dx);
          })};
}

}  // namespace

Var layer_norm(const Var& x, const Var& gamma, const Var& beta, float epsilon, float gamma_offset) {
  static constexpr ProfileLabel label{"layer norm", ProfilePart::norms};
  const ProfileSpan span(label);
  return normalized("layer_norm", Center::mean, x, gamma, beta, epsilon, gamma_offset);
}

Var rms_norm(const Var& x, const Var& gamma, float epsilon, float gamma_offset) {
  static constexpr ProfileLabel label{"rms norm", ProfilePart::norms};
  const ProfileSpan span(label);
  return normalized("rms_norm", Center::zero, x, gamma, {}, epsilon, gamma_offset);
}

}  // namespace fovea::autograd
