// Decoders that are Llama's block with other values. Facts and names: transformers 5.23, and its older forms.
#include <string>

#include "fovea/attention/expression.h"
#include "models/family/decoder_parts.h"

namespace fovea::models {
namespace {

using nn::NormPlace;
using nn::NormSpec;
using C = FamilyConfig;

// q, k and v, and the two matrices of a gate, stand one below the other in one tensor.
std::vector<TensorRule> fused_gate_tensors() {
  return {{"model.layers.*.gate", "model.layers.*.mlp.gate_up_proj"},
          {"model.layers.*.fc1", "model.layers.*.mlp.gate_up_proj"},
          {"model.layers.*.fc2", "model.layers.*.mlp.down_proj"}};
}

void read_original_positions(ConfigReader& reader, C& config) {
  const char* key = "original_max_position_embeddings";
  if (const nlohmann::json* value = reader.find(key))
    config.rope_original = reader.size(key, *value, 1, most_positions).value_or(1);
}

// transformers refuses the other scalings in this family.
void read_phi3_rope(ConfigReader& reader, C& config) {
  read_rope(reader, config);
  const RopeScaling& scaling = config.rope.scaling;
  if (!std::holds_alternative<NoScaling>(scaling) && !std::holds_alternative<LongRopeScaling>(scaling))
    reader.refuse("rope_parameters.rope_type", "default or longrope", to_string(config.rope));
}

Family phi3() {
  C defaults = llama_defaults("phi3", 32064, 3072, 8192, 32, 32);
  defaults.positions = 4096;
  defaults.norm_epsilon = 1e-5;
  defaults.rotary_share = 1.0;
  defaults.rope_original = 4096;
  Family family = llama_family(defaults, decoder_classes("Phi3"),
                               {{"sliding_window", OptionalSizeField{&C::window, most_positions}},
                                {"layer_types", read_layer_types},
                                {"original_max_position_embeddings", read_original_positions},
                                {"rope_parameters", read_phi3_rope},
                                // Of the published files, which no release reads.
                                {"attention_bias", FixedField{"false"}}});
  family.tensors = joined({{"model.embed_tokens", "model.embed_tokens"},
                           {"model.layers.*.self_attn.q_proj", "model.layers.*.self_attn.qkv_proj"},
                           {"model.layers.*.self_attn.k_proj", "model.layers.*.self_attn.qkv_proj"},
                           {"model.layers.*.self_attn.v_proj", "model.layers.*.self_attn.qkv_proj"},
                           {"model.layers.*.self_attn.out_proj", "model.layers.*.self_attn.o_proj"},
                           {"model.layers.*.self_attn_layer_norm", "model.layers.*.input_layernorm"},
                           {"model.layers.*.final_layer_norm", "model.layers.*.post_attention_layernorm"},
                           {"model.layer_norm", "model.norm"},
                           {"lm_head", "lm_head"}},
                          fused_gate_tensors());
  return family;
}

// Pairs of neighbours are turned, half of a head's elements.
Family glm() {
  C defaults = llama_defaults("glm", 151552, 4096, 13696, 40, 32);
  defaults.kv_heads = 2;
  defaults.head_dim = 128;
  defaults.positions = 131072;
  defaults.norm_epsilon = 1.5625e-7;
  defaults.query_bias = true;
  defaults.rope.layout = RopeLayout::interleaved;
  defaults.rotary_share = 0.5;
  Family family =
      llama_family(defaults, decoder_classes("Glm"),
                   {{"attention_bias", FlagField{&C::query_bias}}, {"rope_parameters", read_rope}});
  family.tensors = joined(joined(attention_tensors(), fused_gate_tensors()),
                          {{"model.layers.*.final_layer_norm", "model.layers.*.post_attention_layernorm"}});
  return family;
}

// Each part of a block has a norm at both ends.
Family glm4() {
  Family family = glm();
  family.defaults.model_type = "glm4";
  family.defaults.norm_place = NormPlace::sandwich;
  family.classes = decoder_classes("Glm4");
  family.tensors = joined(joined(attention_tensors(), fused_gate_tensors()),
                          {{"model.layers.*.self_attn_end_norm", "model.layers.*.post_self_attn_layernorm"},
                           {"model.layers.*.final_layer_norm", "model.layers.*.post_attention_layernorm"},
                           {"model.layers.*.final_end_norm", "model.layers.*.post_mlp_layernorm"}});
  return family;
}

Family helium() {
  C defaults = llama_defaults("helium", 48000, 2560, 7040, 24, 20);
  defaults.kv_heads = 20;
  defaults.head_dim = 128;
  defaults.positions = 4096;
  defaults.norm_epsilon = 1e-8;
  defaults.rope = {.base = 1e5, .layout = RopeLayout::interleaved};
  return llama_family(defaults, decoder_classes("Helium"),
                      {{"attention_bias", FlagField{&C::query_bias}},
                       {"mlp_bias", FlagField{&C::mlp_bias}},
                       {"rope_parameters", read_rope}});
}

Family ernie4_5() {
  C defaults = llama_defaults("ernie4_5", 103424, 1024, 3072, 18, 16);
  defaults.kv_heads = 2;
  defaults.head_dim = 128;
  defaults.positions = 131072;
  defaults.norm_epsilon = 1e-5;
  defaults.tied = true;
  defaults.rope = {.base = 5e5, .layout = RopeLayout::interleaved};
  return llama_family(defaults, {{"Ernie4_5ForCausalLM", FamilyHead::language}, {"Ernie4_5Model"}},
                      {{"use_bias", read_use_bias}, {"rope_parameters", read_rope}});
}

Family seed_oss() {
  C defaults = llama_defaults("seed_oss", 155136, 4096, 27648, 64, 80);
  defaults.kv_heads = 8;
  defaults.head_dim = 128;
  defaults.positions = 524288;
  defaults.query_bias = true;
  return llama_family(defaults, decoder_classes_with_answers("SeedOss"),
                      {{"attention_bias", FlagField{&C::query_bias}},
                       {"attention_out_bias", FlagField{&C::output_bias}},
                       {"mlp_bias", FlagField{&C::mlp_bias}},
                       {"rope_parameters", read_rope}});
}

Family stablelm() {
  C defaults = llama_defaults("stablelm", 50304, 2560, 6912, 32, 32);
  defaults.kv_heads = 32;
  defaults.positions = 4096;
  defaults.norm = NormSpec::Kind::layer;
  defaults.norm_epsilon = 1e-5;
  defaults.rotary_share = 0.25;
  defaults.own_mlp_norm = false;  // where parts are side by side
  return {.defaults = defaults,
          .classes = decoder_classes("StableLm"),
          .fields = joined(llama_sizes(), {{"hidden_act", ActivationField{&C::activation}},
                                           {"layer_norm_eps", NumberField{&C::norm_epsilon}},
                                           {"use_qkv_bias", FlagField{&C::query_bias}},
                                           {"qk_layernorm", FixedField{"false"}},
                                           {"use_parallel_residual", FlagField{&C::side_by_side}},
                                           {"hidden_dropout", NoEffect{}},
                                           {"rope_parameters", read_rope}}),
          .tensors = llama_tensors(),
          .heads = decoder_heads(),
          .prefix = "model."};
}

// Where some layers have a window, the others have no positions. Published files spell the pattern "LLLG"
// beside layer_types, which counts; without a window there is none.
void read_exaone_layers(ConfigReader& reader, C& config) {
  const nlohmann::json* value = reader.find("sliding_window_pattern");
  std::int64_t pattern = 4;
  if (value && config.window && !reader.find("layer_types"))
    pattern = reader.size("sliding_window_pattern", *value, 1, most_positions).value_or(pattern);
  layer_types_or(reader, config, [&](std::int64_t i) { return config.window && (i + 1) % pattern != 0; });
  if (!config.window) return;
  for (const LayerSees sees : config.sees) config.layers_with_rope.push_back(sees == LayerSees::window);
}

// The only norms are behind attention and behind the feed-forward part.
Family exaone4() {
  C defaults = llama_defaults("exaone4", 102400, 4096, 16384, 32, 32);
  defaults.kv_heads = 32;
  defaults.positions = 2048;
  defaults.window = 4096;
  defaults.norm_epsilon = 1e-5;
  defaults.norm_place = NormPlace::end;
  defaults.query_key_norm = true;
  Family family = llama_family(defaults, decoder_classes_with_answers("Exaone4"),
                               {{"sliding_window", OptionalSizeField{&C::window, most_positions}},
                                {"layer_types", read_exaone_layers},
                                {"rope_parameters", read_rope}});
  family.tensors =
      joined(joined(attention_tensors("model.layers.*.post_attention_layernorm"), gate_tensors()),
             {{"model.layers.*.final_layer_norm", "model.layers.*.post_feedforward_layernorm"}});
  return family;
}

// Layer norms have neither weights nor biases.
Family olmo() {
  C defaults = llama_defaults("olmo", 50304, 4096, 11008, 32, 32);
  defaults.positions = 2048;
  defaults.norm = NormSpec::Kind::layer;
  defaults.norm_weight = defaults.norm_bias = false;
  defaults.norm_epsilon = 1e-5;
  defaults.pad_id = 1;
  defaults.eos_ids = {50279};
  return {.defaults = defaults,
          .classes = {{"OlmoForCausalLM", FamilyHead::language},
                      {"OlmoModel"},
                      {"OlmoForSequenceClassification", FamilyHead::sequence_labels}},
          .fields = joined(llama_sizes(), {{"hidden_act", ActivationField{&C::activation}},
                                           {"attention_bias", read_attention_bias},
                                           {"clip_qkv", FixedField{"null"}},
                                           {"rope_parameters", read_rope}}),
          .tensors = joined(attention_tensors(), gate_tensors()),
          .heads = decoder_heads(),
          .prefix = "model."};
}

// Norms behind both parts, and of queries and keys over all heads at once.
Family olmo2() {
  C defaults = llama_defaults("olmo2", 50304, 4096, 11008, 32, 32);
  defaults.positions = 2048;
  defaults.norm_epsilon = 1e-5;
  defaults.norm_place = NormPlace::end;
  defaults.query_key_norm = defaults.norm_of_all_heads = true;
  Family family = llama_family(defaults,
                               {{"Olmo2ForCausalLM", FamilyHead::language},
                                {"Olmo2Model"},
                                {"Olmo2ForSequenceClassification", FamilyHead::sequence_labels}},
                               {{"attention_bias", read_attention_bias}, {"rope_parameters", read_rope}});
  family.tensors =
      joined(joined(attention_tensors("model.layers.*.post_attention_layernorm"), gate_tensors()),
             {{"model.layers.*.final_layer_norm", "model.layers.*.post_feedforward_layernorm"}});
  return family;
}

// Scalings of rotary positions are those of layers without a window.
Family olmo3() {
  Family family = olmo2();
  family.defaults.model_type = "olmo3";
  family.defaults.window = 4096;
  family.defaults.rope.base = 5e5;
  family.defaults.window_rope = family.defaults.rope;
  family.classes = {{"Olmo3ForCausalLM", FamilyHead::language},
                    {"Olmo3Model"},
                    {"Olmo3ForSequenceClassification", FamilyHead::sequence_labels}};
  family.fields = joined(llama_fields(), {{"attention_bias", read_attention_bias},
                                          {"sliding_window", OptionalSizeField{&C::window, most_positions}},
                                          {"layer_types",
                                           [](ConfigReader& reader, C& config) {
                                             layer_types_or(reader, config,
                                                            [](std::int64_t i) { return (i + 1) % 4 != 0; });
                                           }},
                                          {"rope_parameters", read_rope_by_layer}});
  return family;
}

void read_logit_divisor(ConfigReader& reader, C& config) {
  if (const nlohmann::json* value = reader.find("logits_scaling")) {
    if (const auto read = reader.positive("logits_scaling", *value)) config.logit_factor = 1.0 / *read;
  }
}

// Embeddings, scores, what parts add, and logits have factors.
Family granite() {
  C defaults = llama_defaults("granite", 32000, 4096, 11008, 32, 32);
  defaults.positions = 2048;
  defaults.score_factor = 1.0;
  return llama_family(defaults, {{"GraniteForCausalLM", FamilyHead::language}, {"GraniteModel"}},
                      {{"attention_bias", read_attention_bias},
                       {"mlp_bias", FlagField{&C::mlp_bias}},
                       {"embedding_multiplier", NumberField{&C::embedding_factor}},
                       {"residual_multiplier", NumberField{&C::branch_factor}},
                       {"attention_multiplier", OptionalNumberField{&C::score_factor}},
                       {"logits_scaling", read_logit_divisor},
                       {"rope_parameters", read_rope}});
}

// Without gates.
std::vector<TensorRule> plain_tensors() {
  return joined(attention_tensors(),
                {{"model.layers.*.final_layer_norm", "model.layers.*.post_attention_layernorm"},
                 {"model.layers.*.fc1", "model.layers.*.mlp.up_proj"},
                 {"model.layers.*.fc2", "model.layers.*.mlp.down_proj"}});
}

Family arcee() {
  C defaults = llama_defaults("arcee", 32000, 2560, 18432, 32, 32);
  defaults.positions = 4096;
  defaults.norm_epsilon = 1e-5;
  defaults.gated = false;
  defaults.activation = autograd::Activation::relu_squared;
  Family family = llama_family(defaults, decoder_classes_with_answers("Arcee"),
                               {{"attention_bias", read_attention_bias},
                                {"mlp_bias", FlagField{&C::mlp_bias}},
                                {"rope_parameters", read_rope}});
  family.tensors = plain_tensors();
  return family;
}

// Layer norms, and no gates.
Family plain_family(C defaults, std::vector<ClassRow> classes, const std::vector<Field>& fields) {
  defaults.norm = NormSpec::Kind::layer;
  defaults.norm_epsilon = 1e-5;
  defaults.gated = false;
  defaults.activation = autograd::Activation::relu_squared;
  return {.defaults = defaults,
          .classes = std::move(classes),
          .fields = joined(joined(llama_sizes(), {{"head_dim", SizeField{&C::head_dim, most_dim}},
                                                  {"hidden_act", ActivationField{&C::activation}},
                                                  {"attention_bias", read_attention_bias},
                                                  {"mlp_bias", FlagField{&C::mlp_bias}},
                                                  {"rope_parameters", read_rope}}),
                           fields),
          .tensors = plain_tensors(),
          .heads = decoder_heads(),
          .prefix = "model."};
}

// Norms by weights + 1.
Family nemotron() {
  C defaults = llama_defaults("nemotron", 256000, 6144, 24576, 32, 48);
  defaults.positions = 4096;
  defaults.norm_offset = 1.0f;
  defaults.rotary_share = 0.5;
  return plain_family(defaults, decoder_classes_with_answers("Nemotron"),
                      {{"norm_eps", NumberField{&C::norm_epsilon}},
                       // Of early files; no release reads them, and all take 0.5.
                       {"rope_percent", FixedField{"0.5"}},
                       {"rope_percentage", FixedField{"0.5"}}});
}

// Without rope_parameters there is a scaling, and then rope_theta alone is not read.
void read_cwm_rope(ConfigReader& reader, C& config) {
  const nlohmann::json* theta = reader.find("rope_theta");
  if (theta && *theta != config.rope.base && !reader.find("rope_parameters") && !reader.find("rope_scaling"))
    reader.refuse("rope_theta", "rope_parameters beside it, without which transformers takes 1000000",
                  *theta);
  read_rope(reader, config);
}

// Each fourth layer has no window, from the first on.
Family cwm() {
  C defaults = llama_defaults("cwm", 128256, 6144, 21504, 64, 48);
  defaults.kv_heads = 8;
  defaults.head_dim = 128;
  defaults.positions = 131072;
  defaults.norm_epsilon = 1e-5;
  defaults.window = 8192;
  defaults.rope = {.base = 1e6, .scaling = Llama3Scaling{.factor = 16.0, .original_max_positions = 8192}};
  defaults.eos_ids = {128001, 128008, 128009};
  const ReadFunction layers = [](ConfigReader& reader, C& config) {
    layer_types_or(reader, config, [](std::int64_t i) { return i % 4 != 0; });
  };
  return llama_family(defaults, {{"CwmForCausalLM", FamilyHead::language}, {"CwmModel"}},
                      {{"mlp_bias", FlagField{&C::mlp_bias}},
                       {"sliding_window", OptionalSizeField{&C::window, most_positions}},
                       {"layer_types", layers},
                       {"rope_parameters", read_cwm_rope}});
}

Family jais2() {
  C defaults = llama_defaults("jais2", 150272, 3328, 26624, 32, 26);
  defaults.positions = 8192;
  defaults.query_bias = defaults.output_bias = defaults.mlp_bias = true;
  defaults.eos_ids = {150024};
  return plain_family(defaults, {{"Jais2ForCausalLM", FamilyHead::language}, {"Jais2Model"}},
                      {{"layer_norm_eps", NumberField{&C::norm_epsilon}}});
}

}  // namespace

std::vector<Family> llama_relatives() {
  return {phi3(), glm(),   glm4(),  helium(),  ernie4_5(), seed_oss(), stablelm(), exaone4(),
          olmo(), olmo2(), olmo3(), granite(), arcee(),    nemotron(), cwm(),      jais2()};
}

}  // namespace fovea::models
