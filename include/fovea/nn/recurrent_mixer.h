// Recurrences (fovea/recurrence/spec.h) as layers that mix rows: projections, a short convolution, gates and
// norms around one recurrence of the engine. A layer keeps a state of fixed size for each sequence,
// and no row of those it has read. blocks.h puts them into stacks, beside attention.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "fovea/nn/layers.h"
#include "fovea/nn/rotary.h"

namespace fovea::nn {

/// Linear attention (Katharopoulos et al. 2020, arXiv 2006.16236, equations 9 to 11 with the features of 7):
/// S += φ(k) v^T, z += φ(k), o = S^T φ(q) / (z·φ(q) + epsilon), φ = elu + 1. Parameters: q_proj, k_proj,
/// v_proj, out_proj, without biases.
struct LinearAttentionOptions {
  std::int64_t num_heads = 1;
  std::int64_t key_dim = 0;    ///< of a head; 0: dim / num_heads
  std::int64_t value_dim = 0;  ///< of a head; 0: key_dim
  double epsilon = 1e-6;
};

/// RetNet's multi-scale retention (Sun et al. 2023, arXiv 2307.08621, equations 6 and 8): S = γ S + k v^T
/// with γ = 1 - 2^(-5 - h) for head h. The output is normalised by head and multiplied by SiLU(x Wg).
/// Parameters: q_proj, k_proj, v_proj, gate_proj, out_proj, without biases; norm of value_dim.
struct RetentionOptions {
  std::int64_t num_heads = 1;
  std::int64_t key_dim = 0;         ///< of a head; 0: dim / num_heads
  std::int64_t value_dim = 0;       ///< of a head; 0: twice key_dim, as in the paper
  std::optional<Rotary> rope = {};  ///< rotates queries and keys: xPos without its decay
};

/// Gated linear attention (Yang et al. 2023, arXiv 2312.06635, sections 4.1 and 4.4): S = diag(α) S + k v^T,
/// where α = σ(x W1 W2 + b)^(1/gate_divisor) has one element for each row of the state. The output is
/// normalised by head and multiplied by SiLU(x Wg). Parameters: q_proj, k_proj, v_proj, gate_proj, out_proj
/// and decay_down without biases, decay_up; norm of value_dim.
struct GatedLinearAttentionOptions {
  std::int64_t num_heads = 1;
  std::int64_t key_dim = 0;    ///< of a head; 0: dim / (2 num_heads), as in the paper
  std::int64_t value_dim = 0;  ///< of a head; 0: dim / num_heads
  std::int64_t gate_rank = 16;
  float gate_divisor = 16.0f;
};

/// Gated DeltaNet (Yang et al. 2024, arXiv 2412.06464, equation 10 and section 3.4), as in Qwen3-Next.
/// Queries, keys and values pass a short causal convolution and SiLU. Queries and keys then get unit length,
/// and
///
///   S = α S + β k (v - (α S)^T k)^T,   ln α = -e^A softplus(x Wa + b),   β = σ(x Wb)
///
/// The output is normalised by head and multiplied by SiLU(x Wg). Parameters: qkv_proj, beta_proj, gate_proj,
/// out_proj without biases, decay_proj; conv1d.weight; A_log of num_heads; norm of value_dim.
struct GatedDeltaOptions {
  std::int64_t num_heads = 1;
  std::int64_t num_key_heads = 0;  ///< heads of queries and keys, which values share; 0: num_heads
  std::int64_t key_dim = 0;        ///< of a head; 0: dim / num_heads
  std::int64_t value_dim = 0;      ///< of a head; 0: key_dim
  std::int64_t conv_width = 4;
  autograd::Activation conv_activation = autograd::Activation::silu;
  float norm_epsilon = 1e-5f;
};

/// Mamba-2 (Dao and Gu 2024, arXiv 2405.21060, section 7 and listing 1): x, B and C pass a short causal
/// convolution and SiLU, Δ = softplus(x Wd + b), and with A = -e^A_log
///
///   S = e^(Δ A) S + B (Δ x)^T,   y = S^T C + D x
///
/// The output is RMSNorm(y ∘ SiLU(z)), over each group. Parameters: z_proj, xbc_proj, dt_proj, out_proj;
/// conv1d; A_log and D, one for each head; norm.weight. The reference has one matrix in_proj in place of the
/// first three. Without biases of projections, b is dt_proj.bias. With them, b is dt_bias.
struct Mamba2Options {
  std::int64_t inner = 0;       ///< elements of x and z; 0: twice dim
  std::int64_t head_dim = 0;    ///< elements of x in a head; 0: 64, or inner if that is less
  std::int64_t state_dim = 64;  ///< elements of B and C
  std::int64_t groups = 1;      ///< of heads that share B and C
  std::int64_t conv_width = 4;
  Linear::Bias biases = Linear::Bias::without;  ///< of the projections
  Linear::Bias conv_bias = Linear::Bias::with;
  autograd::Activation conv_activation = autograd::Activation::silu;
  float norm_epsilon = 1e-5f;
  /// Every step Δ is put into this range. A step outside passes on no gradient.
  float least_step = 0.0f, most_step = std::numeric_limits<float>::infinity();
};

/// Mamba (Gu and Dao 2023, arXiv 2312.00752, algorithm 2 and section 3.4): the scan of plan/selective_scan.h,
/// in which each channel has state_dim decays. Parameters: in_proj, x_proj, dt_proj, out_proj; conv1d; A_log
/// [inner, state_dim]; D. x_proj has no bias, and dt_proj has one.
struct MambaOptions {
  std::int64_t inner = 0;  ///< channels; 0: twice dim
  std::int64_t state_dim = 16;
  std::int64_t step_rank = 0;  ///< of Δ; 0: dim / 16, rounded up
  std::int64_t conv_width = 4;
  Linear::Bias biases = Linear::Bias::without;  ///< of in_proj and out_proj
  Linear::Bias conv_bias = Linear::Bias::with;
  autograd::Activation conv_activation = autograd::Activation::silu;
  /// If given, Δ's part of x_proj, B and C are each divided by their root mean square (Zuo et al. 2024, arXiv
  /// 2410.05355). The epsilon stands under the root, and there are no weights.
  std::optional<float> selection_epsilon = {};
};

/// RWKV-7's time mixing (Peng et al. 2025, arXiv 2503.14456, section 4.1): each projection reads a mixture of
/// the token and the one before it, and
///
///   S = diag(w) S + (κ̂ ∘ a) (-S^T κ̂)^T + k v^T,   ln w = -e^(-1/2) σ(w0 + tanh(x W1) W2)
///
/// with κ̂ of unit length, the key by channel, and learned rates a. The output is normalised by head, gets the
/// token's own pair with a learned weight, and is multiplied by a gate. The values of later layers are mixed
/// with those of the stack's first such layer. Parameters: r_proj, k_proj, v_proj, out_proj without biases;
/// w, a and v as _down and _up; g_down, g_up; x_r, x_w, x_k, x_v, x_a, x_g; k_k, k_a, r_k; norm.
struct Rwkv7Options {
  std::int64_t head_dim = 0;  ///< 0: 64, or dim if that is less
  std::int64_t rank = 32;     ///< of decays, rates and the mixture of values
  std::int64_t gate_rank = 64;
};

/// Performer (Choromanski et al. 2020, arXiv 2009.14794): linear attention with positive random features
/// (plan/feature_maps.h), whose products are softmax attention's on average. The projection is drawn once,
/// the same for all heads, and is not trained. Parameters: q_proj, k_proj, v_proj, out_proj, without biases.
struct PerformerOptions {
  std::int64_t num_heads = 1;
  std::int64_t key_dim = 0;    ///< of a head; 0: dim / num_heads
  std::int64_t value_dim = 0;  ///< of a head; 0: key_dim
  std::int64_t features = 64;  ///< of a head
  double epsilon = 1e-6;
  std::uint64_t projection_seed = 1;
};

using RecurrentOptions =
    std::variant<LinearAttentionOptions, RetentionOptions, GatedLinearAttentionOptions, GatedDeltaOptions,
                 Mamba2Options, MambaOptions, Rwkv7Options, PerformerOptions>;

/// One layer. Where papers draw decays at random, it spreads them evenly over the heads: e^A_log goes from 1
/// to 16, and the first step from 0.001 to 0.1. Both go in geometric steps.
class RecurrentMixer {
 public:
  RecurrentMixer() = default;
  /// Throws InvalidArgument for sizes below 1 or that do not divide.
  RecurrentMixer(ParameterSet& set, const std::string& name, std::int64_t dim,
                 const RecurrentOptions& options);

