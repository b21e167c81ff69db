#include "plan/projection.h"

#include <algorithm>

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
             const kernels::Operand<T*>& y, Executor& executor, const Asked& asked) {
  for_rows(sizes, executor, [&](std::int64_t b, std::int64_t h, std::int64_t r) {
    if (!asked.has(h, r)) return;
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
void bias_gradient(const RowSizes& s, std::int64_t out, const kernels::Operand<const T*>& dy, T* d_bias) {
  std::fill_n(d_bias, out, T{0});
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      for (std::int64_t r = 0; r < s.rows; ++r) add_scaled(T{1}, dy.row(b, h, r), out, d_bias);
    }
  }
}

#define FOVEA_INSTANTIATE(T)                                                                                 \
  template void project<T>(const RowSizes&, const Projection<T>&, const kernels::Operand<const T*>&,         \
                           const kernels::Operand<T*>&, Executor&, const Asked&);                            \
  template void project_back<T>(const RowSizes&, const Projection<T>&, const kernels::Operand<const T*>&,    \
                                const kernels::Operand<T*>&, Executor&);                                     \
  template void weight_gradient<T>(const RowSizes&, const Projection<T>&, const kernels::Operand<const T*>&, \
                                   const kernels::Operand<const T*>&, T*, Executor&);                        \
  template void bias_gradient<T>(const RowSizes&, std::int64_t, const kernels::Operand<const T*>&, T*);
FOVEA_INSTANTIATE(float)
FOVEA_INSTANTIATE(double)
#undef FOVEA_INSTANTIATE

}  // namespace fovea
