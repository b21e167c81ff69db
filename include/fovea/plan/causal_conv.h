// The short causal convolution in front of many recurrences: each channel by itself, over a token and the few
// before it (the conv1d of Mamba, arXiv 2312.00752). The inputs before a call are its state.
//
//   y[t, c] = activation(bias[c] + Σ_j weight[c, j] · x[t - width + 1 + j, c])
//
//   const CausalConvPlan plan = make_causal_conv_plan({.activation = ConvActivation::silu}, {..., .channels =
//   64}); causal_conv(plan, {.x = x, .weight = weight, .bias = bias}, {.output = y});
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/core/tensor.h"
#include "fovea/plan/recurrence.h"
#include "fovea/plan/resources.h"

namespace fovea {

/// What follows the sum: nothing, or x·σ(x) (SiLU, arXiv 1702.03118).
enum class ConvActivation : std::uint8_t { none, silu };

struct CausalConvSpec {
  std::int64_t width = 4;  ///< taps, from 2 to 8: the token itself and width - 1 before it
  ConvActivation activation = ConvActivation::none;
};

/// The largest sizes that a plan serves. batch and len are capacities: a call may bring fewer.
struct CausalConvShape {
  std::int64_t batch = 1;
  std::int64_t len = 0;  ///< tokens
  std::int64_t channels = 0;
};

/// Immutable, cheap to copy, safe to share between threads.
class CausalConvPlan {
 public:
  const CausalConvSpec& spec() const noexcept;
  const CausalConvShape& shape() const noexcept;
  DType dtype() const noexcept;
  /// The kernel that runs: "avx2 conv", "reference", ...
  std::string_view kernel() const noexcept;

  struct Impl;
  const Impl& impl() const noexcept { return *impl_; }
  explicit CausalConvPlan(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<const Impl> impl_;
};

/// `options.dtype` is the type of x, the output and their gradients. Weights, bias and states are f32 (f64
/// for f64). Throws InvalidArgument that names the wrong size, or the kernel that cannot be had.
CausalConvPlan make_causal_conv_plan(const CausalConvSpec& spec, const CausalConvShape& shape,
                                     const RecurrenceOptions& options = {});

/// Two lines: the kernel, and the better ones that refused with their reasons; the sizes.
std::string explain(const CausalConvPlan& plan);

/// The kernels by name, best first: "avx512 conv", ..., "reference".
std::vector<std::string> list_causal_conv_kernels();

/// [batch, width - 1, channels]: the states of a call with `batch` sequences, the oldest input first.
Shape state_shape(const CausalConvSpec& spec, const CausalConvShape& shape, std::int64_t batch);

/// The inputs of one call. The channels of x are contiguous, its other strides are free.
struct CausalConvInputs {
  ConstTensorView x;                   ///< [batch, len, channels]
  ConstTensorView weight;              ///< [channels, width], contiguous; the last tap is the token itself
  ConstTensorView bias = {};           ///< [channels], contiguous; by default zeros
  ConstTensorView initial_state = {};  ///< state_shape, contiguous; by default zeros
  /// In the place of initial_state and for a forward call alone, as in RecurrenceInputs.
  std::span<const ConstTensorView> initial_states = {};
  /// Packed sequences and padding, as in RecurrenceInputs. A token that is left out is not among the inputs
  /// of those behind it.
  std::span<const std::int64_t> sequence_starts = {};
  std::span<const std::uint8_t> present = {};
};

struct CausalConvOutputs {
  TensorView output;            ///< [batch, len, channels]; may be empty if a final state is wanted
  TensorView final_state = {};  ///< optional, state_shape, contiguous. May be the memory of initial_state
  std::span<const TensorView> final_states = {};  ///< in its place, as in RecurrenceOutputs
};

/// Bytes of workspace that calls of this plan need with an executor of that many threads.
std::size_t workspace_bytes(const CausalConvPlan& plan, int threads);
std::size_t backward_workspace_bytes(const CausalConvPlan& plan, int threads);

/// outputs ← convolution(inputs). The bits of a token depend neither on the threads, nor on the other
/// sequences, nor on the calls that a sequence is cut into.
///
/// Throws InvalidArgument for shapes, dtypes or strides that do not fit the plan, and for outputs that share
/// memory with another tensor. Nothing is written then.
void causal_conv(const CausalConvPlan& plan, const CausalConvInputs& inputs, const CausalConvOutputs& outputs,
                 const CallResources& resources = {});

/// The derivatives of a scalar loss by the results; an empty view is 0.
struct CausalConvLoss {
  ConstTensorView d_output = {};       ///< in the shape and dtype of the output
  ConstTensorView d_final_state = {};  ///< state_shape, contiguous
};

/// The gradients wanted, in the shapes of the inputs; leave a view empty if its gradient is not wanted. That
/// of initial_state may be wanted without an initial state.
struct CausalConvGradients {
  TensorView x = {}, weight = {}, bias = {}, initial_state = {};
};

/// gradients ← the derivatives of the loss; all are overwritten. Errors are those of causal_conv. The
/// gradients of x and of the state keep their bits however a sequence is cut. Those of weight and bias are
/// sums over tokens, which keep them for any number of threads.
void causal_conv_backward(const CausalConvPlan& plan, const CausalConvInputs& inputs,
                          const CausalConvLoss& loss, const CausalConvGradients& gradients,
                          const CallResources& resources = {});

}  // namespace fovea
