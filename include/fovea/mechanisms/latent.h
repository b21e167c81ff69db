// Multi-head latent attention (DeepSeek-V2, Liu et al. 2024, arXiv 2405.04434, section 2.1). The keys and
// values of all heads are products of one latent vector a key. A cache keeps only these latent vectors. With
// c the latent and k_r the rotated key that all heads share,
//
//   s = (q_nᵀ W_UK c + q_r·k_r) / √(content_dim + rotary_dim),   o = W_UV Σ P c,
//
// and the matrices may be multiplied on either side. The caller rotates queries and keys before the call.
#pragma once

#include <cstdint>
#include <span>

#include "fovea/plan/plan.h"

namespace fovea {

/// The side on which the matrices are multiplied. Both give the same numbers, to rounding.
enum class LatentExecution : std::uint8_t {
  /// Makes every head's keys W_UK c and values W_UV c, then attends as usual. Costs content_dim + rotary_dim
  /// + value_dim multiplications a pair, and key_len products with both matrices. For many queries (training,
  /// a prompt). Allocates num_query_heads·key_len·(content_dim + rotary_dim + value_dim) elements.
  naive,
  /// Multiplies the query by W_UK and the result by W_UV. One kv head over the cache itself serves all heads;
  /// its values are views of the latents. Costs 2·latent_dim + rotary_dim multiplications a pair, and
  /// query_len products. For few queries (decoding): no allocation grows with key_len.
  absorbed,
};

/// batch, query_len and key_len are capacities, as in AttentionShape.
struct LatentShape {
  std::int64_t batch = 1;
  std::int64_t num_query_heads = 1;
  std::int64_t query_len = 0;
  std::int64_t key_len = 0;
  std::int64_t content_dim = 0;  ///< d_n, elements of a head's query (and key) without position
  std::int64_t rotary_dim = 0;   ///< d_r, elements of a head's rotated query; 0 where nothing is rotated
  std::int64_t latent_dim = 0;   ///< d_c, elements of a latent
  std::int64_t value_dim = 0;    ///< d_v, elements of a head's value
};

struct LatentPlan {
  LatentShape shape;
  LatentExecution execution;
  /// The dtype of queries, cache and output.
  DType dtype;
  /// The plan that runs inside, in f32 (f64 for f64).
  AttentionPlan attention;
};

/// The spec gives mask, mods, normaliser and dropout. Its score and scale belong to the mechanism and must be
/// left at their defaults. options.dtype is that of queries, cache and output. Throws InvalidArgument for
/// sizes, for a score or scale, and for everything that make_plan refuses.
LatentPlan make_latent_plan(const AttentionSpec& spec, const LatentShape& shape, LatentExecution execution,
                            const PlanOptions& options = {});

struct LatentInputs {
  ConstTensorView query_content;  ///< [batch, num_query_heads, query_len, content_dim]
  ConstTensorView query_rotary;   ///< [batch, num_query_heads, query_len, rotary_dim]; empty where that is 0
  ConstTensorView cache;  ///< [batch, key_len, latent_dim + rotary_dim]: the latent, then the rotated key
  ConstTensorView W_UK;   ///< [num_query_heads, content_dim, latent_dim], f32 (f64 for f64)
  ConstTensorView W_UV;   ///< [num_query_heads, value_dim, latent_dim], f32 (f64 for f64)
  /// The other inputs of a call of attend: arguments, key_lengths, query_offset or query_offsets,
  /// dropout_seed. Query, key and value stay empty.
  AttentionInputs attention = {};
};

/// Results that the backward pass needs, in f32 (f64 for f64). `output` is [batch, num_query_heads,
/// query_len, value_dim] (naive), or has latent_dim in place of value_dim (absorbed). `log_sum_exp` is
/// [batch, num_query_heads, query_len].
struct LatentState {
  Tensor output, log_sum_exp;
};

/// output [batch, num_query_heads, query_len, value_dim] ← the attention, computed in f32 (f64 for f64)
/// throughout and rounded once. Any strides with contiguous innermost axes. Keys that no query may see never
/// affect a result, whatever the cache holds there. Throws InvalidArgument for wrong shapes, dtypes or
/// strides, and for memory shared with an input.
LatentState attend_latent(const LatentPlan& plan, const LatentInputs& inputs, TensorView output,
                          const CallResources& resources = {});

/// Each has the shape and dtype of its input. Leave a view empty if its gradient is not wanted. W_UK and W_UV
/// are contiguous.
struct LatentGradients {
  TensorView query_content, query_rotary, cache, W_UK, W_UV;
  ArgumentGradients arguments = {};  ///< as in AttentionGradients
};

/// Gradients of a scalar loss whose derivative by the output is `d_output`. `state` is the result of
/// attend_latent for the same plan and inputs. The bits do not depend on the number of threads. Allocates the
/// memory of the forward pass again, because operands are recomputed, and as much for their gradients.
void attend_latent_backward(const LatentPlan& plan, const LatentInputs& inputs, const LatentState& state,
                            ConstTensorView d_output, const LatentGradients& gradients,
                            const CallResources& resources = {});

}  // namespace fovea
