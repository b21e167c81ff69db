// What the forward and the backward of latent attention share.
#pragma once

#include "fovea/mechanisms/latent.h"
#include "plan/call.h"
#include "plan/rows.h"

namespace fovea::latent {

/// Sizes of one call.
struct Sizes {
  std::int64_t batch, heads, queries, keys, content, rotary, latent, value;
  RowSizes query_rows() const { return {batch, heads, queries}; }
  RowSizes key_rows() const { return {batch, heads, keys}; }
  /// Elements of the values inside.
  std::int64_t inner_value(LatentExecution execution) const {
    return execution == LatentExecution::absorbed ? latent : value;
  }
};

/// Throws InvalidArgument in O(batch).
Sizes check_inputs(const char* function, const LatentPlan& plan, const LatentInputs& inputs,
                   const AttentionGradients* gradients = nullptr);

/// [batch, keys, dim] seen as `heads` heads with the same rows.
template <class Byte>
BasicTensorView<Byte> shared_by_heads(const BasicTensorView<Byte>& view, std::int64_t heads) {
  const std::int64_t strides[] = {view.stride(0), 0, view.stride(1), view.stride(2)};
  return {view.raw(), view.dtype(), Shape{view.size(0), heads, view.size(1), view.size(2)}, strides};
}

/// W [heads, out, in].
template <class T>
Projection<T> projection_of(const ConstTensorView& W) {
  return {W.data<T>(), W.size(1), W.size(2), W.stride(1), W.stride(0), nullptr, true};
}

/// Operands of the call inside, in the type it computes in.
struct Operands {
  ConstTensorView content, cache;  ///< of the inputs, widened
  ConstTensorView query, key, value;
  Tensor content_memory, cache_memory, query_memory, key_memory, value_memory;
  /// The caller's inputs with them in their places.
  AttentionInputs inputs(const LatentInputs& from) const;
};
template <class T>
Operands operands_of(const LatentPlan& plan, const LatentInputs& inputs, const Sizes& sizes,
                     Executor& executor);

}  // namespace fovea::latent
