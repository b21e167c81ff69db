// Multi-head latent attention (DeepSeek-V2, Liu et al. 2024, arXiv 2405.04434, section 2.1): all heads' keys
// and values are products of one latent vector a key, which is all that a cache keeps. With c the latent and
// k_r the rotated key that all heads share,
//
//   s = (q_nᵀ W_UK c + q_r·k_r) / √(content_dim + rotary_dim),   o = W_UV Σ P c,
//
// and the matrices may be multiplied on either side. Rotation is the caller's, before this.
#pragma once

#include <cstdint>
#include <span>

#include "fovea/plan/plan.h"

namespace fovea {

/// Which side the matrices are multiplied on; both give the same numbers, to rounding.
enum class LatentExecution : std::uint8_t {
  /// Every head's keys W_UK c and values W_UV c are made, then attended to as usual: content_dim + rotary_dim
  /// + value_dim multiplications a pair, and key_len products with both matrices. For many queries (training,
  /// a prompt); takes num_query_heads·key_len·(content_dim + rotary_dim + value_dim) elements of memory.
  naive,
  /// The query takes W_UK, one kv head over the cache itself serves all heads, its values being views of the
  /// latents, and W_UV multiplies what comes out: 2·latent_dim + rotary_dim multiplications a pair, and
  /// query_len products. For few queries (decoding); no memory grows with key_len.
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
  /// Of queries, cache and output.
  DType dtype;
  /// What runs inside, in f32 (f64 for f64).
  AttentionPlan attention;
};

/// The spec's mask, mods, normaliser and dropout hold; score and scale are the mechanism's and must be left
/// as they are by default. options.dtype is that of queries, cache and output. Throws InvalidArgument for
/// sizes, for a score or scale, and what make_plan throws.
LatentPlan make_latent_plan(const AttentionSpec& spec, const LatentShape& shape, LatentExecution execution,
                            const PlanOptions& options = {});

struct LatentInputs {
  ConstTensorView query_content;  ///< [batch, num_query_heads, query_len, content_dim]
  ConstTensorView query_rotary;   ///< [batch, num_query_heads, query_len, rotary_dim]; empty where that is 0
  ConstTensorView cache;  ///< [batch, key_len, latent_dim + rotary_dim]: the latent, then the rotated key
  ConstTensorView W_UK;   ///< [num_query_heads, content_dim, latent_dim], f32 (f64 for f64)
  ConstTensorView W_UV;   ///< [num_query_heads, value_dim, latent_dim], f32 (f64 for f64)
  /// What else a call of attend brings: arguments, key_lengths, query_offset or query_offsets, dropout_seed.
  /// Query, key and value stay empty.
  AttentionInputs attention = {};
};

/// What the backward needs: in f32 (f64 for f64), [batch, num_query_heads, query_len, value_dim] (naive) or
/// latent_dim (absorbed), and [batch, num_query_heads, query_len].
struct LatentState {
  Tensor output, log_sum_exp;
};

/// output [batch, num_query_heads, query_len, value_dim] ← the attention, computed in f32 (f64 for f64)
/// throughout and rounded once. Any strides with contiguous innermost axes. Keys that no query may see never
/// matter, whatever the cache holds there. Throws InvalidArgument for shapes, dtypes, strides or memory
/// shared with an input.
LatentState attend_latent(const LatentPlan& plan, const LatentInputs& inputs, TensorView output,
                          const CallResources& resources = {});

/// Each in the shape and dtype of its input; an empty view is "not wanted". W_UK and W_UV contiguous.
struct LatentGradients {
  TensorView query_content, query_rotary, cache, W_UK, W_UV;
  ArgumentGradients arguments = {};  ///< as in AttentionGradients
};

/// Gradients of a scalar loss whose derivative by the output is `d_output`; `state` is what attend_latent
/// returned for the same plan and inputs. Same bits for every thread count. Takes the memory of the forward
/// again (operands are made anew), once more for their gradients.
void attend_latent_backward(const LatentPlan& plan, const LatentInputs& inputs, const LatentState& state,
                            ConstTensorView d_output, const LatentGradients& gradients,
                            const CallResources& resources = {});

}  // namespace fovea
