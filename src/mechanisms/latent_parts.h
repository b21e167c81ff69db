// Here are the mechanisms that are composed of calls of attend. Plans and calls are in plan/. Open gate.cpp
// first: it is the shortest.
//
// This header declares what forward and backward of latent attention share.
#pragma once

#include "fovea/mechanisms/latent.h"
#include "plan/call.h"
#include "plan/rows.h"

namespace fovea::latent {

/// The sizes of one call.
struct Sizes {
  std::int64_t batch, heads, queries, keys, content, rotary, latent, value;
  RowSizes query_rows() const { return {batch, heads, queries}; }
  RowSizes key_rows() const { return {batch, heads, keys}; }
  /// Elements of a value in the inner call of attend.
  std::int64_t inner_value(LatentExecution execution) const {
    return execution == LatentExecution::absorbed ? latent : value;
  }
};

/// Throws InvalidArgument in O(batch).
Sizes check_inputs(const char* function, const LatentPlan& plan, const LatentInputs& inputs,
                   const AttentionGradients* gradients = nullptr);

/// [batch, keys, dim] as a view of `heads` heads with the same rows.
template <class Byte>
BasicTensorView<Byte> shared_by_heads(const BasicTensorView<Byte>& view, std::int64_t heads) {
  const std::int64_t strides[] = {view.stride(0), 0, view.stride(1), view.stride(2)};
  return {view.raw(), view.dtype(), Shape{view.size(0), heads, view.size(1), view.size(2)}, strides};
}

/// The projection by W [heads, out, in].
template <class T>
Projection<T> projection_of(const ConstTensorView& W) {
  return fovea::projection_of<T>(W, W.size(1), W.size(2));
}

/// The operands of the inner call of attend, in the type in which it computes.
struct Operands {
  ConstTensorView content, cache;  ///< of the caller's inputs, widened
  ConstTensorView query, key, value;
  Tensor content_memory, cache_memory, query_memory, key_memory, value_memory;
  /// The caller's inputs with these operands in place of query, key and value.
  AttentionInputs inputs(const LatentInputs& from) const;
};
template <class T>
Operands operands_of(const LatentPlan& plan, const LatentInputs& inputs, const Sizes& sizes,
                     Executor& executor);

}  // namespace fovea::latent
