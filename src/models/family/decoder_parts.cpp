#include "models/family/decoder_parts.h"

#include <utility>

namespace fovea::models {

using C = FamilyConfig;

std::vector<ClassRow> decoder_classes(const std::string& name) {
  return {{name + "ForCausalLM", FamilyHead::language},
          {name + "Model"},
          {name + "ForSequenceClassification", FamilyHead::sequence_labels},
          {name + "ForTokenClassification", FamilyHead::token_labels}};
}

std::vector<ClassRow> decoder_classes_with_answers(const std::string& name, std::string_view prefix) {
  return joined(decoder_classes(name), {{name + "ForQuestionAnswering", FamilyHead::answer, prefix}});
}

std::vector<HeadRow> decoder_heads(std::string_view token_labels) {
  return {{FamilyHead::sequence_labels,
           {.pooling = SentencePooling::Kind::last, .bias = false},
           {{"head.output", "score"}}},
          {FamilyHead::token_labels, {}, {{"head.output", token_labels}}},
          {FamilyHead::answer, {}, {{"head.output", "qa_outputs"}}}};
}

C gpt_defaults(const char* type, std::int64_t vocabulary, std::int64_t dim, std::int64_t layers,
               std::int64_t heads) {
  C defaults;
  defaults.model_type = type;
  defaults.vocabulary = vocabulary;
  defaults.dim = dim;
  defaults.layers = layers;
  defaults.heads = heads;
  defaults.positions = 2048;
  defaults.norm = nn::NormSpec::Kind::layer;
  defaults.norm_epsilon = 1e-5;
  defaults.gated = false;
  defaults.output_bias = defaults.mlp_bias = true;
  defaults.learned_positions = true;
  defaults.rotary = false;
  return defaults;
}

std::vector<Field> gpt_fields() {
  return {{"vocab_size", SizeField{&C::vocabulary, most_vocabulary}},
          {"n_embd", SizeField{&C::dim, most_dim}},
          {"n_inner", SizeField{&C::feed_forward, most_dim}},
          {"n_layer", SizeField{&C::layers, most_layers}},
          {"n_head", SizeField{&C::heads, most_dim}},
          {"n_positions", SizeField{&C::positions, most_positions}},
          {"n_ctx", NoEffect{}},
          {"activation_function", ActivationField{&C::activation}},
          {"layer_norm_epsilon", NumberField{&C::norm_epsilon}},
          {"tie_word_embeddings", FlagField{&C::tied}}};
}

std::vector<TensorRule> bloom_tensors(TensorRule::Layout of_qkv) {
  return {{"model.embed_tokens", "transformer.word_embeddings"},
          {"model.layers.*.self_attn.q_proj", "transformer.h.*.self_attention.query_key_value", of_qkv},
          {"model.layers.*.self_attn.k_proj", "transformer.h.*.self_attention.query_key_value", of_qkv},
          {"model.layers.*.self_attn.v_proj", "transformer.h.*.self_attention.query_key_value", of_qkv},
          {"model.layers.*.self_attn.out_proj", "transformer.h.*.self_attention.dense"},
          {"model.layers.*.self_attn_layer_norm", "transformer.h.*.input_layernorm"},
          {"model.layers.*.fc1", "transformer.h.*.mlp.dense_h_to_4h"},
          {"model.layers.*.fc2", "transformer.h.*.mlp.dense_4h_to_h"},
          {"model.layer_norm", "transformer.ln_f"},
          {"lm_head", "lm_head"}};
}

std::vector<Field> llama_sizes() {
  return joined(size_fields(), {{"intermediate_size", SizeField{&C::feed_forward, most_dim}},
                                {"num_key_value_heads", SizeField{&C::kv_heads, most_dim}}});
}

std::vector<Field> llama_fields() {
  return joined(llama_sizes(), {{"head_dim", SizeField{&C::head_dim, most_dim}},
                                {"rms_norm_eps", NumberField{&C::norm_epsilon}},
                                {"hidden_act", ActivationField{&C::activation}}});
}

std::vector<TensorRule> attention_tensors(std::string_view norm) {
  return {{"model.embed_tokens", "model.embed_tokens"},
          {"model.layers.*.self_attn.q_proj", "model.layers.*.self_attn.q_proj"},
          {"model.layers.*.self_attn.k_proj", "model.layers.*.self_attn.k_proj"},
          {"model.layers.*.self_attn.v_proj", "model.layers.*.self_attn.v_proj"},
          {"model.layers.*.self_attn.out_proj", "model.layers.*.self_attn.o_proj"},
          {"model.layers.*.self_attn.q_norm", "model.layers.*.self_attn.q_norm"},
          {"model.layers.*.self_attn.k_norm", "model.layers.*.self_attn.k_norm"},
          {"model.layers.*.self_attn_layer_norm", norm},
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

Family llama_family(const C& defaults, std::vector<ClassRow> classes, const std::vector<Field>& fields) {
  return {.defaults = defaults,
          .classes = std::move(classes),
          .fields = joined(llama_fields(), fields),
          .tensors = llama_tensors(),
          .heads = decoder_heads(),
          .prefix = "model."};
}

void read_biases(ConfigReader& reader, C& config, std::string_view key) {
  const nlohmann::json* value = reader.find(key);
  if (!value) return;
  if (!value->is_boolean()) return reader.refuse(std::string(key), "true or false", *value);
  config.query_bias = config.output_bias = config.mlp_bias = value->get<bool>();
}

void read_use_bias(ConfigReader& reader, C& config) {
  read_biases(reader, config, "use_bias");
}

}  // namespace fovea::models
