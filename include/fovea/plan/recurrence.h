// Calls of recurrences (fovea/recurrence/spec.h), as fovea/plan/plan.h has those of attention. Plan
// once, run often: make_recurrence_plan checks a spec and a shape and picks the best kernel; recur and
// recur_backward check the shapes of each call.
//
//   const RecurrenceSpec spec{.decay = ScalarDecay{}, .write = DeltaWrite{}};  // gated DeltaNet
//   const RecurrencePlan plan = make_recurrence_plan(spec, {.num_query_heads = 4, ..., .key_dim = 64});
//   recur(plan, {.query = q, .key = k, .value = v, .log_decay = g, .beta = beta}, {.output = o});
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/core/tensor.h"
#include "fovea/plan/resources.h"
#include "fovea/recurrence/spec.h"

namespace fovea {

struct RecurrenceOptions {
  /// The dtype of query, key, value, erase, a, b, output and their gradients. Gates, weights and states are
  /// f32 (f64 for f64), and so is all arithmetic.
  DType dtype = DType::f32;
  /// Forces an instruction set ("reference", "baseline", "avx2", ...) or one algorithm ("avx2 chunked"). If
  /// empty, the environment's FOVEA_ISA decides, and without that the best kernel runs. A name that does not
  /// exist, or that cannot run here, is an error.
  std::string kernel = {};
};

/// Immutable, cheap to copy, safe to share between threads.
class RecurrencePlan {
 public:
  const RecurrenceSpec& spec() const noexcept;
  const RecurrenceShape& shape() const noexcept;  ///< value_dim filled in
  DType dtype() const noexcept;
  /// The kernel that runs: "avx2 chunked", "reference", ...
  std::string_view kernel() const noexcept;
  /// The tokens that the kernel takes at a time. A sequence that is cut into calls at multiples of it, with
  /// the state passed on, gives the same outputs and states to the bit as one call.
  std::int64_t chunk() const noexcept;

