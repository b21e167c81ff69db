// The families that read from left to right. Facts and names: transformers 5.23, and its older forms.
#include <array>
#include <string>

#include "models/family/row.h"

namespace fovea::models {
namespace {

using autograd::Activation;
using nn::NormPlace;
using nn::NormSpec;
using Layout = TensorRule::Layout;
using C = FamilyConfig;

// The language model, and heads over the last hidden states.
std::vector<ClassRow> classes_of(const std::string& name) {
  return {{name + "ForCausalLM", FamilyHead::language},
          {name + "Model"},
          {name + "ForSequenceClassification", FamilyHead::sequence_labels},
          {name + "ForTokenClassification", FamilyHead::token_labels}};
}

// The same with a head for answers, whose class names the model "transformer" in most families.
std::vector<ClassRow> classes_with_answers(const std::string& name,
                                           std::string_view prefix = "transformer.") {
  return joined(classes_of(name), {{name + "ForQuestionAnswering", FamilyHead::answer, prefix}});
}

// Labels of a sequence come from its last row.
std::vector<HeadRow> heads(std::string_view token_labels = "score") {
  return {{FamilyHead::sequence_labels,
           {.pooling = SentencePooling::Kind::last, .bias = false},
           {{"head.output", "score"}}},
          {FamilyHead::token_labels, {}, {{"head.output", token_labels}}},
          {FamilyHead::answer, {}, {{"head.output", "qa_outputs"}}}};
}

// -- what Llama and its descendants share

std::vector<Field> llama_sizes() {
  return {{"vocab_size", SizeField{&C::vocabulary, most_vocabulary}},
          {"hidden_size", SizeField{&C::dim, most_dim}},
          {"intermediate_size", SizeField{&C::feed_forward, most_dim}},
          {"num_hidden_layers", SizeField{&C::layers, most_layers}},
          {"num_attention_heads", SizeField{&C::heads, most_dim}},
          {"num_key_value_heads", SizeField{&C::kv_heads, most_dim}},
          {"max_position_embeddings", SizeField{&C::positions, most_positions}},
          {"tie_word_embeddings", FlagField{&C::tied}}};
}

std::vector<Field> llama_fields() {
  return joined(llama_sizes(), {{"head_dim", SizeField{&C::head_dim, most_dim}},
                                {"rms_norm_eps", NumberField{&C::norm_epsilon}},
                                {"hidden_act", ActivationField{&C::activation}}});
}

std::vector<TensorRule> attention_tensors() {
  return {{"model.embed_tokens", "model.embed_tokens"},
          {"model.layers.*.self_attn.q_proj", "model.layers.*.self_attn.q_proj"},
          {"model.layers.*.self_attn.k_proj", "model.layers.*.self_attn.k_proj"},
          {"model.layers.*.self_attn.v_proj", "model.layers.*.self_attn.v_proj"},
          {"model.layers.*.self_attn.out_proj", "model.layers.*.self_attn.o_proj"},
          {"model.layers.*.self_attn.q_norm", "model.layers.*.self_attn.q_norm"},
          {"model.layers.*.self_attn.k_norm", "model.layers.*.self_attn.k_norm"},
          {"model.layers.*.self_attn_layer_norm", "model.layers.*.input_layernorm"},
          {"model.layer_norm", "model.norm"},
          {"lm_head", "lm_head"}};
}

std::vector<TensorRule> gate_tensors() {
  return {{"model.layers.*.gate", "model.layers.*.mlp.gate_proj"},
          {"model.layers.*.fc1", "model.layers.*.mlp.up_proj"},
          {"model.layers.*.fc2", "model.layers.*.mlp.down_proj"}};
}

std::vector<TensorRule> llama_tensors() {
  return joined(joined(attention_tensors(), gate_tensors()),
                {{"model.layers.*.final_layer_norm", "model.layers.*.post_attention_layernorm"}});
}

void read_attention_bias(ConfigReader& reader, C& config) {
  const nlohmann::json* value = reader.find("attention_bias");
  if (!value) return;
  if (!value->is_boolean()) return reader.refuse("attention_bias", "true or false", *value);
  config.query_bias = config.output_bias = value->get<bool>();
}

// The values of absent keys are those of the class.
C llama_defaults(const char* type, std::int64_t vocabulary, std::int64_t dim, std::int64_t feed_forward,
                 std::int64_t layers, std::int64_t heads) {
  C config;
  config.model_type = type;
  config.vocabulary = vocabulary;
  config.dim = dim;
  config.feed_forward = feed_forward;
  config.layers = layers;
  config.heads = heads;
  config.tied = false;
  return config;
}

Family llama() {
  C defaults = llama_defaults("llama", 32000, 4096, 11008, 32, 32);
  defaults.positions = 2048;
  return {.defaults = defaults,
          .classes = classes_with_answers("Llama"),
          .fields = joined(llama_fields(), {{"attention_bias", read_attention_bias},
                                            {"mlp_bias", FlagField{&C::mlp_bias}},
                                            {"rope_parameters", read_rope},
                                            // Of SmolLM.
                                            {"is_llama_config", NoEffect{}},
                                            {"rope_interleaved", FixedField{"false"}}}),
          .tensors = llama_tensors(),
          .heads = heads(),
          .prefix = "model."};
}

Family mistral() {
  C defaults = llama_defaults("mistral", 32000, 4096, 14336, 32, 32);
  defaults.kv_heads = 8;
  defaults.positions = 131072;
  defaults.window = 4096;
  return {.defaults = defaults,
          .classes = classes_with_answers("Mistral", ""),
          .fields = joined(llama_fields(), {{"sliding_window", OptionalSizeField{&C::window, most_positions}},
                                            {"layer_types", read_layer_types},
                                            {"rope_parameters", read_rope}}),
          .tensors = llama_tensors(),
          .heads = heads(),
          .prefix = "model."};
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
  return {.defaults = defaults,
          .classes = classes_with_answers("Qwen2"),
          .fields = joined(llama_fields(), {{"sliding_window", OptionalSizeField{&C::window, most_positions}},
                                            {"use_sliding_window", read_qwen_window},
                                            {"rope_parameters", read_rope}}),
          .tensors = llama_tensors(),
          .heads = heads(),
          .prefix = "model."};
}

Family qwen3() {
  Family family = qwen2();
  family.defaults.model_type = "qwen3";
  family.defaults.query_bias = false;
  family.defaults.head_dim = 128;
  family.defaults.query_key_norm = true;
  family.classes = classes_with_answers("Qwen3");
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
  return {.defaults = defaults,
          .classes = classes_with_answers("SmolLM3"),
          .fields = joined(llama_fields(), {{"attention_bias", read_attention_bias},
                                            {"mlp_bias", FlagField{&C::mlp_bias}},
                                            {"sliding_window", OptionalSizeField{&C::window, most_positions}},
                                            {"max_window_layers", NoEffect{}},
                                            {"no_rope_layers", read_smollm3_layers},
                                            {"rope_parameters", read_rope}}),
          .tensors = llama_tensors(),
          .heads = heads(),
          .prefix = "model."};
}

void read_use_bias(ConfigReader& reader, C& config) {
  const nlohmann::json* value = reader.find("use_bias");
  if (!value) return;
  if (!value->is_boolean()) return reader.refuse("use_bias", "true or false", *value);
  config.query_bias = config.output_bias = config.mlp_bias = value->get<bool>();
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
          .classes = classes_of("Starcoder2"),
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
          .heads = heads(),
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
          .classes = classes_of("Gemma"),
          .fields = joined(llama_sizes(), {{"head_dim", SizeField{&C::head_dim, most_dim}},
                                           {"rms_norm_eps", NumberField{&C::norm_epsilon}},
                                           {"hidden_act", read_gemma_activation},
                                           {"attention_bias", read_attention_bias},
                                           {"use_bidirectional_attention", FixedField{"false"}},
                                           {"rope_parameters", read_rope}}),
          .tensors = llama_tensors(),
          .heads = heads(),
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
          .classes = classes_of("Gemma2"),
          .fields = joined(gemma2_fields(), {{"hidden_act", NoEffect{}},  // hidden_activation counts
                                             {"layer_types", layers},
                                             {"rope_parameters", read_rope}}),
          .tensors = joined(joined(attention_tensors(), gate_tensors()),
                            {{"model.layers.*.self_attn_end_norm", "model.layers.*.post_attention_layernorm"},
                             {"model.layers.*.final_layer_norm", "model.layers.*.pre_feedforward_layernorm"},
                             {"model.layers.*.final_end_norm", "model.layers.*.post_feedforward_layernorm"}}),
          .heads = heads(),
          .prefix = "model."};
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

// -- GPT-2

Family gpt2() {
  C defaults;
  defaults.model_type = "gpt2";
  defaults.vocabulary = 50257;
  defaults.dim = 768;
  defaults.layers = defaults.heads = 12;
  defaults.positions = 1024;
  defaults.norm = NormSpec::Kind::layer;
  defaults.norm_epsilon = 1e-5;
  defaults.gated = false;
  defaults.activation = Activation::gelu_tanh;
  defaults.query_bias = defaults.output_bias = defaults.mlp_bias = true;
  defaults.learned_positions = true;
  defaults.rotary = false;
  return {
      .defaults = defaults,
      .classes = {{"GPT2LMHeadModel", FamilyHead::language},
                  {"GPT2Model"},
                  {"GPT2ForSequenceClassification", FamilyHead::sequence_labels},
                  {"GPT2ForTokenClassification", FamilyHead::token_labels},
                  {"GPT2ForQuestionAnswering", FamilyHead::answer}},
      .fields = {{"vocab_size", SizeField{&C::vocabulary, most_vocabulary}},
                 {"n_embd", SizeField{&C::dim, most_dim}},
                 {"n_inner", SizeField{&C::feed_forward, most_dim}},
                 {"n_layer", SizeField{&C::layers, most_layers}},
                 {"n_head", SizeField{&C::heads, most_dim}},
                 {"n_positions", SizeField{&C::positions, most_positions}},
                 {"n_ctx", NoEffect{}},
                 {"activation_function", ActivationField{&C::activation}},
                 {"layer_norm_epsilon", NumberField{&C::norm_epsilon}},
                 {"scale_attn_weights", FlagField{&C::scale_scores}},
                 {"scale_attn_by_inverse_layer_idx", FlagField{&C::scale_by_layer}},
                 // The same numbers, in another order of operations.
                 {"reorder_and_upcast_attn", NoEffect{}},
                 {"tie_word_embeddings", FlagField{&C::tied}}},
      .tensors = {{"model.embed_tokens", "transformer.wte"},
                  {"model.embed_positions", "transformer.wpe"},
                  {"model.layers.*.self_attn.q_proj", "transformer.h.*.attn.c_attn", Layout::transposed},
                  {"model.layers.*.self_attn.k_proj", "transformer.h.*.attn.c_attn", Layout::transposed},
                  {"model.layers.*.self_attn.v_proj", "transformer.h.*.attn.c_attn", Layout::transposed},
                  {"model.layers.*.self_attn.out_proj", "transformer.h.*.attn.c_proj", Layout::transposed},
                  {"model.layers.*.self_attn_layer_norm", "transformer.h.*.ln_1"},
                  {"model.layers.*.final_layer_norm", "transformer.h.*.ln_2"},
                  {"model.layers.*.fc1", "transformer.h.*.mlp.c_fc", Layout::transposed},
                  {"model.layers.*.fc2", "transformer.h.*.mlp.c_proj", Layout::transposed},
                  {"model.layer_norm", "transformer.ln_f"},
                  {"lm_head", "lm_head"}},
      .heads = heads("classifier"),
      .prefix = "transformer.",
      .copies = {"*.attn.bias", "*.attn.masked_bias"}};  // triangles of the causal mask
}

}  // namespace

std::vector<Family> decoder_families() {
  return {gpt2(), llama(), mistral(), qwen2(), qwen3(), smollm3(), starcoder2(), gemma(), gemma2(), gemma3()};
}

}  // namespace fovea::models
