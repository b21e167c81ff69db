#include "fovea/plan/feature_maps.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <numeric>
#include <vector>

#include "core/clones.h"
#include "fovea/core/cancellation.h"
#include "fovea/core/kept_vector.h"
#include "fovea/core/philox.h"
#include "kernels/recurrence/features.h"
#include "plan/recurrence/token_rows.h"
#include "plan/small_calls.h"

namespace fovea {
namespace {

constexpr std::int64_t block_rows = 16;  // of a product: each row of the projection serves all of them

std::int64_t padded(std::int64_t columns) {
  return (columns + 15) / 16 * 16;
}

// `features`, called `name` in errors, has a row for each of x.
void check_call(const char* function, const ConstTensorView& x, const ConstTensorView& features,
                const char* name, std::int64_t num_features) {
  check_view(function, name, features, x.dtype(), {x.size(0), x.size(1), x.size(2), num_features});
}
void check_memory(const char* function, const char* written_name, const TensorView& written,
                  const ConstTensorView& x, const ConstTensorView& projection,
                  const ConstTensorView& d_features) {
  check_distinct_elements(function, written_name, written);
  OverlapCheck overlaps(function);
  overlaps.writes(written_name, written);
  overlaps.reads("x", x);
  overlaps.reads("projection", projection);
  overlaps.reads("d_features", d_features);
  overlaps.check();
}
void check_x(const char* function, const ConstTensorView& x) {
  check_four_axes(function, "x", x, "[batch, heads, len, dim]");
  check_view(function, "x", x, x.dtype(), x.shape());
}
std::int64_t check_projection(const char* function, const ConstTensorView& x,
                              const ConstTensorView& projection) {
  check_x(function, x);
  const std::int64_t features = projection.rank() == 2 ? projection.size(0) : 1;
  check_contiguous(function, "projection", projection, DType::f64, {features, x.size(3)});
  return features;
}

// f(worker, head of an entry, first row, rows) for every block of rows.
template <class F>
void for_blocks(const ConstTensorView& x, Executor& executor, F f) {
  const std::int64_t len = x.size(2), blocks = (len + block_rows - 1) / block_rows;
  executor.parallel_for(x.size(0) * x.size(1) * blocks, [&](std::int64_t unit, int worker) {
    throw_if_cancelled();
    const std::int64_t first = unit % blocks * block_rows;
    f(worker, unit / blocks, first, std::min(block_rows, len - first));
  });
}

// Sums in double have eight lanes: one would wait for each addition, and took as long as a product.
template <class T>
[[gnu::always_inline]] inline double squares(const T* x, std::int64_t n) {
  double lanes[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
#pragma omp simd
    for (int lane = 0; lane < 8; ++lane)
      lanes[lane] += static_cast<double>(x[i + lane]) * static_cast<double>(x[i + lane]);
  }
  for (; i < n; ++i) lanes[0] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return std::accumulate(lanes, lanes + 8, 0.0);
}
FOVEA_CLONES double squares_of(const float* x, std::int64_t n) {
  return squares(x, n);
}
FOVEA_CLONES double squares_of(const double* x, std::int64_t n) {
  return squares(x, n);
}

// to ← a ∘ b; returns the sum of the products. `to` may lie before b, and overlap it.
template <class T>
[[gnu::always_inline]] inline double products(const T* a, const T* b, std::int64_t n, T* to) {
  double lanes[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    T eight[8];
#pragma omp simd
    for (int lane = 0; lane < 8; ++lane) eight[lane] = a[i + lane] * b[i + lane];
#pragma omp simd
    for (int lane = 0; lane < 8; ++lane) lanes[lane] += static_cast<double>(eight[lane]);
    std::copy_n(eight, 8, to + i);
  }
  for (; i < n; ++i) {
    to[i] = a[i] * b[i];
    lanes[0] += static_cast<double>(to[i]);
  }
  return std::accumulate(lanes, lanes + 8, 0.0);
}
FOVEA_CLONES double products_of(const float* a, const float* b, std::int64_t n, float* to) {
  return products(a, b, n, to);
}
FOVEA_CLONES double products_of(const double* a, const double* b, std::int64_t n, double* to) {
  return products(a, b, n, to);
}

// y ← y - factor · x, the product in double.
template <class T>
[[gnu::always_inline]] inline void subtract(const T* x, double factor, std::int64_t n, T* y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] -= static_cast<T>(factor * static_cast<double>(x[i]));
}
FOVEA_CLONES void subtract_scaled(const float* x, double factor, std::int64_t n, float* y) {
  subtract(x, factor, n, y);
}
FOVEA_CLONES void subtract_scaled(const double* x, double factor, std::int64_t n, double* y) {
  subtract(x, factor, n, y);
}

// The projection as the products want it, and rows of every worker.
template <class T>
class Products {
 public:
  Products(const ConstTensorView& projection, double factor, int threads)
      : features_(projection.size(0)), dim_(projection.size(1)) {
    across_.resize(static_cast<std::size_t>(dim_ * padded(features_)));
    along_.resize(static_cast<std::size_t>(features_ * padded(dim_)));
    rows_.resize(static_cast<std::size_t>(threads * row_elements()));
    for (std::int64_t j = 0; j < features_; ++j) {
      for (std::int64_t d = 0; d < dim_; ++d) {
        const T element = static_cast<T>(factor * projection.at<double>({j, d}));
        across_[static_cast<std::size_t>(d * padded(features_) + j)] = element;
        along_[static_cast<std::size_t>(j * padded(dim_) + d)] = element;
      }
    }
  }