  struct Impl;
  const Impl& impl() const noexcept { return *impl_; }
  explicit RecurrencePlan(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<const Impl> impl_;
};

/// Throws InvalidArgument that names the wrong part (checked_shape in fovea/recurrence/spec.h), or the kernel
/// that cannot be had.
RecurrencePlan make_recurrence_plan(const RecurrenceSpec& spec, const RecurrenceShape& shape,
                                    const RecurrenceOptions& options = {});

/// Three lines: the kernel, and the better ones that refused with their reasons; the spec; the sizes.
std::string explain(const RecurrencePlan& plan);

/// The kernels of recurrences by name, best first: "avx512 chunked", ..., "reference".
std::vector<std::string> list_recurrence_kernels();

/// The inputs of one call. `heads` is the plan's num_heads, `dim` its key_dim. Strides are free, but the
/// innermost axis of a 4-D tensor is contiguous. What the spec does not name must be empty. Views and spans
/// are borrowed: what they point to must live until the call has returned.
struct RecurrenceInputs {
  ConstTensorView query;  ///< [batch, num_query_heads, len, dim]; may be empty if no output is wanted
  ConstTensorView key;    ///< [batch, num_key_heads, len, dim]
  ConstTensorView value;  ///< [batch, heads, len, value_dim]
  /// g <= 0, the logarithms of decays: [heads], [batch, heads, len] or [batch, heads, len, dim], as the decay
  /// says. -infinity forgets everything.
  ConstTensorView log_decay = {};
  ConstTensorView beta = {};   ///< DeltaWrite: [batch, heads, len]; 1 where there is an erase alone
  ConstTensorView erase = {};  ///< DeltaWrite: [batch, heads, len, dim]; the key where there is a beta alone
  ConstTensorView a = {}, b = {};      ///< DiagonalPlusLowRankWrite: [batch, heads, len, dim]
  ConstTensorView bonus = {};          ///< BeforeDecay: [heads, dim], contiguous
  ConstTensorView self_weight = {};    ///< SelfWeight: [batch, heads, len]
  ConstTensorView initial_state = {};  ///< state_shape, contiguous; by default zeros
  /// In the place of initial_state, for recur alone: each sequence's state where it is kept, contiguous, in
  /// state_shape without its first axis. An empty one is zeros.
  std::span<const ConstTensorView> initial_states = {};
  /// A packed batch: sequences of any lengths one behind the other. Tensors then have a batch of 1, and
  /// sequence n has the tokens [starts[n], starts[n + 1]). The list ascends from 0 to len (cu_seqlens of
  /// FlashAttention). The plan's batch is the largest number of sequences, its len the most tokens of one.
  /// States have one entry a sequence. A sequence gives the bits that it gives in a call of its own.
  std::span<const std::int64_t> sequence_starts = {};
  /// Padding: [batch, len] numbers, contiguous. A token with 0 is left out, as if the sequence were shorter.
  /// It is never read, its output and its gradients are 0. Empty: every token counts.
  std::span<const std::uint8_t> present = {};
};

struct RecurrenceOutputs {
  TensorView output;  ///< [batch, num_output_heads, len, value_dim]; may be empty if a final state is wanted
  TensorView final_state = {};  ///< optional, state_shape, contiguous. May be the memory of initial_state
  /// In the place of final_state: memory for each sequence's state, as initial_states. It may be that of the
  /// same sequence's initial state.
  std::span<const TensorView> final_states = {};
  /// Optional, KeySum: the denominators n + epsilon, [batch, num_output_heads, len], for recur_backward.
  TensorView denominator = {};
  /// Optional, [saved_states_size], contiguous, at a multiple of 64 bytes: what recur_backward otherwise
  /// computes again, which is the states between chunks and what delta and low-rank writes have solved for.
  TensorView saved_states = {};
};

/// The elements of RecurrenceOutputs::saved_states for these inputs, in the dtype of states. A head of d x d
/// takes d² / 16 for a token, and d more unless writes are additive. 0 if the plan's kernel saves none.
std::int64_t saved_states_size(const RecurrencePlan& plan, const RecurrenceInputs& inputs);

/// Bytes of workspace that calls of this plan need with an executor of that many threads.
std::size_t workspace_bytes(const RecurrencePlan& plan, int threads);
std::size_t backward_workspace_bytes(const RecurrencePlan& plan, int threads);

/// outputs ← recurrence(inputs).
///
/// The bits do not depend on the number of threads, nor on the other sequences of a call. A NaN reaches the
/// tokens after it and those of its chunk.
///
/// Throws InvalidArgument for shapes, dtypes or strides that do not fit the plan, and for inputs that the
/// spec needs or does not have. It also throws for a gate above 0, and for outputs that share memory with
/// another tensor. Nothing is written then.
void recur(const RecurrencePlan& plan, const RecurrenceInputs& inputs, const RecurrenceOutputs& outputs,
           const CallResources& resources = {});

/// The derivatives of a scalar loss by the results of recur; an empty view is 0.
struct RecurrenceLoss {
  ConstTensorView d_output = {};                  ///< in the shape and dtype of the output
  ConstTensorView d_final_state = {};             ///< state_shape, contiguous
  ConstTensorView output = {}, denominator = {};  ///< KeySum: as recur wrote them, where d_output is given
  /// Optional, as recur wrote it for the same inputs and plan. The gradients have the same bits without it.
  ConstTensorView saved_states = {};
};

/// The gradients wanted; leave a view empty if its gradient is not wanted. All are overwritten. A gradient
/// has the shape and the dtype of its input; that of initial_state may be wanted without an initial state.
struct RecurrenceGradients {
  TensorView query = {}, key = {}, value = {};
  TensorView log_decay = {}, beta = {}, erase = {}, a = {}, b = {}, bonus = {}, self_weight = {};
  TensorView initial_state = {};
};

/// gradients ← the derivatives of the loss. `inputs` are those of recur, the initial state as it was before
/// the call. Arguments and errors as in recur; the same bits for any number of threads.
void recur_backward(const RecurrencePlan& plan, const RecurrenceInputs& inputs, const RecurrenceLoss& loss,
                    const RecurrenceGradients& gradients, const CallResources& resources = {});

}  // namespace fovea
