// What scores make of the rows of queries and keys before a kernel sees them (RowMap in score.h): small
// matrix products for bilinear and additive scores, norms for cosine scores and QK-norm. The engine depends
// on nothing that has a gemm, and these are O(length) beside the O(length²) of the scores, so plain loops
// that the compiler vectorises are enough.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "fovea/attention/score.h"
#include "fovea/core/executor.h"
#include "kernels/problem.h"

namespace fovea {

struct RowSizes {
  std::int64_t batch = 0, heads = 0, rows = 0;
};

/// Heads and rows that a call asks for; an empty list: all. What others have made of nothing is not read.
struct RowSelection {
  std::span<const std::int64_t> heads = {}, rows = {};
  std::int64_t group = 1;  ///< query heads a head of the operand serves
  bool contains(std::int64_t head, std::int64_t row) const {
    const auto named = [](std::span<const std::int64_t> list, auto&& match) {
      return list.empty() || std::any_of(list.begin(), list.end(), match);
    };
    return named(heads, [&](std::int64_t h) { return h / group == head; }) &&
           named(rows, [&](std::int64_t r) { return r == row; });
  }
};

/// body(b, h, row) for every row; a unit of work is a group of rows of one head.
template <class Body>
void for_rows(const RowSizes& s, Executor& executor, Body&& body) {
  constexpr std::int64_t group = 32;
  const std::int64_t groups = (s.rows + group - 1) / group;
  executor.parallel_for(s.batch * s.heads * groups, [&](std::int64_t unit, int) {
    const std::int64_t begin = unit % groups * group, h = unit / groups % s.heads,
                       b = unit / groups / s.heads;
    for (std::int64_t r = begin; r < std::min(s.rows, begin + group); ++r) body(b, h, r);
  });
}

/// W [out, in], or one a head at `head_stride` elements; bias [out] or null.
template <class T>
struct Projection {
  const T* weight = nullptr;
  std::int64_t out = 0, in = 0, row_stride = 0, head_stride = 0;
  const T* bias = nullptr;
  bool each_head = false;  // one matrix a head, even where a head_stride of 0 shows every head the same one
};

/// y = W x + b for every row asked for.
template <class T>
void project(const RowSizes& sizes, const Projection<T>& projection, const kernels::Operand<const T*>& x,
             const kernels::Operand<T*>& y, Executor& executor, const RowSelection& selected = {});
/// dx = Wᵀ dy for every row.
template <class T>
void project_back(const RowSizes& sizes, const Projection<T>& projection,
                  const kernels::Operand<const T*>& dy, const kernels::Operand<T*>& dx, Executor& executor);
/// dW = Σ dy xᵀ into contiguous [out, in] (or one a head), summed in an order fixed by
/// shape.
template <class T>
void weight_gradient(const RowSizes& sizes, const Projection<T>& projection,
                     const kernels::Operand<const T*>& dy, const kernels::Operand<const T*>& x, T* d_weight,
                     Executor& executor);
/// db = Σ dy.
template <class T>
void bias_gradient(const RowSizes& sizes, std::int64_t out, const kernels::Operand<const T*>& dy, T* d_bias);

/// A norm and its gain, which is empty where there is none.
struct RowNorm {
  const RowMap& map;
  std::int64_t dim = 0;
  ConstTensorView gain = {};
};

/// y = gain ∘ x / norm(x) for every row asked for.
template <class T>
void normalize_rows(const RowSizes& sizes, const RowNorm& norm, const kernels::Operand<const T*>& x,
                    const kernels::Operand<T*>& y, Executor& executor, const RowSelection& selected = {});
/// dx of dy; x as normalize_rows got it. dx and x may not share memory.
template <class T>
void normalize_rows_back(const RowSizes& sizes, const RowNorm& norm, const kernels::Operand<const T*>& x,
                         const kernels::Operand<const T*>& dy, const kernels::Operand<T*>& dx,
                         Executor& executor);
/// The gain's gradient, summed in an order fixed by shape. `by_head`: scratch of heads · dim elements.
template <class T>
void gain_gradient(const RowSizes& sizes, const RowNorm& norm, const kernels::Operand<const T*>& x,
                   const kernels::Operand<const T*>& dy, T* by_head, const TensorView& d_gain,
                   Executor& executor);

}  // namespace fovea
