#include "plan/projection.h"

#include <algorithm>
#include <cmath>

namespace fovea {
namespace {

template <class T>
T dot(const T* a, const T* b, std::int64_t n) {
  T sum{0};
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

template <class T>
void add_scaled(T factor, const T* __restrict x, std::int64_t n, T* __restrict y) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

}  // namespace

template <class T>
void project(const RowSizes& sizes, const Projection<T>& p, const kernels::Operand<const T*>& x,
             const kernels::Operand<T*>& y, Executor& executor, const RowSelection& selected) {
  for_rows(sizes, executor, [&](std::int64_t b, std::int64_t h, std::int64_t r) {
    if (!selected.contains(h, r)) return;
    const T *from = x.row(b, h, r), *weight = p.weight + h * p.head_stride;
    T* to = y.row(b, h, r);
    for (std::int64_t o = 0; o < p.out; ++o)
      to[o] = dot(weight + o * p.row_stride, from, p.in) + (p.bias ? p.bias[o] : T{0});
  });
}

template <class T>
void project_back(const RowSizes& sizes, const Projection<T>& p, const kernels::Operand<const T*>& dy,
                  const kernels::Operand<T*>& dx, Executor& executor) {
  for_rows(sizes, executor, [&](std::int64_t b, std::int64_t h, std::int64_t r) {
    const T *from = dy.row(b, h, r), *weight = p.weight + h * p.head_stride;
    T* to = dx.row(b, h, r);
    std::fill_n(to, p.in, T{0});
    for (std::int64_t o = 0; o < p.out; ++o) add_scaled(from[o], weight + o * p.row_stride, p.in, to);
  });
}

template <class T>
void weight_gradient(const RowSizes& s, const Projection<T>& p, const kernels::Operand<const T*>& dy,
                     const kernels::Operand<const T*>& x, T* d_weight, Executor& executor) {
  const std::int64_t matrices = p.each_head ? s.heads : 1;
  executor.parallel_for(matrices * p.out, [&](std::int64_t unit, int) {
    const std::int64_t o = unit % p.out, matrix = unit / p.out;
    T* row = d_weight + unit * p.in;
    std::fill_n(row, p.in, T{0});
    for (std::int64_t b = 0; b < s.batch; ++b) {
      for (std::int64_t h = p.each_head ? matrix : 0; h < (p.each_head ? matrix + 1 : s.heads); ++h) {
        for (std::int64_t r = 0; r < s.rows; ++r) {
          // A key that no query sees has gradient 0 and may hold NaN: it must not be multiplied.
          if (const T factor = dy.row(b, h, r)[o]; factor != T{0})
            add_scaled(factor, x.row(b, h, r), p.in, row);
        }
      }
    }
  });
}

template <class T>
void bias_gradient(const RowSizes& s, std::int64_t out, const kernels::Operand<const T*>& dy, T* d_bias,
                   Executor& executor) {
  constexpr std::int64_t columns = 16;  // at least a line of each row
  executor.parallel_for((out + columns - 1) / columns, [&](std::int64_t unit, int) {
    const std::int64_t begin = unit * columns, width = std::min(columns, out - begin);
    T* to = d_bias + begin;
    std::fill_n(to, width, T{0});
    for (std::int64_t b = 0; b < s.batch; ++b) {
      for (std::int64_t h = 0; h < s.heads; ++h) {
        for (std::int64_t r = 0; r < s.rows; ++r) add_scaled(T{1}, dy.row(b, h, r) + begin, width, to);
      }
    }
  });
}

namespace {

// 1 / norm(x), and the factor `pull` of its derivative: d(x / n) = dx / n - x ⟨x, dx⟩ · pull.
template <class T>
struct Inverse {
  T length{0}, pull{0};
};

template <class T>
Inverse<T> inverse_norm(RowMap::Norm norm, const T* x, std::int64_t dim) {
  const T squares = dot(x, x, dim);
  if (norm == RowMap::Norm::root_mean_square) {
    const T inverse = T{1} / std::sqrt(squares / static_cast<T>(dim) + T(1e-6));
    return {inverse, inverse * inverse * inverse / static_cast<T>(dim)};
  }
  const T length = std::sqrt(squares);
  constexpr T smallest = T(1e-12);
  if (!(length > smallest)) return {T{1} / smallest, T{0}};  // the clamped length is a constant
  const T inverse = T{1} / length;
  return {inverse, inverse * inverse * inverse};
}

// The gain of a head: one number for all elements, or one for each element.
template <class T>
struct HeadGain {
  T all{1};
  const T* each = nullptr;
  /// Calls body with the gain of an element. The loops in it have no branch, so that they are vectorised.
  template <class Body>
  void with(Body&& body) const {
    if (each)
      body([from = each](std::int64_t element) { return from[element]; });
    else
      body([one = all](std::int64_t) { return one; });
  }
};

constexpr double smallest_divisor = 0.01;

template <class T>
HeadGain<T> gain_of(const RowNorm& norm, std::int64_t head) {
  if (!norm.gain) return {};
  const T* values = norm.gain.data<T>();
  if (norm.map.gain_is == RowMap::Gain::divisor)
    return {T{1} / std::max(values[head * norm.gain.stride(0)], static_cast<T>(smallest_divisor))};
  return {T{1}, values};
}

template <class T>
bool all_zero(const T* x, std::int64_t n) {
  return std::all_of(x, x + n, [](T element) { return element == T{0}; });
}

}  // namespace

template <class T>
void normalize_rows(const RowSizes& sizes, const RowNorm& norm, const kernels::Operand<const T*>& x,
                    const kernels::Operand<T*>& y, Executor& executor, const RowSelection& selected) {
  for_rows(sizes, executor, [&](std::int64_t b, std::int64_t h, std::int64_t r) {
    if (!selected.contains(h, r)) return;
    const T* from = x.row(b, h, r);
    T* to = y.row(b, h, r);
    const T inverse = inverse_norm(norm.map.norm, from, norm.dim).length;
    gain_of<T>(norm, h).with([&](auto gain) {
#pragma omp simd
      for (std::int64_t d = 0; d < norm.dim; ++d) to[d] = from[d] * inverse * gain(d);
    });
  });
}

template <class T>
void normalize_rows_back(const RowSizes& sizes, const RowNorm& norm, const kernels::Operand<const T*>& x,
                         const kernels::Operand<const T*>& dy, const kernels::Operand<T*>& dx,
                         Executor& executor) {
  for_rows(sizes, executor, [&](std::int64_t b, std::int64_t h, std::int64_t r) {
    const T *row = x.row(b, h, r), *from = dy.row(b, h, r);
    T* to = dx.row(b, h, r);
    // A key that no query sees has gradient 0 and may hold NaN: it must not be multiplied.
    if (all_zero(from, norm.dim)) {
      std::fill_n(to, norm.dim, T{0});
      return;
    }
    const Inverse<T> inverse = inverse_norm(norm.map.norm, row, norm.dim);
    gain_of<T>(norm, h).with([&](auto gain) {
      T along{0};
#pragma omp simd reduction(+ : along)
      for (std::int64_t d = 0; d < norm.dim; ++d) along += gain(d) * from[d] * row[d];
#pragma omp simd
      for (std::int64_t d = 0; d < norm.dim; ++d)
        to[d] = gain(d) * from[d] * inverse.length - row[d] * along * inverse.pull;
    });
  });
}

template <class T>
void gain_gradient(const RowSizes& s, const RowNorm& norm, const kernels::Operand<const T*>& x,
                   const kernels::Operand<const T*>& dy, T* by_head, const TensorView& d_gain,
                   Executor& executor) {
  executor.parallel_for(s.heads, [&](std::int64_t h, int) {
    T* sum = by_head + h * norm.dim;
    std::fill_n(sum, norm.dim, T{0});
    for (std::int64_t b = 0; b < s.batch; ++b) {
      for (std::int64_t r = 0; r < s.rows; ++r) {
        const T *row = x.row(b, h, r), *from = dy.row(b, h, r);
        if (all_zero(from, norm.dim)) continue;
        const T inverse = inverse_norm(norm.map.norm, row, norm.dim).length;
#pragma omp simd
        for (std::int64_t d = 0; d < norm.dim; ++d) sum[d] += from[d] * row[d] * inverse;
      }
    }
  });
  T* to = d_gain.data<T>();
  if (norm.map.gain_is == RowMap::Gain::divisor) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const T divisor = norm.gain.data<T>()[h * norm.gain.stride(0)];
      T sum{0};
      for (std::int64_t d = 0; d < norm.dim; ++d) sum += by_head[h * norm.dim + d];
      to[h] = divisor > static_cast<T>(smallest_divisor) ? -sum / (divisor * divisor) : T{0};
    }
    return;
  }
  std::fill_n(to, norm.dim, T{0});
  for (std::int64_t h = 0; h < s.heads; ++h) add_scaled(T{1}, by_head + h * norm.dim, norm.dim, to);
}

