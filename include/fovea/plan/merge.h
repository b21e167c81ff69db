// The merge law: attention over disjoint sets of keys combines by log-sum-exp into attention over all of them
// (Milakov and Gimelshein 2018, arXiv 1805.02867, section 3.1). Keys split over threads or machines, a prefix
// that many queries share, pages of a cache: each part is one call of attend, in any place, at any time.
//
// A part that holds keys [begin, end) counts its keys from 0, so its call takes query_offset - begin (given,
// not left to the default) and arguments of mods cut to its keys; masks of positions shift likewise. Dropout
// is decided by the key's position in its part. A sink is outside the log-sum-exp: merge parts without it,
// and multiply the whole by 1 / (1 + exp(sink - log_sum_exp)). Sigmoid parts do not merge, they add up.
//
// Backward: the weight of a key is exp(score - log_sum_exp of the whole), and D = ⟨dO, O⟩ is the whole's too.
// So attend_backward, called for each part with the *merged* output and log-sum-exp and the whole's d_output,
// gives that part's d_key and d_value, and shares of d_query and of the gradients of parameters that add up.
// Not with the kernel "reference", which makes weights of its own from what one call sees.
#pragma once

#include <span>

#include "fovea/plan/plan.h"

namespace fovea {

/// What attend wrote for a set of keys.
struct AttentionPart {
  ConstTensorView output;       ///< [batch, num_query_heads, query_len, value_dim]
  ConstTensorView log_sum_exp;  ///< [batch, num_query_heads, query_len], f32 (f64 for f64)
};

/// output, log_sum_exp ← the whole: log_sum_exp = ln Σ exp(lse_n), output = Σ exp(lse_n - log_sum_exp)·O_n,
/// in the shapes of the parts; f32, f64, bf16 or f16, any strides with contiguous innermost axes, summed in
/// f32 (f64 for f64) in the parts' order. An empty log_sum_exp is "not wanted".
///
/// Associative and commutative to rounding; (0, -inf) is the identity to the bit, and no part, or only
/// identities, gives it. The output of a part's row whose log-sum-exp is -inf is not read. NaN stays: a NaN
/// in a part's log-sum-exp (or +inf) makes the row NaN, one in its output that element. output and
/// log_sum_exp may be the very views of one part, so that a running result takes one part after the other.
/// Takes no memory; same bits for every thread count. Throws InvalidArgument for shapes, dtypes, strides or
/// memory shared otherwise.
void merge_attention(std::span<const AttentionPart> parts, TensorView output, TensorView log_sum_exp,
                     const CallResources& resources = {});

}  // namespace fovea