  /// Rows of x, of features and of derivatives by x, of one worker.
  struct Rows {
    T *x, *features, *d_features, *d_x;
  };
  Rows rows(int worker) {
    T* first = rows_.data() + worker * row_elements();
    T* features = first + block_rows * padded(dim_);
    T* d_features = features + block_rows * padded(features_);
    return {first, features, d_features, d_features + block_rows * padded(features_)};
  }

  // exp(ω·x' - |x'|²/2 - shift) / sqrt(m); x itself is in the rows, and the factor in the projection.
  void compute(const Rows& r, std::int64_t count, double square_factor, double shift) const {
    const std::int64_t stride = padded(features_);
    kernels::multiply_rows(r.x, across_.data(), count, dim_, stride, r.features);
    for (std::int64_t i = 0; i < count; ++i) {
      const double length = squares_of(r.x + i * dim_, dim_);
      kernels::exponentials(static_cast<T>(0.5 * square_factor * length + shift),
                            static_cast<T>(1.0 / std::sqrt(static_cast<double>(features_))), features_,
                            r.features + i * stride);
    }
  }
  // dx = Ω^T (φ∘dφ) / dim^(1/4) - x ⟨φ, dφ⟩ / sqrt(dim), with d_features in rows of padded(features).
  void back(const Rows& r, std::int64_t count, double square_factor) const {
    const std::int64_t stride = padded(features_), columns = padded(dim_);
    std::array<double, block_rows> sums{};
    // Rows move together: the product wants them contiguous.
    for (std::int64_t i = 0; i < count; ++i)
      sums[static_cast<std::size_t>(i)] = products_of(r.features + i * stride, r.d_features + i * stride,
                                                      features_, r.d_features + i * features_);
    kernels::multiply_rows(r.d_features, along_.data(), count, features_, columns, r.d_x);
    for (std::int64_t i = 0; i < count; ++i)
      subtract_scaled(r.x + i * dim_, square_factor * sums[static_cast<std::size_t>(i)], dim_,
                      r.d_x + i * columns);
  }

 private:
  std::int64_t row_elements() const { return 2 * block_rows * (padded(dim_) + padded(features_)); }

