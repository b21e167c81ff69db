// Sums, pooling over time, and the products of two sequences.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "autograd/gemm.h"
#include "autograd/record.h"
#include "autograd/row_lengths.h"
#include "autograd/rows.h"
#include "core/clones.h"
#include "fovea/autograd/ops.h"
#include "fovea/core/kept_vector.h"
#include "fovea/core/profile.h"

namespace fovea::autograd {

namespace {

// Eight sums, because one would wait for each addition.
FOVEA_CLONES double sum_in_double(const float* x, std::int64_t n) {
  double lanes[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
#pragma omp simd
    for (int lane = 0; lane < 8; ++lane) lanes[lane] += static_cast<double>(x[i + lane]);
  }
  for (; i < n; ++i) lanes[0] += static_cast<double>(x[i]);
  return std::accumulate(lanes, lanes + 8, 0.0);
}
FOVEA_CLONES double product_in_double(const float* a, const float* b, std::int64_t n) {
  double lanes[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
#pragma omp simd
    for (int lane = 0; lane < 8; ++lane)
      lanes[lane] += static_cast<double>(a[i + lane]) * static_cast<double>(b[i + lane]);
  }
  for (; i < n; ++i) lanes[0] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return std::accumulate(lanes, lanes + 8, 0.0);
}
FOVEA_CLONES void divide_into(const float* x, float divisor, std::int64_t n, float* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] / divisor;
}
FOVEA_CLONES void unit_gradient(const float* y, const float* dy, float along, float length, std::int64_t n,
                                float* dx) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) dx[i] = (dy[i] - y[i] * along) / length;
}
FOVEA_CLONES void keep_larger(const float* row, std::int64_t number, std::int64_t n, float* largest,
                              std::int64_t* best) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const bool larger = row[i] > largest[i];
    largest[i] = larger ? row[i] : largest[i];
    best[i] = larger ? number : best[i];
  }
}

// body(entry, begin, end) for columns [begin, end) of each entry of x [B, T, D].
template <class Body>
void for_columns(const Shape& shape, Body&& body) {
  constexpr std::int64_t columns = 256;
  const std::int64_t dim = shape[2], across = (dim + columns - 1) / columns;
  Executor& executor = shape.count() <= elements_of_piece ? serial_executor() : default_executor();
  executor.parallel_for(shape[0] * across, [&](std::int64_t unit, int) {
    const std::int64_t begin = unit % across * columns;
    body(unit / across, begin, std::min(dim, begin + columns));
  });
}

}  // namespace

Var sum(const Var& x) {
  static constexpr ProfileLabel label{"sum", ProfilePart::elementwise};
  const ProfileSpan span(label, moved({&x}));
  expect_elements("sum", "x", x.value());
  Tensor total(DType::f32, {1});
  KeptVector<double> sums(static_cast<std::size_t>(x.value().count() / elements_of_piece + 1));
  for_pieces(x.value().count(), [&](std::int64_t begin, std::int64_t end) {
    sums[begin / elements_of_piece] = sum_in_double(x.value().data<float>() + begin, end - begin);
  });
  *total.data<float>() = static_cast<float>(std::accumulate(sums.begin(), sums.end(), 0.0));
  return result_of(tape_of({&x}), total, [=](const Tensor& d) {
    Tensor dx(DType::f32, x.shape());
    for_pieces(dx.count(), [&](std::int64_t begin, std::int64_t end) {
      std::fill(dx.data<float>() + begin, dx.data<float>() + end, *d.data<float>());
    });
    accumulate(x, dx);
  });
}

namespace {

Var pool_mean(const Var& x, const KeptVector<std::int64_t>& lengths) {
  static constexpr ProfileLabel label{"pool mean", ProfilePart::elementwise};
  const ProfileSpan span(label, moved({&x}));
  const std::int64_t batch = x.size(0), time = x.size(1), dim = x.size(2);
  Tensor out(DType::f32, {batch, dim});
  for_columns(x.shape(), [&](std::int64_t b, std::int64_t begin, std::int64_t end) {
    const float* rows = x.value().data<float>() + b * time * dim + begin;
    float* mean = out.data<float>() + b * dim + begin;
    std::fill_n(mean, end - begin, 0.0f);
    for (std::int64_t t = 0; t < lengths[b]; ++t) add_row(rows + t * dim, end - begin, mean);
    divide_into(mean, static_cast<float>(lengths[b]), end - begin, mean);
  });
  return result_of(tape_of({&x}), out, [=](const Tensor& d) {
    Tensor dx(DType::f32, x.shape());
    for_pieces_of_rows(batch * time, dim, [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
      const std::int64_t b = row / time;
      float* to = dx.data<float>() + row * dim + begin;
      if (row % time < lengths[b])
        scale_row(d.data<float>() + b * dim + begin, 1.0f / static_cast<float>(lengths[b]), end - begin, to);
      else
        std::fill_n(to, end - begin, 0.0f);
    });
    accumulate(x, dx);
  });
}

Var pool_max(const Var& x, const KeptVector<std::int64_t>& lengths) {
  static constexpr ProfileLabel label{"pool max", ProfilePart::elementwise};
  const ProfileSpan span(label, moved({&x}));
  const std::int64_t batch = x.size(0), time = x.size(1), dim = x.size(2);
  Tensor out(DType::f32, {batch, dim});
  KeptVector<std::int64_t> best(static_cast<std::size_t>(batch * dim), 0);  // the row of each maximum
  for_columns(x.shape(), [&](std::int64_t b, std::int64_t begin, std::int64_t end) {
    const float* rows = x.value().data<float>() + b * time * dim + begin;
    float* largest = out.data<float>() + b * dim + begin;
    std::copy_n(rows, end - begin, largest);
    for (std::int64_t t = 1; t < lengths[b]; ++t)
      keep_larger(rows + t * dim, t, end - begin, largest, best.data() + b * dim + begin);
  });
  return result_of(tape_of({&x}), out, [=](const Tensor& d) {
    Tensor dx(DType::f32, x.shape());
    for_columns(x.shape(), [&](std::int64_t b, std::int64_t begin, std::int64_t end) {
      float* to = dx.data<float>() + b * time * dim;
      for (std::int64_t t = 0; t < time; ++t) std::fill_n(to + t * dim + begin, end - begin, 0.0f);
      for (std::int64_t i = begin; i < end; ++i)
        to[best[b * dim + i] * dim + i] = d.data<float>()[b * dim + i];
    });
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
  for_pieces(
      rows,
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
          const float* row = x.value().data<float>() + r * dim;
          lengths[r] = std::max(epsilon, static_cast<float>(std::sqrt(product_in_double(row, row, dim))));
          divide_into(row, lengths[r], dim, out.data<float>() + r * dim);
        }
      },
      dim);
  return result_of(tape_of({&x}), out, [=](const Tensor& d) {
    // y = x / |x|: dx = (d - y ⟨y, d⟩) / |x|; a row divided by epsilon has a constant divisor.
    Tensor dx(DType::f32, x.shape());
    for_pieces(
        rows,
        [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t r = begin; r < end; ++r) {
            const float *y = out.data<float>() + r * dim, *dy = d.data<float>() + r * dim;
            const double along = lengths[r] > epsilon ? product_in_double(y, dy, dim) : 0.0;
            unit_gradient(y, dy, static_cast<float>(along), lengths[r], dim, dx.data<float>() + r * dim);
          }
        },
        dim);
    accumulate(x, dx);
  });
}

}  // namespace fovea::autograd
