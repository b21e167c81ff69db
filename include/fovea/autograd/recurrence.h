// Recurrences (fovea/recurrence/spec.h) as differentiable operations, and the element-wise operations
// that gates are made of. Each runs on a plan of the engine (fovea/plan/recurrence.h), forward and backward.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "fovea/autograd/var.h"
#include "fovea/plan/causal_conv.h"
#include "fovea/plan/feature_maps.h"
#include "fovea/plan/recurrence.h"
#include "fovea/plan/selective_scan.h"

namespace fovea::autograd {

/// ln(1 + e^x), without overflow. The logarithm of a sigmoid is -softplus(-x).
Var softplus(const Var& x);
/// e^x.
Var exp(const Var& x);
/// x put into [least, most], which may be infinite. Elements outside get no gradient. Throws InvalidArgument
/// unless least <= most.
Var clamp(const Var& x, float least, float most);
/// Each group of n elements of x [..., G * n] times one factor: factors [..., G], or [G] for all rows. The
/// gradient of factors [G] is a sum over rows in a fixed order. Throws InvalidArgument for other shapes.
Var multiply_groups(const Var& x, const Var& factors);

/// The positive random features of every head (plan/feature_maps.h): x [batch, len, num_heads * dim] ->
/// [batch, len, num_heads * num_features]. `projection` is favor_projection's, f64 [num_features, dim], and
/// has no gradient. Throws what fovea::favor_features throws.
Var favor_features(const Favor& map, const Var& x, const Tensor& projection, std::int64_t num_heads);

/// The result of a recurrence. Both parts are recorded if an input is.
struct OutputAndState {
  Var output;
  Var final_state;  ///< empty where it was not wanted
};
/// Whether a call also returns the state behind its last token.
enum class FinalState : std::uint8_t { unwanted, wanted };

/// The sequences of a batch, as in RecurrenceInputs.
struct TokenLists {
  std::span<const std::int64_t> starts = {};   ///< of a packed batch, whose tensors have a batch of 1
  std::span<const std::uint8_t> present = {};  ///< of a padded batch, [batch, len]
};

/// The states of a call that records nothing, where each sequence's is kept (RecurrenceInputs::initial_states
/// and RecurrenceOutputs::final_states). They take the places of an initial state among the operands and of
/// one that is returned.
struct KeptStates {
  std::span<const ConstTensorView> initial = {};
  std::span<const TensorView> final = {};
};

/// Tokens are rows: x [batch, len, heads * dim]. What the spec does not name is empty.
struct RecurrenceOperands {
  Var query;           ///< [batch, len, num_query_heads * key_dim]
  Var key;             ///< [batch, len, num_key_heads * key_dim]
  Var value;           ///< [batch, len, num_heads * value_dim]
  Var log_decay = {};  ///< [num_heads], [batch, len, num_heads] or [batch, len, num_heads * key_dim]
  Var beta = {};       ///< [batch, len, num_heads]
  Var erase = {}, a = {}, b = {};  ///< [batch, len, num_heads * key_dim]
  Var bonus = {};                  ///< [num_heads, key_dim]
  Var self_weight = {};            ///< [batch, len, num_heads]
  Var initial_state = {};          ///< state_shape(spec, shape, sequences)
};
struct RecurrenceCall {
  RecurrenceSpec spec = {};
  std::int64_t num_query_heads = 1, num_key_heads = 1, num_heads = 1;
  TokenLists lists = {};
  FinalState final_state = FinalState::unwanted;
  KeptStates states = {};
  /// A plan of f32 that was made before and serves this call, in the place of `spec`.
  std::optional<RecurrencePlan> plan = std::nullopt;
};
/// -> [batch, len, max(num_query_heads, num_heads) * value_dim]. Throws what make_recurrence_plan and recur
/// throw, and InvalidArgument for operands whose width no number of heads divides. It throws that also for
/// kept states beside operands that are recorded, as do causal_conv and selective_scan.
OutputAndState recurrence(const RecurrenceCall& call, const RecurrenceOperands& operands);

/// A recurrence is linear in its values: o_i is a sum of values v_j times weights, as in attention. These are
/// the weights, [batch, max(num_query_heads, num_heads), len, len], the quadratic form of the recurrence (Dao
/// and Gu 2024, arXiv 2405.21060, section 3). They may be negative. Not recorded, and for pictures: the time
/// grows with len³. `call` has no lists, no plan and no final state; an initial state and the values are not
/// read. Throws what recurrence throws.
Tensor recurrence_weights(const RecurrenceCall& call, const RecurrenceOperands& operands);

struct CausalConvOperands {
  Var x;                   ///< [batch, len, channels]
  Var weight;              ///< [channels, width]
  Var bias = {};           ///< [channels], or empty
  Var initial_state = {};  ///< [sequences, width - 1, channels], or empty
};
struct CausalConvCall {
  ConvActivation activation = ConvActivation::none;
  TokenLists lists = {};
  FinalState final_state = FinalState::unwanted;
  KeptStates states = {};
};
/// -> [batch, len, channels]: causal_conv of plan/causal_conv.h. Throws what that throws.
OutputAndState causal_conv(const CausalConvCall& call, const CausalConvOperands& operands);

struct SelectiveScanOperands {
  Var x, delta;            ///< [batch, len, channels]
  Var a;                   ///< [channels, state_dim], at most 0
  Var b, c;                ///< [batch, len, groups * state_dim]
  Var d = {};              ///< [channels], or empty
  Var z = {};              ///< [batch, len, channels], or empty
  Var delta_bias = {};     ///< [channels], or empty
  Var initial_state = {};  ///< [sequences, channels, state_dim], or empty
};
struct SelectiveScanCall {
  StepSize step_size = StepSize::softplus;
  TokenLists lists = {};
  FinalState final_state = FinalState::unwanted;
  KeptStates states = {};
};
/// -> [batch, len, channels]: selective_scan of plan/selective_scan.h. Throws what that throws.
OutputAndState selective_scan(const SelectiveScanCall& call, const SelectiveScanOperands& operands);

}  // namespace fovea::autograd