  std::int64_t features_, dim_;
  KeptVector<T> across_, along_, rows_;  // [dim][padded features], [features][padded dim]
};

double quarter_root(std::int64_t dim) {
  return 1.0 / std::sqrt(std::sqrt(static_cast<double>(dim)));
}

// The two factors of a row of CosReweight.
struct Turn {
  double cosine, sine;
};
Turn turn_of(const CosReweight& map, std::int64_t row) {
  const double angle = std::numbers::pi * static_cast<double>(map.first_position + row) /
                       (2.0 * static_cast<double>(map.max_len));
  return {std::cos(angle), std::sin(angle)};
}
void check_positions(const char* function, const CosReweight& map, const ConstTensorView& x) {
  if (map.first_position < 0)
    throw InvalidArgument(function, "map.first_position", "at least 0", std::to_string(map.first_position));
  if (map.max_len < 1 || map.first_position > map.max_len - x.size(2))
    throw InvalidArgument(function, "map.max_len",
                          "at least the " + std::to_string(map.first_position) + " + " +
                              std::to_string(x.size(2)) + " positions, and 1",
                          std::to_string(map.max_len));
}

}  // namespace

Tensor favor_projection(std::int64_t num_features, std::int64_t dim, std::uint64_t seed) {
  if (num_features < 1)
    throw InvalidArgument("favor_projection", "num_features", "at least 1", std::to_string(num_features));
  if (dim < 1) throw InvalidArgument("favor_projection", "dim", "at least 1", std::to_string(dim));
  PhiloxStream random(seed);
  Tensor projection(DType::f64, {num_features, dim});
  double* rows = projection.data<double>();
  const auto dot = [&](std::int64_t i, std::int64_t j) {
    double sum = 0;
    for (std::int64_t d = 0; d < dim; ++d) sum += rows[i * dim + d] * rows[j * dim + d];
    return sum;
  };
  KeptVector<double> lengths;
  for (std::int64_t i = 0; i < num_features; ++i) {
    for (std::int64_t d = 0; d < dim; ++d) rows[i * dim + d] = static_cast<double>(random.next_normal());
    lengths.push_back(std::sqrt(dot(i, i)));
    for (std::int64_t j = i / dim * dim; j < i; ++j) {  // the rows of its group have length 1 until the end
      const double along = dot(i, j);
      for (std::int64_t d = 0; d < dim; ++d) rows[i * dim + d] -= along * rows[j * dim + d];
    }
    const double length = std::sqrt(dot(i, i));
    for (std::int64_t d = 0; d < dim; ++d) rows[i * dim + d] /= length;
  }
  for (std::int64_t i = 0; i < num_features; ++i) {
    for (std::int64_t d = 0; d < dim; ++d) rows[i * dim + d] *= lengths[static_cast<std::size_t>(i)];
  }
  return projection;
}

void favor_features(const Favor& map, const ConstTensorView& x, const ConstTensorView& projection,
                    const TensorView& features, const CallResources& resources) {
  constexpr const char* function = "favor_features";
  const std::int64_t num_features = check_projection(function, x, projection);
  check_call(function, x, features, "features", num_features);
  check_memory(function, "features", features, x, projection, {});
  Executor& executor = executor_of(resources);
  const double factor = quarter_root(x.size(3));
  with_wide_type(x.dtype(), [&](auto t) {
    using T = decltype(t);
    Products<T> products(projection, factor, executor.thread_count());
    for_blocks(x, executor, [&](int worker, std::int64_t head, std::int64_t first, std::int64_t count) {
      const auto r = products.rows(worker);
      const std::int64_t entry = head / x.size(1), h = head % x.size(1);
      for (std::int64_t i = 0; i < count; ++i) read_row(x, entry, h, first + i, r.x + i * x.size(3));
      products.compute(r, count, factor * factor, map.shift);
      for (std::int64_t i = 0; i < count; ++i)
        write_row(static_cast<const T*>(r.features + i * padded(num_features)), features, entry, h,
                  first + i);
    });
  });
}

