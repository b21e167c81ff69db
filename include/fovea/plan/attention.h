// Attention in one call.
#pragma once

#include "fovea/attention/spec.h"
#include "fovea/core/tensor.h"

namespace fovea {

struct AttentionInputs;  // plan.h

/// Computes the attention that `spec` describes, for a program that calls once.
///
///   const Tensor out = attention(q, k, v, {.mask = Causal{}});
///
/// query is [batch, num_query_heads, query_len, head_dim], key [batch, num_kv_heads, key_len, key_dim] and
/// value [batch, num_kv_heads, key_len, value_dim]. The result is a new tensor [batch, num_query_heads,
/// query_len, value_dim] of the query's dtype. Each call makes a plan and allocates: in a loop, call
/// make_plan (plan.h) before the loop and attend inside. Throws what make_plan and attend throw; an
/// InvalidArgument names "attention" as the function.
Tensor attention(ConstTensorView query, ConstTensorView key, ConstTensorView value,
                 const AttentionSpec& spec = {}, const Arguments& arguments = {});

/// The same with all inputs of a call: lengths of keys, offsets of queries, seeds of dropout and samples. The
/// sizes are those of the tensors (shape_of), so `inputs` has no cache and is not packed.
Tensor attention(const AttentionSpec& spec, const AttentionInputs& inputs);

}  // namespace fovea
