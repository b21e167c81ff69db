// How scores map the rows of queries and keys before a kernel sees them (RowMap in score.h). Bilinear and
// additive scores take small matrix products, cosine scores and QK-norm take norms. The engine depends on no
// library with matrix products. The cost is O(length) beside the O(length²) of the scores, so plain loops
// that the compiler vectorises are enough.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "fovea/attention/score.h"
#include "fovea/attention/score_definition.h"
#include "fovea/core/executor.h"
#include "kernels/problem.h"

namespace fovea {

struct RowSizes {
  std::int64_t batch = 0, heads = 0, rows = 0;
};

/// The heads and rows that a call needs. An empty list means all. Other rows may be uninitialised memory and
/// are not read.
struct RowSelection {
  std::span<const std::int64_t> heads = {}, rows = {};
  std::int64_t group = 1;  ///< query heads for each head of the operand
  bool contains(std::int64_t head, std::int64_t row) const {
    const auto named = [](std::span<const std::int64_t> list, auto&& match) {
      return list.empty() || std::any_of(list.begin(), list.end(), match);
    };
    return named(heads, [&](std::int64_t h) { return h / group == head; }) &&
           named(rows, [&](std::int64_t r) { return r == row; });
  }
};

/// Calls body(b, h, row) for every row. A unit of work is a group of rows of one head.
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

/// W [out, in], or one W for each head, `head_stride` elements apart; bias [out] or null.
template <class T>
struct Projection {
  const T* weight = nullptr;
  std::int64_t out = 0, in = 0, row_stride = 0, head_stride = 0;
  const T* bias = nullptr;
  bool each_head = false;  // one matrix a head, even if a head_stride of 0 makes all heads share its elements
};

/// y = W x + b for every selected row.
template <class T>
void project(const RowSizes& sizes, const Projection<T>& projection, const kernels::Operand<const T*>& x,
             const kernels::Operand<T*>& y, Executor& executor, const RowSelection& selected = {});
/// dx = Wᵀ dy for every row.
template <class T>
void project_back(const RowSizes& sizes, const Projection<T>& projection,
                  const kernels::Operand<const T*>& dy, const kernels::Operand<T*>& dx, Executor& executor);
/// dW = Σ dy xᵀ into contiguous [out, in] (or one a head), summed in an order fixed by the shape.
template <class T>
void weight_gradient(const RowSizes& sizes, const Projection<T>& projection,
                     const kernels::Operand<const T*>& dy, const kernels::Operand<const T*>& x, T* d_weight,
                     Executor& executor);
/// db = Σ dy.
template <class T>
void bias_gradient(const RowSizes& sizes, std::int64_t out, const kernels::Operand<const T*>& dy, T* d_bias,
                   Executor& executor);

/// A norm and its gain; the gain is empty if there is none.
struct RowNorm {
  const RowMap& map;
  std::int64_t dim = 0;
  ConstTensorView gain = {};
};

/// y = gain ∘ x / norm(x) for every selected row.
template <class T>
void normalize_rows(const RowSizes& sizes, const RowNorm& norm, const kernels::Operand<const T*>& x,
                    const kernels::Operand<T*>& y, Executor& executor, const RowSelection& selected = {});
/// dx from dy; x is the input of normalize_rows. dx and x may not share memory.
template <class T>
void normalize_rows_back(const RowSizes& sizes, const RowNorm& norm, const kernels::Operand<const T*>& x,
                         const kernels::Operand<const T*>& dy, const kernels::Operand<T*>& dx,
                         Executor& executor);
/// The gain's gradient, summed in an order fixed by the shape. `by_head` is a scratch buffer of heads · dim
/// elements.
template <class T>
void gain_gradient(const RowSizes& sizes, const RowNorm& norm, const kernels::Operand<const T*>& x,
                   const kernels::Operand<const T*>& dy, T* by_head, const TensorView& d_gain,
                   Executor& executor);

}  // namespace fovea
