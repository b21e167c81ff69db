// GPT-2 and decoders like it: a table of positions or ALiBi, layer norms, no gates. Facts and names:
// transformers 5.23, and its older forms.
#include <string>

#include "models/family/decoder_parts.h"

namespace fovea::models {
namespace {

using autograd::Activation;
using Layout = TensorRule::Layout;
using C = FamilyConfig;

C gpt2_defaults(const char* type) {
  C defaults = gpt_defaults(type, 50257, 768, 12, 12);
  defaults.positions = 1024;
  defaults.activation = Activation::gelu_tanh;
  defaults.query_bias = true;
  return defaults;
}

// `of_matrices`: how those of the blocks are stored.
std::vector<TensorRule> gpt2_tensors(Layout of_matrices) {
  return {{"model.embed_tokens", "transformer.wte"},
          {"model.embed_positions", "transformer.wpe"},
          {"model.layers.*.self_attn.q_proj", "transformer.h.*.attn.c_attn", of_matrices},
          {"model.layers.*.self_attn.k_proj", "transformer.h.*.attn.c_attn", of_matrices},
          {"model.layers.*.self_attn.v_proj", "transformer.h.*.attn.c_attn", of_matrices},
          {"model.layers.*.self_attn.out_proj", "transformer.h.*.attn.c_proj", of_matrices},
          {"model.layers.*.self_attn_layer_norm", "transformer.h.*.ln_1"},
          {"model.layers.*.final_layer_norm", "transformer.h.*.ln_2"},
          {"model.layers.*.fc1", "transformer.h.*.mlp.c_fc", of_matrices},
          {"model.layers.*.fc2", "transformer.h.*.mlp.c_proj", of_matrices},
          {"model.layer_norm", "transformer.ln_f"},
          {"lm_head", "lm_head"}};
}

Family gpt2() {
  return {.defaults = gpt2_defaults("gpt2"),
          .classes = {{"GPT2LMHeadModel", FamilyHead::language},
                      {"GPT2Model"},
                      {"GPT2ForSequenceClassification", FamilyHead::sequence_labels},
                      {"GPT2ForTokenClassification", FamilyHead::token_labels},
                      {"GPT2ForQuestionAnswering", FamilyHead::answer}},
          .fields = joined(gpt_fields(), {{"scale_attn_weights", FlagField{&C::scale_scores}},
                                          {"scale_attn_by_inverse_layer_idx", FlagField{&C::scale_by_layer}},
                                          // The same numbers, in another order of operations.
                                          {"reorder_and_upcast_attn", NoEffect{}}}),
          .tensors = gpt2_tensors(Layout::transposed),
          .heads = decoder_heads("classifier"),
          .prefix = "transformer.",
          .copies = {"*.attn.bias", "*.attn.masked_bias"}};  // triangles of the causal mask
}

// One head of keys and values, whose rows stand behind those of the queries. Without multi_query the rows
// have another order.
Family gpt_bigcode() {
  C defaults = gpt2_defaults("gpt_bigcode");
  defaults.kv_heads = 1;
  return {.defaults = defaults,
          .classes = decoder_classes("GPTBigCode"),
          .fields = joined(gpt_fields(), {{"scale_attn_weights", FlagField{&C::scale_scores}},
                                          {"multi_query", FixedField{"true"}},
                                          {"num_key_value_heads", FixedField{"1"}},
                                          // Numbers are f32 here.
                                          {"attention_softmax_in_fp32", NoEffect{}},
                                          {"scale_attention_softmax_in_fp32", NoEffect{}},
                                          // Of the published files, which no release reads.
                                          {"attention_type", NoEffect{}},
                                          {"inference_runner", NoEffect{}},
                                          {"max_batch_size", NoEffect{}},
                                          {"max_sequence_length", NoEffect{}},
                                          {"pad_key_length", NoEffect{}},
                                          {"pre_allocate_kv_cache", NoEffect{}},
                                          {"validate_runner_input", NoEffect{}}}),
          .tensors = gpt2_tensors(Layout::same),
          .heads = decoder_heads("classifier"),
          .prefix = "transformer.",
          .copies = {"*.attn.bias", "*.attn.masked_bias"}};
}

// attention_layers, or attention_types, which has the same in runs: [[["global", "local"], 12]].
void read_neo_layers(ConfigReader& reader, C& config) {
  std::vector<nlohmann::json> kinds;
  const nlohmann::json *runs = reader.find("attention_types"), *list = reader.find("attention_layers");
  if (runs && runs->is_array()) {
    for (const nlohmann::json& run : *runs) {
      const bool good = run.is_array() && run.size() == 2 && run[0].is_array() && !run[0].empty() &&
                        run[1].is_number_unsigned();
      const std::uint64_t times = good ? run[1].get<std::uint64_t>() : 0;
      for (std::uint64_t n = 0; n < times && static_cast<std::int64_t>(kinds.size()) <= config.layers; ++n)
        kinds.insert(kinds.end(), run[0].begin(), run[0].end());
    }
  } else {
    for (std::int64_t i = 0; i < config.layers; ++i) kinds.push_back(i % 2 == 0 ? "global" : "local");
  }
  const std::string expected =
      "\"global\" or \"local\" for each of " + std::to_string(config.layers) + " layers";
  if (static_cast<std::int64_t>(kinds.size()) != config.layers)
    return reader.refuse("attention_types", expected, runs ? shown(*runs) : "none");
  for (const nlohmann::json& kind : kinds) {
    if (kind != "global" && kind != "local") return reader.refuse("attention_types", expected, kind);
    config.sees.push_back(kind == "local" ? LayerSees::window : LayerSees::all);
  }
  if (list && *list != nlohmann::json(kinds))
    reader.refuse("attention_layers", "what attention_types says", *list);
}

// Scores are not scaled.
Family gpt_neo() {
  C defaults = gpt_defaults("gpt_neo", 50257, 2048, 24, 16);
  defaults.activation = Activation::gelu_tanh;
  defaults.scale_scores = false;
  defaults.window = 256;
  return {.defaults = defaults,
          .classes = decoder_classes_with_answers("GPTNeo"),
          .fields = {{"vocab_size", SizeField{&C::vocabulary, most_vocabulary}},
                     {"hidden_size", SizeField{&C::dim, most_dim}},
                     {"intermediate_size", SizeField{&C::feed_forward, most_dim}},
                     {"num_layers", SizeField{&C::layers, most_layers}},
                     {"num_heads", SizeField{&C::heads, most_dim}},
                     {"max_position_embeddings", SizeField{&C::positions, most_positions}},
                     {"window_size", OptionalSizeField{&C::window, most_positions}},
                     {"attention_types", read_neo_layers},
                     {"activation_function", ActivationField{&C::activation}},
                     {"layer_norm_epsilon", NumberField{&C::norm_epsilon}},
                     {"resid_dropout", NoEffect{}},
                     {"embed_dropout", NoEffect{}},
                     {"tie_word_embeddings", FlagField{&C::tied}}},
          .tensors = {{"model.embed_tokens", "transformer.wte"},
                      {"model.embed_positions", "transformer.wpe"},
                      {"model.layers.*.self_attn.q_proj", "transformer.h.*.attn.attention.q_proj"},
                      {"model.layers.*.self_attn.k_proj", "transformer.h.*.attn.attention.k_proj"},
                      {"model.layers.*.self_attn.v_proj", "transformer.h.*.attn.attention.v_proj"},
                      {"model.layers.*.self_attn.out_proj", "transformer.h.*.attn.attention.out_proj"},
                      {"model.layers.*.self_attn_layer_norm", "transformer.h.*.ln_1"},
                      {"model.layers.*.final_layer_norm", "transformer.h.*.ln_2"},
                      {"model.layers.*.fc1", "transformer.h.*.mlp.c_fc"},
                      {"model.layers.*.fc2", "transformer.h.*.mlp.c_proj"},
                      {"model.layer_norm", "transformer.ln_f"},
                      {"lm_head", "lm_head"}},
          .heads = decoder_heads("classifier"),
          .prefix = "transformer.",
          .copies = {"*.attn.attention.bias", "*.attn.attention.masked_bias"}};
}

// -- with ALiBi

C alibi_defaults(const char* type, std::int64_t vocabulary, std::int64_t dim, std::int64_t layers,
                 std::int64_t heads) {
  C defaults = gpt_defaults(type, vocabulary, dim, layers, heads);
  defaults.learned_positions = false;
  defaults.alibi = true;
  return defaults;
}

// A head's rows of q, k and v stand side by side in one tensor.
Family bloom() {
  C defaults = alibi_defaults("bloom", 250880, 64, 2, 8);
  defaults.activation = Activation::gelu_tanh;
  defaults.query_bias = defaults.embedding_norm = true;
  defaults.positions = most_positions;  // ALiBi has no end
  defaults.eos_ids = {2};
  return {
      .defaults = defaults,
      .classes = decoder_classes_with_answers("Bloom"),
      .fields = {{"vocab_size", SizeField{&C::vocabulary, most_vocabulary}},
                 {"hidden_size", SizeField{&C::dim, most_dim}},
                 {"n_embed", SizeField{&C::dim, most_dim}},  // of the published files; it wins
                 {"n_layer", SizeField{&C::layers, most_layers}},
                 {"num_hidden_layers", SizeField{&C::layers, most_layers}},
                 {"n_head", SizeField{&C::heads, most_dim}},
                 {"num_attention_heads", SizeField{&C::heads, most_dim}},
                 {"n_inner", FixedField{"null"}},  // transformers has four times the width always
                 {"layer_norm_epsilon", NumberField{&C::norm_epsilon}},
                 {"apply_residual_connection_post_layernorm", FixedField{"false"}},
                 {"tie_word_embeddings", FlagField{&C::tied}},
                 {"hidden_dropout", NoEffect{}},
                 // The same numbers, in another order of sums.
                 {"slow_but_exact", NoEffect{}},
                 // Of the published files, which no release reads.
                 {"attention_softmax_in_fp32", NoEffect{}},
                 {"bias_dropout_fusion", NoEffect{}},
                 {"masked_softmax_fusion", NoEffect{}},
                 {"offset_alibi", NoEffect{}},
                 {"seq_length", NoEffect{}},
                 {"skip_bias_add", NoEffect{}},
                 {"skip_bias_add_qkv", NoEffect{}}},
      .tensors = joined(bloom_tensors(Layout::by_head),
                        {{"model.layernorm_embedding", "transformer.word_embeddings_layernorm"},
                         {"model.layers.*.final_layer_norm", "transformer.h.*.post_attention_layernorm"}}),
      .heads = decoder_heads("classifier"),
      .prefix = "transformer."};
}

// With alibi_bias_max 8 the slopes are those of alibi_slopes for any number of heads.
void read_mpt_attention(ConfigReader& reader, C& config) {
  const nlohmann::json* object = reader.find("attn_config");
  if (!object) return;
  if (!object->is_object()) return reader.refuse("attn_config", "an object", *object);
  constexpr std::pair<const char*, const char*> fixed[] = {{"attn_type", "\"multihead_attention\""},
                                                           {"is_encoder_decoder", "false"},
                                                           {"clip_qkv", "null"},
                                                           {"prefix_lm", "false"},
                                                           {"qk_ln", "false"},
                                                           {"attn_uses_sequence_id", "false"},
                                                           {"alibi", "true"},
                                                           {"alibi_bias_max", "8"}};
  std::vector<std::string_view> known{"attn_impl", "attn_pdrop", "softmax_scale"};
  for (const auto& [key, value] : fixed) {
    known.push_back(key);
    const auto found = object->find(key);
    if (found != object->end() && !found->is_null() && *found != nlohmann::json::parse(value))
      reader.refuse(std::string("attn_config.") + key, value, *found);
  }
  const auto scale = object->find("softmax_scale");
  if (scale != object->end() && !scale->is_null())
    config.score_factor = reader.positive("attn_config.softmax_scale", *scale);
  nlohmann::json others = *object;  // nested configs of transformers have the keys that any config has
  for (const auto& [key, value] : object->items()) {
    if (is_without_effect(key)) others.erase(key);
  }
  reader.refuse_others(others, "attn_config.", known);
}

// Layer norms without a bias, and no biases elsewhere.
Family mpt() {
  C defaults = alibi_defaults("mpt", 50368, 2048, 24, 16);
  defaults.activation = Activation::gelu;
  defaults.norm_bias = defaults.output_bias = defaults.mlp_bias = false;
  return {.defaults = defaults,
          // The published configs spell the class in capitals.
          .classes = joined(decoder_classes_with_answers("Mpt"), {{"MPTForCausalLM", FamilyHead::language}}),
          .fields = {{"vocab_size", SizeField{&C::vocabulary, most_vocabulary}},
                     {"d_model", SizeField{&C::dim, most_dim}},
                     {"n_layers", SizeField{&C::layers, most_layers}},
                     {"n_heads", SizeField{&C::heads, most_dim}},
                     {"expansion_ratio", FixedField{"4"}},
                     {"layer_norm_epsilon", NumberField{&C::norm_epsilon}},
                     // With 1 transformers broadcasts its one bias over any length. With more it refuses
                     // longer sequences.
                     {"max_seq_len", SizeField{&C::positions, most_positions, 2}},
                     {"attn_config", read_mpt_attention},
                     {"no_bias", FixedField{"true"}},
                     {"logit_scale", FixedField{"null"}},
                     {"tie_word_embeddings", FlagField{&C::tied}},
                     {"emb_pdrop", NoEffect{}},
                     {"embedding_fraction", NoEffect{}},
                     // Of the published files, which transformers does not read.
                     {"init_config", NoEffect{}},
                     {"init_device", NoEffect{}},
                     {"learned_pos_emb", NoEffect{}},
                     {"norm_type", NoEffect{}},
                     {"tokenizer_name", NoEffect{}},
                     {"verbose", NoEffect{}}},
          .tensors = {{"model.embed_tokens", "transformer.wte"},
                      {"model.layers.*.self_attn.q_proj", "transformer.blocks.*.attn.Wqkv"},
                      {"model.layers.*.self_attn.k_proj", "transformer.blocks.*.attn.Wqkv"},
                      {"model.layers.*.self_attn.v_proj", "transformer.blocks.*.attn.Wqkv"},
                      {"model.layers.*.self_attn.out_proj", "transformer.blocks.*.attn.out_proj"},
                      {"model.layers.*.self_attn_layer_norm", "transformer.blocks.*.norm_1"},
                      {"model.layers.*.final_layer_norm", "transformer.blocks.*.norm_2"},
                      {"model.layers.*.fc1", "transformer.blocks.*.ffn.up_proj"},
                      {"model.layers.*.fc2", "transformer.blocks.*.ffn.down_proj"},
                      {"model.layer_norm", "transformer.norm_f"},
                      {"lm_head", "lm_head"}},
          .heads = decoder_heads("classifier"),
          .prefix = "transformer."};
}

}  // namespace

std::vector<Family> gpt2_families() {
  return {gpt2(), gpt_bigcode(), gpt_neo(), bloom(), mpt()};
}

}  // namespace fovea::models
