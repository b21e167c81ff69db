// From a family's values to blocks, and to JSON.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "fovea/attention/expression.h"
#include "fovea/attention/masks.h"
#include "models/family/row.h"

namespace fovea::models {
namespace {

using Bias = nn::Linear::Bias;

Bias bias(bool with) {
  return with ? Bias::with : Bias::without;
}

// The rows that a row sees of those that causal attention, or an encoder's, lets it see.
Mask window_of(const FamilyConfig& config) {
  if (config.kind == FamilyKind::decoder) return SlidingWindow{.lookback = *config.window - 1};
  return SlidingWindow{.lookback = *config.window, .lookahead = *config.window};
}

std::optional<double> scale_of(const FamilyConfig& config, std::int64_t layer) {
  if (config.score_factor) return config.score_factor;
  const double dim = config.query_scalar.value_or(static_cast<double>(config.head_dim));
  double scale = config.scale_scores ? 1.0 / std::sqrt(dim) : 1.0;
  if (config.scale_by_layer) scale /= static_cast<double>(layer + 1);
  return scale;
}

Tensor slopes_of(std::int64_t heads) {
  Tensor slopes(DType::f32, {heads});
  std::ranges::transform(alibi_slopes(heads), slopes.data<float>(),
                         [](double slope) { return static_cast<float>(slope); });
  return slopes;
}

struct Rotaries {
  std::optional<nn::Rotary> all, window;
};

nn::AttentionOptions attention_of(const FamilyConfig& config, std::int64_t layer, const Rotaries& rotaries) {
  nn::AttentionOptions attention{
      .num_query_heads = config.heads, .num_kv_heads = config.kv_heads, .head_dim = config.head_dim};
  attention.biases = {bias(config.query_bias), bias(config.query_bias), bias(config.query_bias),
                      bias(config.output_bias)};
  attention.spec.scale = scale_of(config, layer);
  if (config.score_cap) attention.spec.mods.push_back(SoftCap{*config.score_cap});
  if (config.alibi) {
    attention.fixed.push_back(
        {"mods[" + std::to_string(attention.spec.mods.size()) + "].slope", slopes_of(config.heads)});
    attention.spec.mods.push_back(AlibiBias{});
  }
  const auto i = static_cast<std::size_t>(layer);
  const bool window = config.sees[i] == LayerSees::window;
  if (window) attention.spec.mask = window_of(config);
  if (config.query_key_norm) attention.query_key_norm = norm_of(config);
  if (config.norm_of_all_heads) attention.query_key_norm_of = nn::AttentionOptions::NormOf::all_heads;
  if (config.attention_gate) attention.output_gate = nn::AttentionOptions::OutputGate::with;
  if (config.rotary && (config.layers_with_rope.empty() || config.layers_with_rope[i]))
    attention.rope = window ? rotaries.window : rotaries.all;
  return attention;
}

nn::RecurrentOptions recurrence_of(const FamilyConfig& config) {
  const auto epsilon = static_cast<float>(config.norm_epsilon);
  if (config.recurrence == FamilyRecurrence::gated_delta)
    return nn::GatedDeltaOptions{.num_heads = config.recurrent_heads,
                                 .num_key_heads = config.recurrent_key_heads,
                                 .key_dim = config.recurrent_key_dim,
                                 .value_dim = config.recurrent_value_dim,
                                 .conv_width = config.conv_width,
                                 .conv_activation = config.conv_activation,
                                 .norm_epsilon = epsilon};
  if (config.recurrence == FamilyRecurrence::mamba2) {
    nn::Mamba2Options mamba2{.inner = config.recurrent_inner,
                             .head_dim = config.recurrent_value_dim,
                             .state_dim = config.state_dim,
                             .groups = config.state_groups,
                             .conv_width = config.conv_width,
                             .biases = bias(config.recurrent_bias),
                             .conv_bias = bias(config.conv_bias),
                             .conv_activation = config.conv_activation,
                             .norm_epsilon = epsilon,
                             .least_step = static_cast<float>(config.least_step)};
    if (config.most_step) mamba2.most_step = static_cast<float>(*config.most_step);
    return mamba2;
  }
  nn::MambaOptions mamba{.inner = config.recurrent_inner,
                         .state_dim = config.state_dim,
                         .step_rank = config.step_rank,
                         .conv_width = config.conv_width,
                         .biases = bias(config.recurrent_bias),
                         .conv_bias = bias(config.conv_bias),
                         .conv_activation = config.conv_activation};
  if (config.selection_epsilon) mamba.selection_epsilon = static_cast<float>(*config.selection_epsilon);
  return mamba;
}

nn::Mixer mixer_of(const FamilyConfig& config, std::int64_t layer, const Rotaries& rotaries) {
  if (config.sees[static_cast<std::size_t>(layer)] == LayerSees::state) return recurrence_of(config);
  return attention_of(config, layer, rotaries);
}

nn::Mlp mlp_of(const FamilyConfig& config) {
  if (!config.has_feed_forward) return nn::NoMlp{};
  if (config.gated)
    return nn::GatedMlp{
        .inner = config.feed_forward, .activation = config.activation, .bias = bias(config.mlp_bias)};
  return nn::PlainMlp{
      .inner = config.feed_forward, .activation = config.activation, .bias = bias(config.mlp_bias)};
}

// Fairseq's rate of sine i of n is 10000^(-i / (n - 1)), Vaswani's 10000^(-i / n).
double base_of_sines(const FamilyConfig& config) {
  constexpr double base = 10000.0;
  if (!config.whole_wavelengths) return base;
  const std::int64_t sines = config.dim / 2;
  return std::pow(base, static_cast<double>(config.dim) / static_cast<double>(2 * (sines - 1)));
}

}  // namespace

double embedding_factor_of(const FamilyConfig& config) {
  return config.scale_embedding ? std::sqrt(static_cast<double>(config.dim)) : config.embedding_factor;
}

nn::NormSpec norm_of(const FamilyConfig& config) {
  return {.kind = config.norm,
          .epsilon = static_cast<float>(config.norm_epsilon),
          .weight_offset = config.norm_offset,
          .bias = bias(config.norm_bias),
          .weight = config.norm_weight ? nn::NormSpec::Weight::with : nn::NormSpec::Weight::without};
}

nn::StackSpec stack_of(const FamilyConfig& config) {
  Rotaries rotaries;  // one table for all layers of a kind
  if (config.rotary) {
    rotaries.all.emplace(config.rope, config.positions);
    rotaries.window = config.window_rope ? nn::Rotary(*config.window_rope, config.positions) : rotaries.all;
  }
  nn::StackSpec stack{.dim = config.dim, .input_dim = config.embedding_dim};
  if (config.one_block) stack.rounds = config.layers;
  for (std::int64_t layer = 0; layer < (config.one_block ? 1 : config.layers); ++layer) {
    nn::BlockSpec block{.mixer = mixer_of(config, layer, rotaries),
                        .mlp = mlp_of(config),
                        .norm = norm_of(config),
                        .mixer_norm = config.norm_place,
                        .mlp_norm = config.norm_place};
    block.branch_factor = static_cast<float>(config.branch_factor);
    if (config.side_by_side) {
      block.parts = nn::BlockSpec::Parts::side_by_side;
      if (!config.own_mlp_norm) block.mlp_norm = nn::NormPlace::none;
    }
    if (layer == 0 && !config.first_norm) block.mixer_norm = nn::NormPlace::none;
    stack.blocks.push_back(std::move(block));
  }
  if (config.sinusoidal)
    stack.positions =
        nn::SinusoidalPositions{.base = base_of_sines(config), .first = config.first_position_row};
  if (config.learned_positions)
    stack.positions = nn::LearnedPositions{.count = config.positions, .first_row = config.first_position_row};
  if (config.embedding_norm) stack.embedding_norm = norm_of(config);
  if (config.norm_place != nn::NormPlace::post) stack.final_norm = norm_of(config);
  if (config.relative_buckets > 0)
    nn::add_relative_bias(
        stack, {.buckets = config.relative_buckets,
                .max_distance = config.relative_distance,
                .direction = config.kind == FamilyKind::decoder ? RelativeBias::Direction::causal
                                                                : RelativeBias::Direction::bidirectional});
  if (config.relative_of_each_layer) stack.arguments = nn::StackSpec::Arguments::of_each_block;
  return stack;
}

nn::StackSpec decoder_stack_of(const FamilyConfig& config) {
  FamilyConfig side = config;
  side.kind = FamilyKind::decoder;
  side.layers = config.decoder_layers;
  if (config.decoder_heads != config.heads) {
    side.heads = side.kv_heads = config.decoder_heads;
    side.head_dim = config.dim / config.decoder_heads;
  }
  side.feed_forward = config.decoder_feed_forward;
  side.sees.assign(static_cast<std::size_t>(side.layers), LayerSees::all);
  nn::StackSpec stack = stack_of(side);
  for (std::size_t i = 0; i < stack.blocks.size(); ++i) {
    // No positions of any kind: the rows of the memory are not in the decoder's order.
    nn::AttentionOptions cross = attention_of(side, static_cast<std::int64_t>(i), {});
    cross.rope.reset();
    stack.blocks[i].cross = cross;
    stack.blocks[i].cross_norm = config.norm_place;
  }
  return stack;
}

namespace {

using nlohmann::ordered_json;

template <class T>
ordered_json or_null(const std::optional<T>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

const char* name_of(autograd::Activation activation) {
  switch (activation) {
    case autograd::Activation::relu:
      return "relu";
    case autograd::Activation::gelu:
      return "gelu";
    case autograd::Activation::gelu_tanh:
      return "gelu_tanh";
    case autograd::Activation::silu:
      return "silu";
    case autograd::Activation::quick_gelu:
      return "quick_gelu";
    case autograd::Activation::tanh:
      return "tanh";
    case autograd::Activation::relu_squared:
      return "relu_squared";
  }
  return "";
}

const char* name_of(FamilyHead head) {
  switch (head) {
    case FamilyHead::none:
      return "none";
    case FamilyHead::language:
      return "language";
    case FamilyHead::masked:
      return "masked";
    case FamilyHead::sequence_labels:
      return "sequence_labels";
    case FamilyHead::token_labels:
      return "token_labels";
    case FamilyHead::answer:
      return "answer";
  }
  return "";
}

ordered_json positions_of(const FamilyConfig& config) {
  ordered_json positions{{"longest", positions_end(config) ? ordered_json(config.positions) : nullptr}};
  if (config.learned_positions)
    positions["learned"] = {{"rows", config.positions + config.first_position_row},
                            {"first_row", config.first_position_row}};
  if (config.sinusoidal) {
    positions["sinusoidal"] = true;
    if (config.whole_wavelengths) positions["first_position"] = config.first_position_row;
  }
  if (config.rotary) {
    positions["rotary"] = to_string(config.rope);
    if (config.rotary_share || config.rotary_elements) positions["rotated_elements"] = config.rope.rotary_dim;
    if (config.window_rope) positions["rotary_of_windows"] = to_string(*config.window_rope);
    ordered_json without = ordered_json::array();
    for (std::size_t i = 0; i < config.layers_with_rope.size(); ++i) {
      if (!config.layers_with_rope[i]) without.push_back(i);
    }
    if (!without.empty()) positions["layers_without_rotary"] = without;
  }
  if (config.relative_buckets > 0)
    positions["relative"] = {{"buckets", config.relative_buckets},
                             {"distance", config.relative_distance},
                             {"of_each_layer", config.relative_of_each_layer}};
  if (config.alibi) positions["alibi"] = true;
  return positions;
}

const char* name_of(FamilyRecurrence recurrence) {
  switch (recurrence) {
    case FamilyRecurrence::none:
      return "none";
    case FamilyRecurrence::mamba:
      return "mamba";
    case FamilyRecurrence::mamba2:
      return "mamba2";
    case FamilyRecurrence::gated_delta:
      return "gated_delta";
  }
  return "";
}

ordered_json layers_that_see(const FamilyConfig& config, LayerSees what) {
  ordered_json layers = ordered_json::array();
  for (std::size_t i = 0; i < config.sees.size(); ++i) {
    if (config.sees[i] == what) layers.push_back(i);
  }
  return layers;
}

ordered_json recurrence_json(const FamilyConfig& config) {
  ordered_json json{{"kind", name_of(config.recurrence)},
                    {"layers", layers_that_see(config, LayerSees::state)},
                    {"convolution",
                     {{"width", config.conv_width},
                      {"activation", name_of(config.conv_activation)},
                      {"bias", config.conv_bias}}}};
  if (config.recurrence == FamilyRecurrence::gated_delta) {
    json["heads"] = config.recurrent_heads;
    json["key_heads"] = config.recurrent_key_heads;
    json["key_dim"] = config.recurrent_key_dim;
    json["value_dim"] = config.recurrent_value_dim;
    return json;
  }
  json["inner"] = config.recurrent_inner;
  json["state_dim"] = config.state_dim;
  json["bias"] = config.recurrent_bias;
  if (config.recurrence == FamilyRecurrence::mamba) {
    json["step_rank"] = config.step_rank;
    json["selection_epsilon"] = or_null(config.selection_epsilon);
    return json;
  }
  json["heads"] = config.recurrent_heads;
  json["groups"] = config.state_groups;
  json["steps"] = {{"least", config.least_step}, {"most", or_null(config.most_step)}};
  return json;
}

}  // namespace

std::string to_json(const FamilyConfig& config) {
  const ordered_json windows = layers_that_see(config, LayerSees::window);
  ordered_json attention{{"heads", config.heads},
                         {"kv_heads", config.kv_heads},
                         {"head_dim", config.head_dim},
                         {"scale", or_null(scale_of(config, 0))},
                         {"scale_by_layer", config.scale_by_layer},
                         {"score_cap", or_null(config.score_cap)},
                         {"query_key_norm", config.query_key_norm},
                         {"norm_of_all_heads", config.norm_of_all_heads},
                         {"output_gate", config.attention_gate},
                         {"bias", config.query_bias},
                         {"output_bias", config.output_bias},
                         {"causal", config.kind == FamilyKind::decoder},
                         {"window", windows.empty() ? ordered_json(nullptr) : or_null(config.window)},
                         {"layers_with_window", windows}};
  if (!attends(config)) attention = nullptr;
  ordered_json feed_forward = nullptr;
  if (config.has_feed_forward)
    feed_forward = {{"inner", config.feed_forward},
                    {"gated", config.gated},
                    {"activation", name_of(config.activation)},
                    {"bias", config.mlp_bias},
                    {"beside_attention", config.side_by_side},
                    {"own_norm", !config.side_by_side || config.own_mlp_norm}};
  const bool recurs = config.recurrence != FamilyRecurrence::none;
  const bool layer_norm = config.norm == nn::NormSpec::Kind::layer;
  ordered_json decoder = nullptr;
  if (config.kind == FamilyKind::translator)
    decoder = {{"layers", config.decoder_layers},
               {"heads", config.decoder_heads},
               {"feed_forward", config.decoder_feed_forward}};
  const ordered_json object{
      {"family", config.model_type},
      {"class", config.architecture},
      {"vocabulary", config.vocabulary},
      {"dim", config.dim},
      {"embedding_dim", config.embedding_dim.value_or(config.dim)},
      {"layers", config.layers},
      {"layers_share_weights", config.one_block},
      {"decoder", decoder},
      {"attention", attention},
      {"recurrence", recurs ? recurrence_json(config) : ordered_json(nullptr)},
      {"feed_forward", feed_forward},
      {"norm",
       {{"kind", layer_norm ? "layer" : "rms"},
        {"place", name_of(config.norm_place)},
        {"epsilon", config.norm_epsilon},
        {"weight", config.norm_weight},
        {"weight_offset", config.norm_offset},
        {"bias", layer_norm && config.norm_bias},
        {"of_embeddings", config.embedding_norm},
        {"before_first_attention", config.first_norm}}},
      {"positions", positions_of(config)},
      {"token_types", config.token_types},
      {"task_types", config.task_types},
      {"embedding_factor", embedding_factor_of(config)},
      {"branch_factor", config.branch_factor},
      {"head",
       {{"kind", name_of(config.head)},
        {"tied", config.tied},
        {"labels", config.labels},
        {"bias", config.logit_bias},
        {"logit_factor", config.logit_factor},
        {"logit_cap", or_null(config.logit_cap)},
        {"output_factor", config.scale_output ? 1.0 / std::sqrt(static_cast<double>(config.dim)) : 1.0}}},
      {"pad_id", or_null(config.pad_id)},
      {"eos_ids", config.eos_ids}};
  return object.dump(2);
}

}  // namespace fovea::models
