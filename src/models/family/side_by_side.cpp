// Decoders whose blocks have attention and the feed-forward part side by side. Facts and names: transformers
// 5.23, and its older forms.
#include <string>

#include "models/family/decoder_parts.h"

namespace fovea::models {
namespace {

using autograd::Activation;
using nn::NormSpec;
using Layout = TensorRule::Layout;
using C = FamilyConfig;

// Layer norms, no gates.
C plain_defaults(const char* type, std::int64_t vocabulary, std::int64_t dim, std::int64_t feed_forward,
                 std::int64_t layers, std::int64_t heads) {
  C defaults = llama_defaults(type, vocabulary, dim, feed_forward, layers, heads);
  defaults.positions = 2048;
  defaults.norm = NormSpec::Kind::layer;
  defaults.norm_epsilon = 1e-5;
  defaults.gated = false;
  defaults.query_bias = defaults.output_bias = defaults.mlp_bias = true;
  defaults.side_by_side = true;
  defaults.own_mlp_norm = false;
  return defaults;
}

// The feed-forward part has a norm of its own, also where it is not beside attention. A head's rows of q, k
// and v stand side by side in one tensor.
Family gpt_neox() {
  C defaults = plain_defaults("gpt_neox", 50432, 6144, 24576, 44, 64);
  defaults.activation = Activation::gelu;
  defaults.own_mlp_norm = true;
  defaults.rotary_share = 0.25;
  return {.defaults = defaults,
          .classes = decoder_classes_with_answers("GPTNeoX", "gpt_neox."),
          .fields = joined(size_fields(), {{"intermediate_size", SizeField{&C::feed_forward, most_dim}},
                                           {"hidden_act", ActivationField{&C::activation}},
                                           {"layer_norm_eps", NumberField{&C::norm_epsilon}},
                                           {"use_parallel_residual", FlagField{&C::side_by_side}},
                                           {"attention_bias", read_attention_bias},
                                           {"hidden_dropout", NoEffect{}},
                                           {"rope_parameters", read_neox_rope}}),
          .tensors = {{"model.embed_tokens", "gpt_neox.embed_in"},
                      {"model.layers.*.self_attn.q_proj", "gpt_neox.layers.*.attention.query_key_value",
                       Layout::by_head},
                      {"model.layers.*.self_attn.k_proj", "gpt_neox.layers.*.attention.query_key_value",
                       Layout::by_head},
                      {"model.layers.*.self_attn.v_proj", "gpt_neox.layers.*.attention.query_key_value",
                       Layout::by_head},
                      {"model.layers.*.self_attn.out_proj", "gpt_neox.layers.*.attention.dense"},
                      {"model.layers.*.self_attn_layer_norm", "gpt_neox.layers.*.input_layernorm"},
                      {"model.layers.*.final_layer_norm", "gpt_neox.layers.*.post_attention_layernorm"},
                      {"model.layers.*.fc1", "gpt_neox.layers.*.mlp.dense_h_to_4h"},
                      {"model.layers.*.fc2", "gpt_neox.layers.*.mlp.dense_4h_to_h"},
                      {"model.layer_norm", "gpt_neox.final_layer_norm"},
                      {"lm_head", "embed_out"}},
          .heads = decoder_heads("classifier"),
          .prefix = "gpt_neox.",
          // Triangles of the causal mask, which older releases wrote.
          .copies = {"*.attention.bias", "*.attention.masked_bias"}};
}

// Pairs of neighbours are turned. Logits have biases, the matrices of attention none.
Family gptj() {
  C defaults = plain_defaults("gptj", 50400, 4096, 0, 28, 16);
  defaults.activation = Activation::gelu_tanh;
  defaults.query_bias = defaults.output_bias = false;
  defaults.logit_bias = true;
  defaults.rope.layout = RopeLayout::interleaved;
  defaults.rotary_elements = 64;
  return {.defaults = defaults,
          .classes = {{"GPTJForCausalLM", FamilyHead::language},
                      {"GPTJModel"},
                      {"GPTJForSequenceClassification", FamilyHead::sequence_labels},
                      {"GPTJForQuestionAnswering", FamilyHead::answer}},
          .fields = joined(gpt_fields(), {{"rotary_dim", OptionalSizeField{&C::rotary_elements, most_dim, 2}},
                                          {"rotary", FixedField{"true"}},
                                          {"scale_attn_weights", FixedField{"true"}}}),
          .tensors = {{"model.embed_tokens", "transformer.wte"},
                      {"model.layers.*.self_attn.q_proj", "transformer.h.*.attn.q_proj"},
                      {"model.layers.*.self_attn.k_proj", "transformer.h.*.attn.k_proj"},
                      {"model.layers.*.self_attn.v_proj", "transformer.h.*.attn.v_proj"},
                      {"model.layers.*.self_attn.out_proj", "transformer.h.*.attn.out_proj"},
                      {"model.layers.*.self_attn_layer_norm", "transformer.h.*.ln_1"},
                      {"model.layers.*.fc1", "transformer.h.*.mlp.fc_in"},
                      {"model.layers.*.fc2", "transformer.h.*.mlp.fc_out"},
                      {"model.layer_norm", "transformer.ln_f"},
                      {"lm_head", "lm_head"}},
          .heads = decoder_heads(),
          .prefix = "transformer.",
          .copies = {"*.attn.bias", "*.attn.masked_bias", "*.attn.embed_positions"}};
}

Family phi() {
  C defaults = plain_defaults("phi", 51200, 2048, 8192, 24, 32);
  defaults.activation = Activation::gelu_tanh;
  defaults.logit_bias = true;
  defaults.rotary_share = 0.5;
  return {.defaults = defaults,
          .classes = decoder_classes("Phi"),
          .fields = joined(llama_sizes(), {{"hidden_act", ActivationField{&C::activation}},
                                           {"layer_norm_eps", NumberField{&C::norm_epsilon}},
                                           {"qk_layernorm", FixedField{"false"}},
                                           {"rope_parameters", read_rope}}),
          .tensors = {{"model.embed_tokens", "model.embed_tokens"},
                      {"model.layers.*.self_attn.q_proj", "model.layers.*.self_attn.q_proj"},
                      {"model.layers.*.self_attn.k_proj", "model.layers.*.self_attn.k_proj"},
                      {"model.layers.*.self_attn.v_proj", "model.layers.*.self_attn.v_proj"},
                      {"model.layers.*.self_attn.out_proj", "model.layers.*.self_attn.dense"},
                      {"model.layers.*.self_attn_layer_norm", "model.layers.*.input_layernorm"},
                      {"model.layers.*.fc1", "model.layers.*.mlp.fc1"},
                      {"model.layers.*.fc2", "model.layers.*.mlp.fc2"},
                      {"model.layer_norm", "model.final_layernorm"},
                      {"lm_head", "lm_head"}},
          .heads = decoder_heads(),
          .prefix = "model."};
}

// Layer norms without biases, gates, and neighbours turned.
C cohere_defaults(const char* type) {
  C defaults = llama_defaults(type, 256000, 8192, 22528, 40, 64);
  defaults.positions = 8192;
  defaults.norm = NormSpec::Kind::layer;
  defaults.norm_epsilon = 1e-5;
  defaults.norm_bias = false;
  defaults.tied = true;
  defaults.side_by_side = true;
  defaults.own_mlp_norm = false;
  defaults.logit_factor = 0.0625;
  defaults.rope.layout = RopeLayout::interleaved;
  return defaults;
}
std::vector<Field> cohere_fields() {
  return joined(llama_sizes(),
                {{"hidden_act", ActivationField{&C::activation}},
                 {"layer_norm_eps", NumberField{&C::norm_epsilon}},
                 {"logit_scale", NumberField{&C::logit_factor}},
                 {"attention_bias", read_attention_bias},
                 {"model_max_length", NoEffect{}},  // of Command-R's files; no release reads it
                 {"rope_parameters", read_rope}});
}
std::vector<TensorRule> cohere_tensors() {
  return joined(attention_tensors(), gate_tensors());
}

Family cohere() {
  C defaults = cohere_defaults("cohere");
  defaults.rope.base = 5e5;
  return {.defaults = defaults,
          .classes = {{"CohereForCausalLM", FamilyHead::language}, {"CohereModel"}},
          .fields = joined(cohere_fields(), {{"use_qk_norm", FixedField{"false"}}}),
          .tensors = cohere_tensors(),
          .prefix = "model."};
}

// Layers without a window have no positions.
void read_cohere_layers(ConfigReader& reader, C& config) {
  std::int64_t pattern = 4;
  if (const nlohmann::json* value = reader.find("sliding_window_pattern"))
    pattern = reader.size("sliding_window_pattern", *value, 1, most_positions).value_or(pattern);
  layer_types_or(reader, config, [&](std::int64_t i) { return (i + 1) % pattern != 0; });
  for (const LayerSees sees : config.sees) config.layers_with_rope.push_back(sees == LayerSees::window);
}

Family cohere2() {
  C defaults = cohere_defaults("cohere2");
  defaults.window = 4096;
  return {
      .defaults = defaults,
      .classes = {{"Cohere2ForCausalLM", FamilyHead::language}, {"Cohere2Model"}},
      .fields = joined(cohere_fields(), {{"sliding_window", OptionalSizeField{&C::window, most_positions}},
                                         {"layer_types", read_cohere_layers},
                                         {"head_dim", SizeField{&C::head_dim, most_dim}},
                                         // Of the published files, which no release reads.
                                         {"use_gated_activation", FixedField{"true"}},
                                         {"use_parallel_block", FixedField{"true"}},
                                         {"rotary_pct", FixedField{"1.0"}},
                                         {"position_embedding_type", FixedField{"\"rope_gptj\""}},
                                         {"order_of_interleaved_layers", NoEffect{}},
                                         {"layer_switch", NoEffect{}},
                                         {"_sliding_window_pattern", NoEffect{}},
                                         {"use_embedding_sharing", NoEffect{}},
                                         {"use_parallel_embedding", NoEffect{}}}),
      .tensors = cohere_tensors(),
      .prefix = "model."};
}

// One head of keys and values, whose rows stand behind those of the queries. Falcon-40B and later ones have
// another order of rows, and Falcon-RW has ALiBi.
Family falcon() {
  C defaults = plain_defaults("falcon", 65024, 4544, 0, 32, 71);
  defaults.kv_heads = 1;
  defaults.activation = Activation::gelu;
  defaults.query_bias = defaults.output_bias = defaults.mlp_bias = false;
  defaults.tied = true;
  return {.defaults = defaults,
          .classes = decoder_classes_with_answers("Falcon"),
          .fields =
              joined(size_fields(),
                     {{"ffn_hidden_size", SizeField{&C::feed_forward, most_dim}},
                      {"activation", ActivationField{&C::activation}},
                      {"layer_norm_epsilon", NumberField{&C::norm_epsilon}},
                      {"bias", [](ConfigReader& reader, C& config) { read_biases(reader, config, "bias"); }},
                      {"alibi", FixedField{"false"}},
                      {"multi_query", FixedField{"true"}},
                      {"parallel_attn", FixedField{"true"}},
                      {"new_decoder_architecture", FixedField{"false"}},
                      {"num_ln_in_parallel_attn", FixedField{"1"}},
                      {"num_kv_heads", NoEffect{}},  // with multi_query there is one
                      {"apply_residual_connection_post_layernorm", NoEffect{}},
                      {"hidden_dropout", NoEffect{}},
                      {"rope_parameters", read_rope}}),
          .tensors = bloom_tensors(Layout::same),
          .heads = decoder_heads("classifier"),
          .prefix = "transformer."};
}

}  // namespace

std::vector<Family> side_by_side_families() {
  return {gpt_neox(), gptj(), phi(), cohere(), cohere2(), falcon()};
}

}  // namespace fovea::models
