// Sums, pooling over time, and the products of two sequences.
#include <cmath>

#include "autograd/gemm.h"
#include "autograd/record.h"
#include "autograd/row_lengths.h"
#include "fovea/autograd/ops.h"
#include "fovea/core/kept_vector.h"
#include "fovea/core/profile.h"

namespace fovea::autograd {

Var sum(const Var& x) {
  static constexpr ProfileLabel label{"sum", ProfilePart::elementwise};
  const ProfileSpan span(label, moved({&x}));
  expect_elements("sum", "x", x.value());
  Tensor total(DType::f32, {1});
  double added = 0.0;
  for (std::int64_t i = 0; i < x.value().count(); ++i) added += x.value().data<float>()[i];
  *total.data<float>() = static_cast<float>(added);
  return result_of(tape_of({&x}), total, [=](const Tensor& d) {
    Tensor dx(DType::f32, x.shape());
    dx.fill(*d.data<float>());
    accumulate(x, dx);
  });
}

namespace {

Var pool_mean(const Var& x, const KeptVector<std::int64_t>& lengths) {
  static constexpr ProfileLabel label{"pool mean", ProfilePart::elementwise};
  const ProfileSpan span(label, moved({&x}));
  const std::int64_t batch = x.size(0), time = x.size(1), dim = x.size(2);
  Tensor out = Tensor::zeros(DType::f32, {batch, dim});
  for (std::int64_t b = 0; b < batch; ++b) {
    const float* rows = x.value().data<float>() + b * time * dim;
    float* mean = out.data<float>() + b * dim;
    for (std::int64_t t = 0; t < lengths[b]; ++t) {
      for (std::int64_t i = 0; i < dim; ++i) mean[i] += rows[t * dim + i];
    }
    for (std::int64_t i = 0; i < dim; ++i) mean[i] /= static_cast<float>(lengths[b]);
  }
  return result_of(tape_of({&x}), out, [=](const Tensor& d) {
    Tensor dx = Tensor::zeros(DType::f32, x.shape());
    for (std::int64_t b = 0; b < batch; ++b) {
      const float share = 1.0f / static_cast<float>(lengths[b]);
      for (std::int64_t t = 0; t < lengths[b]; ++t) {
        for (std::int64_t i = 0; i < dim; ++i)
          dx.data<float>()[(b * time + t) * dim + i] = d.data<float>()[b * dim + i] * share;
      }
    }
    accumulate(x, dx);
  });
}

Var pool_max(const Var& x, const KeptVector<std::int64_t>& lengths) {
  static constexpr ProfileLabel label{"pool max", ProfilePart::elementwise};
  const ProfileSpan span(label, moved({&x}));
  const std::int64_t batch = x.size(0), time = x.size(1), dim = x.size(2);
  Tensor out(DType::f32, {batch, dim});
  KeptVector<std::int64_t> best(static_cast<std::size_t>(batch * dim));  // the row of each maximum
  for (std::int64_t b = 0; b < batch; ++b) {
    const float* rows = x.value().data<float>() + b * time * dim;
    for (std::int64_t i = 0; i < dim; ++i) {
      std::int64_t row = 0;
      for (std::int64_t t = 1; t < lengths[b]; ++t) {
        if (rows[t * dim + i] > rows[row * dim + i]) row = t;
      }
      best[b * dim + i] = row;
      out.data<float>()[b * dim + i] = rows[row * dim + i];
    }
  }
  return result_of(tape_of({&x}), out, [=](const Tensor& d) {
    Tensor dx = Tensor::zeros(DType::f32, x.shape());
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t i = 0; i < dim; ++i)
        dx.data<float>()[(b * time + best[b * dim + i]) * dim + i] = d.data<float>()[b * dim + i];
    }
    accumulate(x, dx);
  });
}

}  // namespace

