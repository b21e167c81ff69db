// What the layers with recurrences share: where the tokens and the states of a call are, the convolution, and
// norms by head.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "fovea/autograd/recurrence.h"
#include "fovea/core/kept_vector.h"
#include "fovea/nn/layers.h"
#include "fovea/nn/recurrent_mixer.h"

namespace fovea::nn {

/// The plans of the last few shapes. Guarded by a mutex, because several threads may use a layer.
class RecurrencePlans {
 public:
  RecurrencePlans(RecurrenceSpec spec, RecurrenceShape shape) : spec_(spec), shape_(shape) {}
  /// A plan for so many sequences of at most `len` tokens.
  RecurrencePlan of(std::int64_t sequences, std::int64_t len);
  const RecurrenceShape& shape() const { return shape_; }
  const RecurrenceSpec& spec() const { return spec_; }

 private:
  RecurrenceSpec spec_;
  RecurrenceShape shape_;
  std::mutex mutex_;
  std::array<std::optional<RecurrencePlan>, 4> plans_;  // the last used first
};

/// The tokens of one call, and where the parts of its states are.
class MixerTokens {
 public:
  MixerTokens(const RecurrentMixer::Call& call, std::span<const Shape> parts, std::int64_t batch);

  autograd::TokenLists lists() const { return {.starts = call_.starts}; }
  const RecurrentMixer::Call& call() const { return call_; }
  /// Those of one part; none if none are kept.
  autograd::KeptStates states(std::size_t part) const;

  /// The recurrence whose state is `part`. Its call needs heads alone.
  Var recur(std::size_t part, RecurrencePlans& plans, const autograd::RecurrenceOperands& operands) const;

 private:
  bool keeps() const { return !call_.states.empty(); }

  RecurrentMixer::Call call_;
  KeptVector<ConstTensorView> before_;  // part by part, one for each sequence
  KeptVector<TensorView> behind_;
};

/// The interface of a kind of layer.
class RecurrentMixer::Layer {
 public:
  Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;
  virtual ~Layer() = default;
  /// The shapes of the parts of a sequence's state.
  virtual KeptVector<Shape> parts() const = 0;
  virtual Var run(Context& context, const Var& x, const MixerTokens& tokens) const = 0;
  /// As in RecurrentMixer.
  virtual Tensor resting_log_decays() const { return {}; }
};

using RecurrentLayer = std::unique_ptr<const RecurrentMixer::Layer>;
RecurrentLayer make_layer(ParameterSet& set, const std::string& name, std::int64_t dim,
                          const LinearAttentionOptions& options);
RecurrentLayer make_layer(ParameterSet& set, const std::string& name, std::int64_t dim,
                          const RetentionOptions& options);
RecurrentLayer make_layer(ParameterSet& set, const std::string& name, std::int64_t dim,
                          const GatedLinearAttentionOptions& options);
RecurrentLayer make_layer(ParameterSet& set, const std::string& name, std::int64_t dim,
                          const GatedDeltaOptions& options);
RecurrentLayer make_layer(ParameterSet& set, const std::string& name, std::int64_t dim,
                          const Mamba2Options& options);
RecurrentLayer make_layer(ParameterSet& set, const std::string& name, std::int64_t dim,
                          const MambaOptions& options);
RecurrentLayer make_layer(ParameterSet& set, const std::string& name, std::int64_t dim,
                          const Rwkv7Options& options);
RecurrentLayer make_layer(ParameterSet& set, const std::string& name, std::int64_t dim,
                          const PerformerOptions& options);

/// Depthwise causal convolution with an activation. Parameters: "<name>.weight" [channels, width],
/// "<name>.bias".
struct ShortConv {
  Parameter* weight = nullptr;
  Parameter* bias = nullptr;
  autograd::Activation activation = autograd::Activation::silu;
  ShortConv() = default;
  ShortConv(ParameterSet& set, const std::string& name, std::int64_t channels, std::int64_t width,
            Linear::Bias with_bias, autograd::Activation activation);
  Shape part() const { return {weight->value.size(1) - 1, weight->value.size(0)}; }
  Var operator()(Context& context, const Var& x, const MixerTokens& tokens, std::size_t part) const;
};

/// [B, L, heads * dim], each head of a row divided by sqrt(Σx² + 1e-6).
Var unit_heads(const Var& x, std::int64_t heads);
/// [B, L, heads * dim], each head of a row normalised by `norm`.
Var normalized_by_head(Context& context, const Norm& norm, const Var& x, std::int64_t heads);
/// The norm by head of an output.
Norm head_norm(ParameterSet& set, const std::string& name, std::int64_t dim, float epsilon = 1e-5f);
/// Rows [B, L, dim] divided by their root mean square.
Var unit_mean_square(const Var& x, float epsilon);
inline Linear plain(ParameterSet& set, const std::string& name, std::int64_t in, std::int64_t out) {
  return Linear(set, name, in, out, Linear::Bias::without);
}
/// The part of x [B, L, width] from column `begin` on.
inline Var columns(const Var& x, std::int64_t begin, std::int64_t count) {
  return autograd::slice(x, 2, begin, count);
}

/// Parameters that decays begin with, spread over `count` heads: ln of 1 to 16, and the inverse softplus of
/// 0.001 to 0.1.
Tensor spread_log_rates(std::int64_t count);
Tensor spread_steps(std::int64_t count);
/// ln(1 + e^x), without overflow for any x.
float softplus(float x);
/// The range of a step.
struct StepRange {
  float least = 0.0f, most = std::numeric_limits<float>::infinity();
  bool operator==(const StepRange&) const = default;
};
/// -e^A softplus(b) of rates A [channels] or [channels, n] and the biases b [channels] of their steps:
/// [channels, n].
Tensor resting_by_rates(const Tensor& log_rates, const Tensor& step_biases, const StepRange& range = {});
/// The mean over tokens of -e^A softplus(s), of rates A [channels, n] and steps s [B, L, channels]:
/// [channels, n].
Tensor mean_by_rates(const Tensor& log_rates, const Tensor& steps);
/// Sets the bias of a layer that gives steps.
void start_steps(ParameterSet& set, Parameter& bias);

}  // namespace fovea::nn
