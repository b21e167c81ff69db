// Decoders that were trained by fairseq: positions are counted from 2. Facts and names: transformers 5.23,
// and its older forms.
#include <string>

#include "models/family/decoder_parts.h"

namespace fovea::models {
namespace {

using autograd::Activation;
using C = FamilyConfig;

void read_projected_embedding(ConfigReader& reader, C& config) {
  const nlohmann::json* value = reader.find("word_embed_proj_dim");
  if (value && *value != config.dim)
    reader.refuse("word_embed_proj_dim", "the hidden_size, " + std::to_string(config.dim), *value);
}

Family opt() {
  C defaults = gpt_defaults("opt", 50272, 768, 12, 12);
  defaults.feed_forward = 3072;
  defaults.activation = Activation::relu;
  defaults.query_bias = true;
  defaults.first_position_row = 2;
  return {.defaults = defaults,
          .classes = {{"OPTForCausalLM", FamilyHead::language},
                      {"OPTModel"},
                      {"OPTForSequenceClassification", FamilyHead::sequence_labels},
                      {"OPTForQuestionAnswering", FamilyHead::answer}},
          .fields = joined(size_fields(), {{"ffn_dim", SizeField{&C::feed_forward, most_dim}},
                                           {"activation_function", ActivationField{&C::activation}},
                                           {"word_embed_proj_dim", read_projected_embedding},
                                           {"do_layer_norm_before", FixedField{"true"}},
                                           {"_remove_final_layer_norm", FixedField{"false"}},
                                           {"layer_norm_elementwise_affine", FixedField{"true"}},
                                           {"enable_bias", FixedField{"true"}}}),
          .tensors = {{"model.embed_tokens", "model.decoder.embed_tokens"},
                      {"model.embed_positions", "model.decoder.embed_positions"},
                      {"model.layers.*.self_attn.q_proj", "model.decoder.layers.*.self_attn.q_proj"},
                      {"model.layers.*.self_attn.k_proj", "model.decoder.layers.*.self_attn.k_proj"},
                      {"model.layers.*.self_attn.v_proj", "model.decoder.layers.*.self_attn.v_proj"},
                      {"model.layers.*.self_attn.out_proj", "model.decoder.layers.*.self_attn.out_proj"},
                      {"model.layers.*.self_attn_layer_norm", "model.decoder.layers.*.self_attn_layer_norm"},
                      {"model.layers.*.fc1", "model.decoder.layers.*.fc1"},
                      {"model.layers.*.fc2", "model.decoder.layers.*.fc2"},
                      {"model.layers.*.final_layer_norm", "model.decoder.layers.*.final_layer_norm"},
                      {"model.layer_norm", "model.decoder.final_layer_norm"},
                      {"lm_head", "lm_head"}},
          .heads = decoder_heads(),
          .prefix = "model."};
}

// Sines are counted from 2. Where the padding is another id than 0 or 1, transformers takes its row of the
// sines for zeros.
void read_xglm_positions(ConfigReader& reader, C& config) {
  const nlohmann::json* pad = reader.find("pad_token_id");
  if (pad && *pad != 0 && *pad != 1) reader.refuse("pad_token_id", "0 or 1", *pad);
  set_fairseq_sines(reader, config, "d_model", 2);
}

Family xglm() {
  C defaults = gpt_defaults("xglm", 256008, 1024, 24, 16);
  defaults.feed_forward = 4096;
  defaults.activation = Activation::gelu;
  defaults.query_bias = defaults.scale_embedding = true;
  defaults.pad_id = 1;
  defaults.eos_ids = {2};
  return {.defaults = defaults,
          .classes = {{"XGLMForCausalLM", FamilyHead::language}, {"XGLMModel"}},
          .fields = {{"vocab_size", SizeField{&C::vocabulary, most_vocabulary}},
                     {"d_model", SizeField{&C::dim, most_dim}},
                     {"ffn_dim", SizeField{&C::feed_forward, most_dim}},
                     {"num_layers", SizeField{&C::layers, most_layers}},
                     {"attention_heads", SizeField{&C::heads, most_dim}},
                     {"max_position_embeddings", SizeField{&C::positions, most_positions}},
                     {"activation_function", ActivationField{&C::activation}},
                     {"scale_embedding", FlagField{&C::scale_embedding}},
                     {"tie_word_embeddings", FlagField{&C::tied}},
                     {"decoder_start_token_id", NoEffect{}},
                     {"pad_token_id", read_xglm_positions}},
          .tensors = {{"*", "*"}},
          .prefix = "model.",
          .copies = {"*.embed_positions.weights"}};
}

// The norms of blocks are of 1e-5 whatever layer_norm_eps says.
Family biogpt() {
  C defaults = gpt_defaults("biogpt", 42384, 1024, 24, 16);
  defaults.feed_forward = 4096;
  defaults.positions = 1024;
  defaults.activation = Activation::gelu;
  defaults.query_bias = defaults.scale_embedding = true;
  defaults.first_position_row = 2;
  defaults.pad_id = 1;
  defaults.eos_ids = {2};
  return {.defaults = defaults,
          .classes = decoder_classes("BioGpt"),
          .fields = joined(size_fields(), {{"intermediate_size", SizeField{&C::feed_forward, most_dim}},
                                           {"hidden_act", ActivationField{&C::activation}},
                                           {"scale_embedding", FlagField{&C::scale_embedding}},
                                           {"layer_norm_eps", NoEffect{}}}),
          .tensors = {{"model.embed_tokens", "biogpt.embed_tokens"},
                      {"model.embed_positions", "biogpt.embed_positions"},
                      {"model.layers.*.self_attn.q_proj", "biogpt.layers.*.self_attn.q_proj"},
                      {"model.layers.*.self_attn.k_proj", "biogpt.layers.*.self_attn.k_proj"},
                      {"model.layers.*.self_attn.v_proj", "biogpt.layers.*.self_attn.v_proj"},
                      {"model.layers.*.self_attn.out_proj", "biogpt.layers.*.self_attn.out_proj"},
                      {"model.layers.*.self_attn_layer_norm", "biogpt.layers.*.self_attn_layer_norm"},
                      {"model.layers.*.fc1", "biogpt.layers.*.fc1"},
                      {"model.layers.*.fc2", "biogpt.layers.*.fc2"},
                      {"model.layers.*.final_layer_norm", "biogpt.layers.*.final_layer_norm"},
                      {"model.layer_norm", "biogpt.layer_norm"},
                      {"lm_head", "output_projection"}},
          .heads = decoder_heads("classifier"),
          .prefix = "biogpt."};
}

}  // namespace

std::vector<Family> fairseq_decoders() {
  return {opt(), xglm(), biogpt()};
}

}  // namespace fovea::models