  /// Where a sequence's state lies: f32 [state_size()], contiguous. An empty `before` is zeros. Both may be
  /// the same memory.
  struct State {
    ConstTensorView before;
    TensorView behind;
  };
  struct Call {
    /// For a packed batch, x [1, L, dim]: sequence n has the rows from starts[n] to starts[n + 1]. The
    /// numbers ascend from 0 to L. Equal neighbours are a sequence without rows.
    std::span<const std::int64_t> starts = {};
    /// The position of each sequence's first row, for rotary positions: one number for each sequence. Empty:
    /// 0 for all.
    std::span<const std::int64_t> first = {};
    /// Inference alone: the states before the rows and behind them, one for each sequence. None: each
    /// sequence begins with zeros, and no state is kept.
    std::span<const State> states = {};
    /// If given, receives the weights of the values (autograd::recurrence_weights), [B, heads, L, L]. Needs a
    /// call without states and starts. Mamba, whose channels have weights of their own, leaves it empty.
    Tensor* weights = nullptr;
    /// If given, receives the mean logarithm of each head's decay over the tokens of this call and, where
    /// they differ, over the rows of its state: [heads]. Mamba has no heads: of each channel and each of its
    /// states, [inner, state_dim]. Layers without a decay leave it empty.
    Tensor* log_decays = nullptr;
    /// RWKV-7: the values of the first such layer of a stack. An empty one is filled, and others are read.
    /// Null: the layer's own values alone.
    Var* first_value = nullptr;
  };
  /// x [B, L, dim] -> [B, L, dim]. A row depends on the rows before it in its sequence, and on itself. Throws
  /// InvalidArgument for states of another shape or while training, and for weights beside states or starts.
  /// Throws it also for `starts` that do not ascend from 0 to L, and for a `first` of another length.
  Var operator()(Context& context, const Var& x, const Call& call) const;

  /// The f32 numbers that a sequence keeps. All of a new sequence are 0.
  std::int64_t state_size() const;
  /// The log decay of a token whose step and gate projections are 0, so that only rates and biases count:
  /// [heads, 1], or [heads, rows of a state] where these differ, or [inner, state_dim] for Mamba.
  /// It is a constant of retention, and a place to start from elsewhere: each token has its own.
  /// Empty for recurrences that do not decay.
  Tensor resting_log_decays() const;
  const RecurrentOptions& options() const noexcept { return options_; }  ///< every size filled in

  class Layer;

 private:
  RecurrentOptions options_;
  std::shared_ptr<const Layer> layer_;
};

/// "gated_delta", the name of a mixer in configs and options of commands.
const char* name_of(const RecurrentOptions& options);

}  // namespace fovea::nn
