// The families that read from left to right. Facts and names: transformers 5.23, and its older forms.
#include <array>
#include <string>

#include "models/family/decoder_parts.h"

namespace fovea::models {
namespace {

using autograd::Activation;
using nn::NormPlace;
using nn::NormSpec;
using Layout = TensorRule::Layout;
using C = FamilyConfig;

Family llama() {
  C defaults = llama_defaults("llama", 32000, 4096, 11008, 32, 32);
  defaults.positions = 2048;
  return llama_family(defaults, decoder_classes_with_answers("Llama"),
                      {{"attention_bias", read_attention_bias},
                       {"mlp_bias", FlagField{&C::mlp_bias}},
                       {"rope_parameters", read_rope},
                       // Of SmolLM.
                       {"is_llama_config", NoEffect{}},
                       {"rope_interleaved", FixedField{"false"}}});
}

Family mistral() {
  C defaults = llama_defaults("mistral", 32000, 4096, 14336, 32, 32);
  defaults.kv_heads = 8;
  defaults.positions = 131072;
  defaults.window = 4096;
  return llama_family(defaults, decoder_classes_with_answers("Mistral", ""),
                      {{"sliding_window", OptionalSizeField{&C::window, most_positions}},
                       {"layer_types", read_layer_types},
                       {"rope_parameters", read_rope}});
}

Family ministral() {
  Family family = mistral();
  family.defaults.model_type = "ministral";
  family.classes = decoder_classes_with_answers("Ministral");
  return family;
}

// A window, from max_window_layers on, if use_sliding_window.
void read_qwen_window(ConfigReader& reader, C& config) {
  const nlohmann::json* use = reader.find("use_sliding_window");
  if (use && !use->is_boolean()) reader.refuse("use_sliding_window", "true or false", *use);
  if (!use || *use != true) config.window.reset();
  std::int64_t first = 28;
  if (const nlohmann::json* layers = reader.find("max_window_layers")) {
    if (const auto read = reader.size("max_window_layers", *layers, 0, most_positions)) first = *read;
  }
  layer_types_or(reader, config, [&](std::int64_t i) { return config.window && i >= first; });
}

Family qwen2() {
  C defaults = llama_defaults("qwen2", 151936, 4096, 22016, 32, 32);
  defaults.kv_heads = 32;
  defaults.positions = 32768;
  defaults.window = 4096;
  defaults.query_bias = true;
  return llama_family(defaults, decoder_classes_with_answers("Qwen2"),
                      {{"sliding_window", OptionalSizeField{&C::window, most_positions}},
                       {"use_sliding_window", read_qwen_window},
                       {"rope_parameters", read_rope}});
}

Family qwen3() {
  Family family = qwen2();
  family.defaults.model_type = "qwen3";
  family.defaults.query_bias = false;
  family.defaults.head_dim = 128;
  family.defaults.query_key_norm = true;
  family.classes = decoder_classes_with_answers("Qwen3");
  family.fields.push_back({"attention_bias", read_attention_bias});
  return family;
}

// Layers without rotary positions, which alone may have a window.
void read_smollm3_layers(ConfigReader& reader, C& config) {
  std::int64_t interval = 4;
  if (const nlohmann::json* value = reader.find("no_rope_layer_interval")) {
    if (const auto read = reader.size("no_rope_layer_interval", *value, 1, most_positions)) interval = *read;
  }
  for (std::int64_t i = 0; i < config.layers; ++i) config.layers_with_rope.push_back((i + 1) % interval != 0);
  if (const nlohmann::json* list = reader.find("no_rope_layers")) {
    const bool good = list->is_array() && static_cast<std::int64_t>(list->size()) == config.layers;
    for (std::size_t i = 0; good && i < list->size(); ++i) config.layers_with_rope[i] = (*list)[i] == 1;
    if (!good)
      reader.refuse("no_rope_layers", "a list of " + std::to_string(config.layers) + " numbers, 0 or 1",
                    *list);
  }
  const nlohmann::json* use = reader.find("use_sliding_window");
  if (use && !use->is_boolean()) reader.refuse("use_sliding_window", "true or false", *use);
  const bool windows = use && *use == true;
  layer_types_or(reader, config, [&](std::int64_t i) {
    return windows && config.window && !config.layers_with_rope[static_cast<std::size_t>(i)];
  });
}

Family smollm3() {
  C defaults = llama_defaults("smollm3", 128256, 2048, 11008, 36, 16);
  defaults.kv_heads = 4;
  defaults.positions = 32768;
  defaults.tied = true;
  defaults.rope.base = 2e6;
  return llama_family(defaults, decoder_classes_with_answers("SmolLM3"),
                      {{"attention_bias", read_attention_bias},
                       {"mlp_bias", FlagField{&C::mlp_bias}},
                       {"sliding_window", OptionalSizeField{&C::window, most_positions}},
                       {"max_window_layers", NoEffect{}},
                       {"no_rope_layers", read_smollm3_layers},
                       {"rope_parameters", read_rope}});
}

Family starcoder2() {
  C defaults = llama_defaults("starcoder2", 49152, 3072, 12288, 30, 24);
  defaults.kv_heads = 2;
  defaults.positions = 4096;
  defaults.norm = NormSpec::Kind::layer;
  defaults.norm_epsilon = 1e-5;
  defaults.gated = false;
  defaults.activation = Activation::gelu_tanh;
  defaults.query_bias = defaults.output_bias = defaults.mlp_bias = true;
  defaults.tied = true;
  return {.defaults = defaults,
          .classes = decoder_classes("Starcoder2"),
          .fields = joined(llama_sizes(), {{"norm_epsilon", NumberField{&C::norm_epsilon}},
                                           {"hidden_act", ActivationField{&C::activation}},
                                           {"use_bias", read_use_bias},
                                           {"sliding_window", OptionalSizeField{&C::window, most_positions}},
                                           {"layer_types", read_layer_types},
                                           {"rope_parameters", read_rope},
                                           // Of the first release, before it was a class of transformers.
                                           {"activation_function", NoEffect{}},
                                           {"attention_softmax_in_fp32", NoEffect{}},
                                           {"scale_attention_softmax_in_fp32", NoEffect{}},
                                           {"scale_attn_weights", FixedField{"true"}},
                                           {"mlp_type", FixedField{"\"default\""}},
                                           {"norm_type", FixedField{"\"layer_norm\""}}}),
          .tensors = joined(attention_tensors(),
                            {{"model.layers.*.final_layer_norm", "model.layers.*.post_attention_layernorm"},
                             {"model.layers.*.fc1", "model.layers.*.mlp.c_fc"},
                             {"model.layers.*.fc2", "model.layers.*.mlp.c_proj"}}),
          .heads = decoder_heads(),
          .prefix = "model."};
}

// -- Gemma: rows are multiplied by 1 + weight, embeddings by sqrt(dim)

// The first releases write "gelu" and mean the approximation with tanh.
void read_gemma_activation(ConfigReader& reader, C&) {
  const nlohmann::json* value = reader.find({"hidden_activation", "hidden_act"});
  if (!value || *value == "gelu" || *value == "gelu_pytorch_tanh" || *value == "gelu_new") return;
  reader.refuse(reader.object().contains("hidden_activation") ? "hidden_activation" : "hidden_act",
                "\"gelu_pytorch_tanh\" or \"gelu\", which means the same here", *value);
}

C gemma_defaults(const char* type, std::int64_t dim, std::int64_t feed_forward, std::int64_t layers,
                 std::int64_t heads, std::int64_t kv_heads) {
  C config = llama_defaults(type, 256000, dim, feed_forward, layers, heads);
  config.kv_heads = kv_heads;
  config.head_dim = 256;
  config.positions = 8192;
  config.norm_offset = 1.0f;
  config.activation = Activation::gelu_tanh;
  config.scale_embedding = true;
  config.tied = true;
  return config;
}

Family gemma() {
  return {.defaults = gemma_defaults("gemma", 3072, 24576, 28, 16, 16),
          .classes = decoder_classes("Gemma"),
          .fields = joined(llama_sizes(), {{"head_dim", SizeField{&C::head_dim, most_dim}},
                                           {"rms_norm_eps", NumberField{&C::norm_epsilon}},
                                           {"hidden_act", read_gemma_activation},
                                           {"attention_bias", read_attention_bias},
                                           {"use_bidirectional_attention", FixedField{"false"}},
                                           {"rope_parameters", read_rope}}),
          .tensors = llama_tensors(),
          .heads = decoder_heads(),
          .prefix = "model."};
}

std::vector<Field> gemma2_fields() {
  return joined(llama_sizes(), {{"head_dim", SizeField{&C::head_dim, most_dim}},
                                {"rms_norm_eps", NumberField{&C::norm_epsilon}},
                                {"hidden_activation", ActivationField{&C::activation}},
                                {"attention_bias", read_attention_bias},
                                {"query_pre_attn_scalar", OptionalNumberField{&C::query_scalar}},
                                {"sliding_window", OptionalSizeField{&C::window, most_positions}},
                                {"attn_logit_softcapping", OptionalNumberField{&C::score_cap}},
                                {"final_logit_softcapping", OptionalNumberField{&C::logit_cap}},
                                {"use_bidirectional_attention", FixedField{"false"}}});
}

Family gemma2() {
  C defaults = gemma_defaults("gemma2", 2304, 9216, 26, 8, 4);
  defaults.norm_place = NormPlace::sandwich;
  defaults.query_scalar = 256;
  defaults.window = 4096;
  defaults.score_cap = 50.0;
  defaults.logit_cap = 30.0;
  const ReadFunction layers = [](ConfigReader& reader, C& config) {
    layer_types_or(reader, config, [](std::int64_t i) { return i % 2 == 0; });
  };
  return {.defaults = defaults,
          .classes = decoder_classes("Gemma2"),
          .fields = joined(gemma2_fields(), {{"hidden_act", NoEffect{}},  // hidden_activation counts
                                             {"layer_types", layers},
                                             {"rope_parameters", read_rope}}),
          .tensors = joined(joined(attention_tensors(), gate_tensors()),
                            {{"model.layers.*.self_attn_end_norm", "model.layers.*.post_attention_layernorm"},
                             {"model.layers.*.final_layer_norm", "model.layers.*.pre_feedforward_layernorm"},
                             {"model.layers.*.final_end_norm", "model.layers.*.post_feedforward_layernorm"}}),
          .heads = decoder_heads(),
          .prefix = "model."};
}

// Gemma 2 without the norms behind the parts.
Family vaultgemma() {
  Family family = gemma2();
  family.defaults.model_type = "vaultgemma";
  family.defaults.norm_place = NormPlace::pre;
  family.classes = {{"VaultGemmaForCausalLM", FamilyHead::language}, {"VaultGemmaModel"}};
  family.tensors = joined(joined(attention_tensors(), gate_tensors()),
                          {{"model.layers.*.final_layer_norm", "model.layers.*.pre_feedforward_layernorm"}});
  return family;
}

Family gemma3() {
  Family family = gemma2();
  C& defaults = family.defaults;
  defaults.model_type = "gemma3_text";
  defaults.vocabulary = 262208;
  defaults.positions = 131072;
  defaults.score_cap.reset();
  defaults.logit_cap.reset();
  defaults.query_key_norm = true;
  defaults.rope.base = 1e6;
  defaults.window_rope = Rope{.base = 1e4};
  const ReadFunction layers = [](ConfigReader& reader, C& config) {
    std::int64_t pattern = 6;
    if (const nlohmann::json* value = reader.find({"sliding_window_pattern", "_sliding_window_pattern"})) {
      if (const auto read = reader.size("sliding_window_pattern", *value, 1, most_positions)) pattern = *read;
    }
    layer_types_or(reader, config, [&](std::int64_t i) { return (i + 1) % pattern != 0; });
  };
  family.classes = {{"Gemma3ForCausalLM", FamilyHead::language},
                    {"Gemma3TextModel"},
                    {"Gemma3TextForSequenceClassification", FamilyHead::sequence_labels}};
  family.fields = joined(gemma2_fields(), {{"layer_types", layers},
                                           {"rope_parameters", read_rope_by_layer},
                                           // transformers reads the key and does not use it.
                                           {"attn_logit_softcapping", FixedField{"null"}}});
  return family;
}

}  // namespace

std::vector<Family> decoder_families() {
  return {llama(),      mistral(), ministral(), qwen2(),      qwen3(), smollm3(),
          starcoder2(), gemma(),   gemma2(),    vaultgemma(), gemma3()};
}

}  // namespace fovea::models