void favor_features_backward(const Favor& map, const ConstTensorView& x, const ConstTensorView& projection,
                             const ConstTensorView& d_features, const TensorView& d_x,
                             const CallResources& resources) {
  constexpr const char* function = "favor_features_backward";
  const std::int64_t num_features = check_projection(function, x, projection);
  check_call(function, x, d_features, "d_features", num_features);
  check_call(function, x, d_x, "d_x", x.size(3));
  check_memory(function, "d_x", d_x, x, projection, d_features);
  Executor& executor = executor_of(resources);
  const double factor = quarter_root(x.size(3));
  with_wide_type(x.dtype(), [&](auto t) {
    using T = decltype(t);
    Products<T> products(projection, factor, executor.thread_count());
    for_blocks(x, executor, [&](int worker, std::int64_t head, std::int64_t first, std::int64_t count) {
      const auto r = products.rows(worker);
      const std::int64_t entry = head / x.size(1), h = head % x.size(1);
      for (std::int64_t i = 0; i < count; ++i) {
        read_row(x, entry, h, first + i, r.x + i * x.size(3));
        read_row(d_features, entry, h, first + i, r.d_features + i * padded(num_features));
      }
      products.compute(r, count, factor * factor, map.shift);
      products.back(r, count, factor * factor);
      for (std::int64_t i = 0; i < count; ++i)
        write_row(static_cast<const T*>(r.d_x + i * padded(x.size(3))), d_x, entry, h, first + i);
    });
  });
}

void cos_features(const CosReweight& map, const ConstTensorView& x, const TensorView& features,
                  const CallResources& resources) {
  constexpr const char* function = "cos_features";
  check_x(function, x);
  check_positions(function, map, x);
  const std::int64_t dim = x.size(3);
  check_call(function, x, features, "features", 2 * dim);
  check_memory(function, "features", features, x, {}, {});
  with_wide_type(x.dtype(), [&](auto t) {
    using T = decltype(t);
    executor_of(resources).parallel_for(x.size(0) * x.size(1), [&](std::int64_t head, int) {
      std::vector<T> row(static_cast<std::size_t>(2 * dim));
      for (std::int64_t i = 0; i < x.size(2); ++i) {
        const Turn turn = turn_of(map, i);
        read_row(x, head / x.size(1), head % x.size(1), i, row.data());
        for (std::int64_t d = 0; d < dim; ++d) {
          const auto at = static_cast<std::size_t>(d);
          const T positive = row[at] < T(0) ? T(0) : row[at];  // NaN stays NaN
          row[at] = static_cast<T>(turn.cosine) * positive;
          row[at + static_cast<std::size_t>(dim)] = static_cast<T>(turn.sine) * positive;
        }
        write_row(static_cast<const T*>(row.data()), features, head / x.size(1), head % x.size(1), i);
      }
    });
  });
}

void cos_features_backward(const CosReweight& map, const ConstTensorView& x,
                           const ConstTensorView& d_features, const TensorView& d_x,
                           const CallResources& resources) {
  constexpr const char* function = "cos_features_backward";
  check_x(function, x);
  check_positions(function, map, x);
  const std::int64_t dim = x.size(3);
  check_call(function, x, d_features, "d_features", 2 * dim);
  check_call(function, x, d_x, "d_x", dim);
  check_memory(function, "d_x", d_x, x, {}, d_features);
  with_wide_type(x.dtype(), [&](auto t) {
    using T = decltype(t);
    executor_of(resources).parallel_for(x.size(0) * x.size(1), [&](std::int64_t head, int) {
      std::vector<T> row(static_cast<std::size_t>(dim)), derivative(static_cast<std::size_t>(2 * dim));
      for (std::int64_t i = 0; i < x.size(2); ++i) {
        const Turn turn = turn_of(map, i);
        read_row(x, head / x.size(1), head % x.size(1), i, row.data());
        read_row(d_features, head / x.size(1), head % x.size(1), i, derivative.data());
        for (std::int64_t d = 0; d < dim; ++d) {
          const auto at = static_cast<std::size_t>(d);
          const T sum = static_cast<T>(turn.cosine) * derivative[at] +
                        static_cast<T>(turn.sine) * derivative[at + static_cast<std::size_t>(dim)];
          row[at] = row[at] > T(0) ? sum : T(0);
        }
        write_row(static_cast<const T*>(row.data()), d_x, head / x.size(1), head % x.size(1), i);
      }
    });
  });
}

}  // namespace fovea
