// The families whose layers have a recurrence, alone or beside attention. Facts and names: transformers 5.23,
// and its older forms.
#include <cmath>
#include <limits>
#include <string>

#include "models/family/decoder_parts.h"

namespace fovea::models {
namespace {

using autograd::Activation;
using nlohmann::json;
using nn::NormSpec;
using Layout = TensorRule::Layout;
using C = FamilyConfig;

constexpr std::int64_t most_inner = std::int64_t{1} << 24, most_taps = 8;

// -- Mamba and its descendants: blocks of nothing but a norm and a recurrence

C mamba_defaults(const char* type, FamilyRecurrence recurrence) {
  C config;
  config.model_type = type;
  config.norm_epsilon = 1e-5;
  config.rotary = false;
  config.has_feed_forward = false;
  config.positions = most_positions;
  config.recurrence = recurrence;
  return config;
}

// Every layer has the recurrence.
void read_state_layers(ConfigReader& reader, C& config) {
  if (const auto layers = reader.find("num_hidden_layers")) {
    if (const auto read = reader.size("num_hidden_layers", *layers, 1, most_layers)) config.layers = *read;
  }
  config.sees.assign(static_cast<std::size_t>(config.layers), LayerSees::state);
}

// The width of the recurrence: `expand` times that of the model, rounded down.
void read_expand(ConfigReader& reader, C& config) {
  double expand = 2.0;
  const json* value = reader.find("expand");
  if (value) expand = reader.positive("expand", *value).value_or(expand);
  const double inner = std::floor(expand * static_cast<double>(config.dim));
  if (inner >= 1.0 && inner <= static_cast<double>(most_inner))
    config.recurrent_inner = static_cast<std::int64_t>(inner);
  else
    reader.refuse("expand", "a factor that makes a width from 1 to " + std::to_string(most_inner),
                  json(expand));
}

// What transformers wrote beside `expand` counts, as it does there.
void read_mamba_inner(ConfigReader& reader, C& config) {
  read_expand(reader, config);
  if (const json* inner = reader.find("intermediate_size")) {
    if (const auto read = reader.size("intermediate_size", *inner, 1, most_inner))
      config.recurrent_inner = *read;
  }
}

void read_step_rank(ConfigReader& reader, C& config) {
  config.step_rank = (config.dim + 15) / 16;
  const json* rank = reader.find("time_step_rank");
  if (!rank || *rank == "auto") return;
  if (rank->is_string()) return reader.refuse("time_step_rank", "a whole number or \"auto\"", *rank);
  if (const auto read = reader.size("time_step_rank", *rank, 1, most_dim)) config.step_rank = *read;
}

// An initial value by its name. But transformers 5.23 applies it to weights that it has just read, so a
// folder that says true is another model after each loading.
void read_rescaling(ConfigReader& reader, C&) {
  if (const json* value = reader.find("rescale_prenorm_residual"); value && *value != false)
    reader.refuse(
        "rescale_prenorm_residual",
        "false: transformers divides out_proj by the root of the number of layers whenever it loads "
        "such a folder, so its numbers are not those that were saved",
        *value);
}

std::vector<Field> mamba_fields() {
  return {{"vocab_size", SizeField{&C::vocabulary, most_vocabulary}},
          {"hidden_size", SizeField{&C::dim, most_dim}},
          {"num_hidden_layers", read_state_layers},
          {"state_size", SizeField{&C::state_dim, most_dim}},
          {"conv_kernel", SizeField{&C::conv_width, most_taps, 2}},
          {"layer_norm_epsilon", NumberField{&C::norm_epsilon}},
          {"use_bias", FlagField{&C::recurrent_bias}},
          {"use_conv_bias", FlagField{&C::conv_bias}},
          // Of the convolution. Gates are SiLU's whatever stands here.
          {"hidden_act", ActivationField{&C::conv_activation}},
          {"tie_word_embeddings", FlagField{&C::tied}},
          // Sums of rows are f32 here, whatever the type of the weights.
          {"residual_in_fp32", NoEffect{}},
          // Initial values.
          {"time_step_scale", NoEffect{}},
          {"time_step_min", NoEffect{}},
          {"time_step_max", NoEffect{}},
          {"time_step_init_scheme", NoEffect{}},
          {"time_step_floor", NoEffect{}},
          {"rescale_prenorm_residual", read_rescaling},
          // The same recurrence, in other orders of operations.
          {"use_mambapy", NoEffect{}},
          {"use_falcon_mambapy", NoEffect{}},
          {"use_associative_scan", NoEffect{}},
          // Of the code that published weights were trained by. Its names stand beside those above.
          {"d_model", NoEffect{}},
          {"d_inner", NoEffect{}},
          {"n_layer", NoEffect{}},
          {"fused_add_norm", NoEffect{}},
          {"pad_vocab_size_multiple", NoEffect{}},
          {"rms_norm", FixedField{"true"}},
          {"ssm_cfg", FixedField{"{}"}}};
}

// What every Mamba has, behind rules of its own.
std::vector<TensorRule> mamba_tensors(const std::vector<TensorRule>& own) {
  return joined(own, {{"model.embed_tokens", "backbone.embeddings"},
                      {"model.layers.*.self_attn_layer_norm", "backbone.layers.*.norm"},
                      {"model.layers.*.mixer.conv1d", "backbone.layers.*.mixer.conv1d", Layout::channels},
                      {"model.layers.*.mixer.A_log", "backbone.layers.*.mixer.A_log"},
                      {"model.layers.*.mixer.D", "backbone.layers.*.mixer.D"},
                      {"model.layers.*.mixer.out_proj", "backbone.layers.*.mixer.out_proj"},
                      {"model.layer_norm", "backbone.norm_f"},
                      {"lm_head", "lm_head"}});
}

Family mamba() {
  C defaults = mamba_defaults("mamba", FamilyRecurrence::mamba);
  defaults.vocabulary = 50280;
  defaults.dim = 768;
  defaults.layers = 32;
  defaults.state_dim = 16;
  return {
      .defaults = defaults,
      .classes = {{"MambaForCausalLM", FamilyHead::language}, {"MambaModel"}},
      .fields = joined(mamba_fields(), {{"expand", read_mamba_inner}, {"time_step_rank", read_step_rank}}),
      .tensors = mamba_tensors({{"model.layers.*.mixer.in_proj", "backbone.layers.*.mixer.in_proj"},
                                {"model.layers.*.mixer.x_proj", "backbone.layers.*.mixer.x_proj"},
                                {"model.layers.*.mixer.dt_proj", "backbone.layers.*.mixer.dt_proj"}}),
      .prefix = "backbone."};
}

Family falcon_mamba() {
  Family family = mamba();
  family.defaults.model_type = "falcon_mamba";
  family.defaults.selection_epsilon = 1e-6;
  family.classes = {{"FalconMambaForCausalLM", FamilyHead::language}, {"FalconMambaModel"}};
  const ReadFunction epsilon = [](ConfigReader& reader, C& config) {
    if (const json* value = reader.find("mixer_rms_eps"))
      config.selection_epsilon = reader.positive("mixer_rms_eps", *value).value_or(1e-6);
  };
  family.fields.push_back({"mixer_rms_eps", epsilon});
  return family;
}

// The heads of Mamba-2, which together are as wide as `expand` says.
void read_mamba2_heads(ConfigReader& reader, C& config) {
  read_expand(reader, config);
  const std::int64_t heads = config.recurrent_heads, all = heads * config.recurrent_value_dim;
  if (all != config.recurrent_inner)
    reader.refuse("num_heads",
                  "heads of head_dim that are expand times hidden_size = " +
                      std::to_string(config.recurrent_inner) + " wide together",
                  std::to_string(heads) + " of " + std::to_string(config.recurrent_value_dim));
  if (const json* inner = reader.find("intermediate_size"); inner && *inner != config.recurrent_inner)
    reader.refuse("intermediate_size", std::to_string(config.recurrent_inner) + ", if it is there at all",
                  *inner);
  if (heads % config.state_groups != 0)
    reader.refuse("n_groups", "a divisor of the " + std::to_string(heads) + " heads",
                  std::to_string(config.state_groups));
}

// One end of time_step_limit. An infinite one is an object in transformers' files since its version 5.
std::optional<double> limit_of(const json& value) {
  if (value == json{{"__float__", "Infinity"}}) return std::numeric_limits<double>::infinity();
  if (!value.is_number() || value.get<double>() < 0.0) return std::nullopt;
  return value.get<double>();
}

void read_step_limit(ConfigReader& reader, C& config) {
  const json* limit = reader.find("time_step_limit");
  if (!limit) return;
  const bool two = limit->is_array() && limit->size() == 2;
  const auto least = two ? limit_of((*limit)[0]) : std::nullopt,
             most = two ? limit_of((*limit)[1]) : std::nullopt;
  constexpr double largest = 1e30;  // f32 holds it
  if (!least || !most || *least > *most || *least > largest || (*most > largest && std::isfinite(*most)))
    return reader.refuse("time_step_limit", "two numbers of at least 0 in ascending order", *limit);
  config.least_step = *least;
  config.most_step.reset();
  if (std::isfinite(*most)) config.most_step = *most;
}

Family mamba2() {
  C defaults = mamba_defaults("mamba2", FamilyRecurrence::mamba2);
  defaults.vocabulary = 32768;
  defaults.dim = 4096;
  defaults.layers = 64;
  defaults.state_dim = 128;
  defaults.state_groups = 8;
  defaults.recurrent_heads = 128;
  defaults.recurrent_value_dim = 64;
  defaults.tied = false;
  return {.defaults = defaults,
          .classes = {{"Mamba2ForCausalLM", FamilyHead::language}, {"Mamba2Model"}},
          .fields = joined(mamba_fields(), {{"num_heads", SizeField{&C::recurrent_heads, most_dim}},
                                            {"head_dim", SizeField{&C::recurrent_value_dim, most_dim}},
                                            {"n_groups", SizeField{&C::state_groups, most_dim}},
                                            {"expand", read_mamba2_heads},
                                            {"time_step_limit", read_step_limit},
                                            // transformers applies gates before the norm, whatever this says.
                                            {"norm_before_gate", NoEffect{}},
                                            // A size of Mamba's, which transformers reads and does not use.
                                            {"time_step_rank", NoEffect{}},
                                            // Of the same sums.
                                            {"chunk_size", NoEffect{}}}),
          // Where in_proj has a bias, it is that of the steps too, and dt_bias stands beside it.
          .tensors = mamba_tensors({{"model.layers.*.mixer.z_proj", "backbone.layers.*.mixer.in_proj"},
                                    {"model.layers.*.mixer.xbc_proj", "backbone.layers.*.mixer.in_proj"},
                                    {"model.layers.*.mixer.dt_proj", "backbone.layers.*.mixer.in_proj",
                                     Layout::same, &C::recurrent_bias},
                                    {"model.layers.*.mixer.dt_proj.bias", "backbone.layers.*.mixer.dt_bias"},
                                    {"model.layers.*.mixer.dt_proj", "backbone.layers.*.mixer.in_proj"},
                                    {"model.layers.*.mixer.dt_bias", "backbone.layers.*.mixer.dt_bias"},
                                    {"model.layers.*.mixer.norm", "backbone.layers.*.mixer.norm"}}),
          .prefix = "backbone."};
}

// -- a gated delta rule in most layers, attention with gates in the others

// layer_types, or the older distance between layers with attention.
void read_delta_layers(ConfigReader& reader, C& config) {
  std::int64_t interval = 4;
  if (const json* value = reader.find("full_attention_interval")) {
    if (const auto read = reader.size("full_attention_interval", *value, 1, most_positions)) interval = *read;
  }
  layer_types_or(
      reader, config, [&](std::int64_t i) { return (i + 1) % interval != 0; }, LayerSees::state);
}

void read_delta_heads(ConfigReader& reader, C& config) {
  for (const auto& [key, member] : {std::pair{"linear_num_key_heads", &C::recurrent_key_heads},
                                    {"linear_num_value_heads", &C::recurrent_heads}}) {
    if (const json* value = reader.find(key)) {
      if (const auto read = reader.size(key, *value, 1, most_dim)) config.*member = *read;
    }
  }
  if (config.recurrent_heads % config.recurrent_key_heads != 0)
    reader.refuse("linear_num_key_heads",
                  "a divisor of the " + std::to_string(config.recurrent_heads) + " linear_num_value_heads",
                  std::to_string(config.recurrent_key_heads));
}

// Of the feed-forward parts and of the convolutions.
void read_both_activations(ConfigReader& reader, C& config) {
  const json* value = reader.find("hidden_act");
  if (!value) return;
  if (const auto named = value->is_string() ? activation_of(value->get<std::string>()) : std::nullopt)
    config.activation = config.conv_activation = *named;
  else
    reader.refuse("hidden_act", "an activation that is known here", *value);
}

Family qwen3_5() {
  C defaults;
  defaults.model_type = "qwen3_5_text";
  defaults.vocabulary = 248320;
  defaults.dim = 4096;
  defaults.feed_forward = 12288;
  defaults.layers = 32;
  defaults.heads = 16;
  defaults.kv_heads = 4;
  defaults.head_dim = 256;
  defaults.positions = 32768;
  defaults.norm_offset = 1.0f;
  defaults.query_key_norm = true;
  defaults.attention_gate = true;
  defaults.rotary_share = 0.25;
  defaults.tied = false;
  defaults.recurrence = FamilyRecurrence::gated_delta;
  defaults.recurrent_heads = 32;
  defaults.recurrent_key_heads = 16;
  defaults.recurrent_key_dim = defaults.recurrent_value_dim = 128;
  defaults.conv_bias = false;
  return {.defaults = defaults,
          .classes = {{"Qwen3_5ForCausalLM", FamilyHead::language},
                      {"Qwen3_5TextModel"},
                      {"Qwen3_5TextForSequenceClassification", FamilyHead::sequence_labels}},
          .fields =
              joined(llama_sizes(), {{"head_dim", SizeField{&C::head_dim, most_dim}},
                                     {"rms_norm_eps", NumberField{&C::norm_epsilon}},
                                     {"hidden_act", read_both_activations},
                                     {"attention_bias", read_attention_bias},
                                     {"linear_key_head_dim", SizeField{&C::recurrent_key_dim, most_dim}},
                                     {"linear_value_head_dim", SizeField{&C::recurrent_value_dim, most_dim}},
                                     {"linear_num_value_heads", read_delta_heads},
                                     {"linear_conv_kernel_dim", SizeField{&C::conv_width, most_taps, 2}},
                                     {"layer_types", read_delta_layers},
                                     {"rope_parameters", read_rope},
                                     // Of published configs. transformers has these values alone.
                                     {"attn_output_gate", FixedField{"true"}},
                                     {"output_gate_type", FixedField{"\"swish\""}},
                                     // States are f32 here.
                                     {"mamba_ssm_dtype", NoEffect{}},
                                     // Layers that predict several tokens are not computed.
                                     {"mtp_num_hidden_layers", NoEffect{}},
                                     {"mtp_use_dedicated_embeddings", NoEffect{}}}),
          .tensors = joined(
              gate_tensors(),
              {{"model.embed_tokens", "model.embed_tokens"},
               {"model.layers.*.self_attn.q_proj", "model.layers.*.self_attn.q_proj", Layout::by_head},
               {"model.layers.*.self_attn.gate_proj", "model.layers.*.self_attn.q_proj", Layout::by_head},
               {"model.layers.*.self_attn.k_proj", "model.layers.*.self_attn.k_proj"},
               {"model.layers.*.self_attn.v_proj", "model.layers.*.self_attn.v_proj"},
               {"model.layers.*.self_attn.out_proj", "model.layers.*.self_attn.o_proj"},
               {"model.layers.*.self_attn.q_norm", "model.layers.*.self_attn.q_norm"},
               {"model.layers.*.self_attn.k_norm", "model.layers.*.self_attn.k_norm"},
               {"model.layers.*.mixer.qkv_proj", "model.layers.*.linear_attn.in_proj_qkv"},
               {"model.layers.*.mixer.gate_proj", "model.layers.*.linear_attn.in_proj_z"},
               {"model.layers.*.mixer.beta_proj", "model.layers.*.linear_attn.in_proj_b"},
               {"model.layers.*.mixer.decay_proj.bias", "model.layers.*.linear_attn.dt_bias"},
               {"model.layers.*.mixer.decay_proj", "model.layers.*.linear_attn.in_proj_a"},
               {"model.layers.*.mixer.conv1d", "model.layers.*.linear_attn.conv1d", Layout::channels},
               {"model.layers.*.mixer.A_log", "model.layers.*.linear_attn.A_log"},
               {"model.layers.*.mixer.norm", "model.layers.*.linear_attn.norm"},
               {"model.layers.*.mixer.out_proj", "model.layers.*.linear_attn.out_proj"},
               {"model.layers.*.self_attn_layer_norm", "model.layers.*.input_layernorm"},
               {"model.layers.*.final_layer_norm", "model.layers.*.post_attention_layernorm"},
               {"model.layer_norm", "model.norm"},
               {"lm_head", "lm_head"}}),
          .heads = {{FamilyHead::sequence_labels,
                     {.pooling = SentencePooling::Kind::last, .bias = false},
                     {{"head.output", "score"}}}},
          .prefix = "model."};
}

}  // namespace

std::vector<Family> recurrent_families() {
  return {mamba(), falcon_mamba(), mamba2(), qwen3_5()};
}

}  // namespace fovea::models
