// The scan of Mamba-1 (Gu and Dao 2023, arXiv 2312.00752, section 3.2), a recurrence whose decays differ in
// every element of the state. With Δ = delta + delta_bias, or softplus of it:
//
//   h[t, c, n] = exp(Δ[t, c] A[c, n]) · h[t-1, c, n] + Δ[t, c] B[t, g, n] x[t, c]     g: the group of channel
//   c y[t, c]    = Σ_n C[t, g, n] h[t, c, n] + D[c] x[t, c],   times z·σ(z) of z[t, c] where there is a gate
//   z
//
//   const SelectiveScanPlan plan = make_selective_scan_plan({}, {.len = 64, .channels = 32, .state_dim =
//   16}); selective_scan(plan, {.x = x, .delta = delta, .a = a, .b = b, .c = c}, {.output = y});
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

/// How a step size Δ follows from delta + delta_bias: ln(1 + e^x), or the number itself.
enum class StepSize : std::uint8_t { softplus, as_given };

struct SelectiveScanSpec {
  StepSize step_size = StepSize::softplus;
};

/// The largest sizes that a plan serves. batch and len are capacities: a call may bring fewer. Channel c
/// belongs to group c / (channels / groups), which shares B and C.
struct SelectiveScanShape {
  std::int64_t batch = 1;
  std::int64_t len = 0;  ///< tokens
  std::int64_t channels = 0;
  std::int64_t groups = 1;
  std::int64_t state_dim = 16;  ///< numbers that a channel remembers
};

/// Immutable, cheap to copy, safe to share between threads.
class SelectiveScanPlan {
 public:
  const SelectiveScanSpec& spec() const noexcept;
  const SelectiveScanShape& shape() const noexcept;
  DType dtype() const noexcept;
  /// The kernel that runs: "avx2 scan", "reference", ...
  std::string_view kernel() const noexcept;

  struct Impl;
  const Impl& impl() const noexcept { return *impl_; }
  explicit SelectiveScanPlan(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<const Impl> impl_;
};

/// `options.dtype` is the type of x, delta, b, c, z, the output and their gradients. A, D, delta_bias and
/// states are f32 (f64 for f64), and so is all arithmetic. Throws InvalidArgument that names the wrong size,
/// or the kernel that cannot be had.
SelectiveScanPlan make_selective_scan_plan(const SelectiveScanSpec& spec, const SelectiveScanShape& shape,
                                           const RecurrenceOptions& options = {});

/// Two lines: the kernel, and the better ones that refused with their reasons; the sizes.
std::string explain(const SelectiveScanPlan& plan);

/// The kernels by name, best first: "avx512 scan", ..., "reference".
std::vector<std::string> list_selective_scan_kernels();

/// [batch, channels, state_dim]: the states of a call with `batch` sequences.
Shape state_shape(const SelectiveScanShape& shape, std::int64_t batch);

/// The inputs of one call. The innermost axis is contiguous; the other strides of x, delta, b, c and z are
/// free.
struct SelectiveScanInputs {
  ConstTensorView x;                   ///< [batch, len, channels]
  ConstTensorView delta;               ///< [batch, len, channels]; at least 0 where it is Δ itself
  ConstTensorView a;                   ///< [channels, state_dim], contiguous, at most 0
  ConstTensorView b, c;                ///< [batch, len, groups, state_dim]
  ConstTensorView d = {};              ///< [channels], contiguous; by default zeros
  ConstTensorView z = {};              ///< [batch, len, channels]; by default the output has no gate
  ConstTensorView delta_bias = {};     ///< [channels], contiguous; by default zeros
  ConstTensorView initial_state = {};  ///< state_shape, contiguous; by default zeros
  /// In the place of initial_state and for a forward call alone, as in RecurrenceInputs.
  std::span<const ConstTensorView> initial_states = {};
  /// Packed sequences and padding, as in RecurrenceInputs.
  std::span<const std::int64_t> sequence_starts = {};
  std::span<const std::uint8_t> present = {};
};

struct SelectiveScanOutputs {
  TensorView output;            ///< [batch, len, channels]; may be empty if a final state is wanted
  TensorView final_state = {};  ///< optional, state_shape, contiguous. May be the memory of initial_state
  std::span<const TensorView> final_states = {};  ///< in its place, as in RecurrenceOutputs
};

/// Bytes of workspace that calls of this plan need with an executor of that many threads.
std::size_t workspace_bytes(const SelectiveScanPlan& plan, int threads);
std::size_t backward_workspace_bytes(const SelectiveScanPlan& plan, int threads);

/// outputs ← scan(inputs). The bits of a token depend neither on the threads, nor on the other sequences, nor
/// on the calls that a sequence is cut into.
///
/// Throws InvalidArgument for shapes, dtypes or strides that do not fit the plan, and for an A above 0 or a Δ
/// below 0. It also throws for outputs that share memory with another tensor. Nothing is written then.
void selective_scan(const SelectiveScanPlan& plan, const SelectiveScanInputs& inputs,
                    const SelectiveScanOutputs& outputs, const CallResources& resources = {});

/// The derivatives of a scalar loss by the results; an empty view is 0.
struct SelectiveScanLoss {
  ConstTensorView d_output = {};       ///< in the shape and dtype of the output
  ConstTensorView d_final_state = {};  ///< state_shape, contiguous
};

/// The gradients wanted, in the shapes and dtypes of the inputs; leave a view empty if its gradient is not
/// wanted. That of initial_state may be wanted without an initial state.
struct SelectiveScanGradients {
  TensorView x = {}, delta = {}, a = {}, b = {}, c = {}, d = {}, z = {}, delta_bias = {}, initial_state = {};
};

/// gradients ← the derivatives of the loss; all are overwritten. Errors are those of selective_scan. The same
/// bits for any number of threads.
void selective_scan_backward(const SelectiveScanPlan& plan, const SelectiveScanInputs& inputs,
                             const SelectiveScanLoss& loss, const SelectiveScanGradients& gradients,
                             const CallResources& resources = {});

}  // namespace fovea
