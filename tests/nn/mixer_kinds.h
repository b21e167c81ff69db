// One mixer of each kind of recurrence, small enough for gradients by differences.
#pragma once

#include <ostream>
#include <vector>

#include "fovea/nn/recurrent_mixer.h"

namespace fovea::nn {

/// The width of the rows that these mixers take.
inline constexpr std::int64_t kind_dim = 8;

struct Kind {
  const char* name;
  RecurrentOptions options;
};

// GoogleTest would print the bytes of the options.
inline void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.name;
}

inline std::vector<Kind> kinds() {
  return {{"linear", LinearAttentionOptions{.num_heads = 2}},
          {"retention", RetentionOptions{.num_heads = 2, .rope = Rotary(Rope{.rotary_dim = 4}, 128)}},
          {"gla", GatedLinearAttentionOptions{.num_heads = 2, .key_dim = 4, .gate_rank = 3}},
          {"gated_delta", GatedDeltaOptions{.num_heads = 2, .value_dim = 3}},
          {"mamba2", Mamba2Options{.head_dim = 4, .state_dim = 3, .groups = 2}},
          {"mamba", MambaOptions{.state_dim = 3, .step_rank = 2}},
          {"rwkv7", Rwkv7Options{.head_dim = 4, .rank = 3, .gate_rank = 5}},
          {"performer", PerformerOptions{.num_heads = 2, .features = 6}}};
}

/// Those, and the same kinds with the options that models of other libraries have.
inline std::vector<Kind> kinds_and_variants() {
  std::vector<Kind> list = kinds();
  const std::vector<Kind> variants = {
      {"gated_delta_of_shared_keys", GatedDeltaOptions{.num_heads = 4,
                                                       .num_key_heads = 2,
                                                       .value_dim = 3,
                                                       .conv_activation = autograd::Activation::gelu,
                                                       .norm_epsilon = 0.1f}},
      {"mamba2_with_biases", Mamba2Options{.head_dim = 4,
                                           .state_dim = 3,
                                           .biases = Linear::Bias::with,
                                           .conv_bias = Linear::Bias::without,
                                           .conv_activation = autograd::Activation::tanh,
                                           .norm_epsilon = 0.1f,
                                           .least_step = 0.01f,
                                           .most_step = 0.9f}},
      {"mamba_with_unit_selection", MambaOptions{.state_dim = 3,
                                                 .step_rank = 2,
                                                 .biases = Linear::Bias::with,
                                                 .conv_bias = Linear::Bias::without,
                                                 .conv_activation = autograd::Activation::gelu_tanh,
                                                 .selection_epsilon = 0.1f}}};
  list.insert(list.end(), variants.begin(), variants.end());
  return list;
}

}  // namespace fovea::nn