#define FOVEA_INSTANTIATE(T)                                                                                 \
  template void project<T>(const RowSizes&, const Projection<T>&, const kernels::Operand<const T*>&,         \
                           const kernels::Operand<T*>&, Executor&, const RowSelection&);                     \
  template void project_back<T>(const RowSizes&, const Projection<T>&, const kernels::Operand<const T*>&,    \
                                const kernels::Operand<T*>&, Executor&);                                     \
  template void weight_gradient<T>(const RowSizes&, const Projection<T>&, const kernels::Operand<const T*>&, \
                                   const kernels::Operand<const T*>&, T*, Executor&);                        \
  template void bias_gradient<T>(const RowSizes&, std::int64_t, const kernels::Operand<const T*>&, T*,       \
                                 Executor&);                                                                 \
  template void normalize_rows<T>(const RowSizes&, const RowNorm&, const kernels::Operand<const T*>&,        \
                                  const kernels::Operand<T*>&, Executor&, const RowSelection&);              \
  template void normalize_rows_back<T>(const RowSizes&, const RowNorm&, const kernels::Operand<const T*>&,   \
                                       const kernels::Operand<const T*>&, const kernels::Operand<T*>&,       \
                                       Executor&);                                                           \
  template void gain_gradient<T>(const RowSizes&, const RowNorm&, const kernels::Operand<const T*>&,         \
                                 const kernels::Operand<const T*>&, T*, const TensorView&, Executor&);
FOVEA_INSTANTIATE(float)
FOVEA_INSTANTIATE(double)
#undef FOVEA_INSTANTIATE

}  // namespace fovea