Var pool(Pool kind, const Var& x, std::span<const std::int64_t> lengths) {
  if (x.shape().rank() != 3) throw InvalidArgument("pool", "x", "[B, T, D]", to_string(x.shape()));
  const KeptVector<std::int64_t> checked =
      checked_row_lengths("pool", lengths, {.batch = x.size(0), .least = 1, .most = x.size(1)});
  return kind == Pool::mean ? pool_mean(x, checked) : pool_max(x, checked);
}

Var inner_products(const Var& a, const Var& b) {
  static constexpr ProfileLabel label{"inner products", ProfilePart::products};
  const ProfileSpan span(label);
  const bool shaped = a.shape().rank() == 3 && b.shape().rank() == 3;
  if (!shaped || a.size(0) != b.size(0) || a.size(2) != b.size(2)) {
    throw InvalidArgument("inner_products", "a, b", "[B, M, D] and [B, N, D]",
                          to_string(a.shape()) + " and " + to_string(b.shape()));
  }
  const std::int64_t batch = a.size(0), m = a.size(1), n = b.size(1), dim = a.size(2);
  Tape* const tape = tape_of({&a, &b});
  const Operands operands = operands_of(tape);
  Tensor out(DType::f32, {batch, m, n});
  for (std::int64_t e = 0; e < batch; ++e) {
    gemm(m, n, dim, {a.value().data<float>() + e * m * dim, dim},
         {b.value().data<float>() + e * n * dim, dim, Transpose::yes}, 0.0f, out.data<float>() + e * m * n, n,
         operands);
  }
  return result_of(tape, out, [=](const Tensor& d) {
    for (std::int64_t e = 0; e < batch; ++e) {
      const float* gradient = d.data<float>() + e * m * n;
      if (a.recorded()) {
        gemm(m, dim, n, {gradient, n}, {b.value().data<float>() + e * n * dim, dim}, 1.0f,
             gradient_of(a).data<float>() + e * m * dim, dim, operands);
      }
      if (b.recorded()) {
        gemm(n, dim, m, {gradient, n, Transpose::yes}, {a.value().data<float>() + e * m * dim, dim}, 1.0f,
             gradient_of(b).data<float>() + e * n * dim, dim, operands);
      }
    }
  });
}

Var normalize_rows(const Var& x, float epsilon) {
  static constexpr ProfileLabel label{"normalize rows", ProfilePart::norms};
  const ProfileSpan span(label, moved({&x}, x.value().count()));
  expect_elements("normalize_rows", "x", x.value());
  if (x.shape().rank() < 1)
    throw InvalidArgument("normalize_rows", "x", "at least one axis", to_string(x.shape()));
  const std::int64_t dim = x.size(-1), rows = dim > 0 ? x.value().count() / dim : 0;
  Tensor out(DType::f32, x.shape());
  KeptVector<float> lengths(static_cast<std::size_t>(rows));
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* row = x.value().data<float>() + r * dim;
    double square = 0.0;
    for (std::int64_t i = 0; i < dim; ++i) square += static_cast<double>(row[i]) * row[i];
    lengths[r] = std::max(epsilon, static_cast<float>(std::sqrt(square)));
    for (std::int64_t i = 0; i < dim; ++i) out.data<float>()[r * dim + i] = row[i] / lengths[r];
  }
  return result_of(tape_of({&x}), out, [=](const Tensor& d) {
    // y = x / |x|: dx = (d - y ⟨y, d⟩) / |x|; a row divided by epsilon has a constant divisor.
    Tensor dx(DType::f32, x.shape());
    for (std::int64_t r = 0; r < rows; ++r) {
      const float *y = out.data<float>() + r * dim, *dy = d.data<float>() + r * dim;
      double along = 0.0;
      if (lengths[r] > epsilon) {
        for (std::int64_t i = 0; i < dim; ++i) along += static_cast<double>(y[i]) * dy[i];
      }
      for (std::int64_t i = 0; i < dim; ++i)
        dx.data<float>()[r * dim + i] = (dy[i] - y[i] * static_cast<float>(along)) / lengths[r];
    }
    accumulate(x, dx);
  });
}

}  // namespace fovea::autograd
