// Here are plans and calls of attention, merging of results, and rotary embeddings. Masks, scores and the
// other parts of a spec are in attention/; layers and models are in nn/ and models/. Open plan.h first.
//
// This header merges attention over disjoint sets of keys into attention over all of them, by log-sum-exp
// (Milakov and Gimelshein 2018, arXiv 1805.02867, section 3.1). The sets may be keys split over threads or
// machines, a prefix that many queries share, or pages of a cache. Each set is one call of attend, in any
// place, at any time.
//
// The call of a part that holds keys [begin, end) counts its keys from 0:
// - Its query_offset is the whole call's less `begin`. It must be given, because the default would be wrong.
// - Arguments of mods are cut to the part's keys, and masks of positions are shifted by `begin`.
// - Dropout decides by the key's position in its part.
// - A sink is outside the log-sum-exp: merge parts without it, and multiply the whole by 1 / (1 + exp(sink -
//   log_sum_exp)).
// - Parts of Sigmoid are added, not merged.
//
// Backward: the weight of a key is exp(score - log_sum_exp of the whole), and D = ⟨dO, O⟩ is the whole's too.
// So attend_backward is called for each part with the *merged* output and log-sum-exp and the whole's
// d_output. It gives that part's d_key and d_value, and shares of d_query and of the parameters' gradients,
// which add up. The kernel "reference" cannot do this: it recomputes the weights from the keys of one call
// alone.
#pragma once

#include <span>

#include "fovea/plan/plan.h"

namespace fovea {

/// The results of attend for one set of keys.
struct AttentionPart {
  ConstTensorView output;       ///< [batch, num_query_heads, query_len, value_dim]
  ConstTensorView log_sum_exp;  ///< [batch, num_query_heads, query_len], f32 (f64 for f64)
};

/// Writes the whole into output and log_sum_exp, in the shapes of the parts:
///
///   log_sum_exp = ln Σ exp(lse_n),   output = Σ exp(lse_n - log_sum_exp)·O_n.
///
/// The dtype is f32, f64, bf16 or f16, the strides are any with contiguous innermost axes. Sums are taken in
/// f32 (f64 for f64) in the order of the parts. Leave log_sum_exp empty if it is not wanted.
///
/// Merging is associative and commutative to rounding. (0, -inf) is its identity to the bit, and the result
/// for no part or only identities. If a row of a part has log-sum-exp -inf, the part's output of that row is
/// not read. A log-sum-exp of NaN or +inf makes the row NaN; a NaN in a part's output makes that element NaN.
/// output and log_sum_exp may be the same views as those of one part, so that a running result can take one
/// part after the other. Allocates nothing. The bits do not depend on the number of threads. Throws
/// InvalidArgument for wrong shapes, dtypes or strides, and for any other shared memory.
void merge_attention(std::span<const AttentionPart> parts, TensorView output, TensorView log_sum_exp,
                     const CallResources& resources = {});

}  // namespace fovea
