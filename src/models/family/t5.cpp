// T5 and its descendants. Facts and names: transformers 5.23, and its older forms.
#include <string>

#include "models/family/translator_heads.h"

namespace fovea::models {

std::vector<HeadRow> translator_heads() {
  return {{FamilyHead::sequence_labels,
           {.pooling = SentencePooling::Kind::last,
            .at_eos = true,
            .dense = true,
            .activation = autograd::Activation::tanh},
           {{"head.dense", "classification_head.dense"}, {"head.output", "classification_head.out_proj"}}},
          {FamilyHead::answer, {}, {{"head.output", "qa_outputs"}}}};
}

namespace {

using autograd::Activation;
using Layout = TensorRule::Layout;
using C = FamilyConfig;

// "relu", "gated-gelu", "gated-silu"; the gelu of a gate is the approximation with tanh.
void read_feed_forward(ConfigReader& reader, C& config) {
  // Written since transformers 4.20; they follow from feed_forward_proj.
  const nlohmann::json *function = reader.find("dense_act_fn"), *gate = reader.find("is_gated_act");
  const nlohmann::json usual = config.gated ? "gated-gelu" : "relu";  // of mT5 and of T5
  const nlohmann::json* value = reader.find("feed_forward_proj");
  if (!value) value = &usual;
  std::string name = value->is_string() ? value->get<std::string>() : "";
  constexpr std::string_view gated = "gated-";
  config.gated = name.starts_with(gated);
  if (config.gated) name.erase(0, gated.size());
  if (config.gated && name == "gelu") name = "gelu_new";
  if (const auto activation = activation_of(name))
    config.activation = *activation;
  else
    reader.refuse("feed_forward_proj", "an activation, or gated- and an activation", *value);
  if (function &&
      (!function->is_string() || activation_of(function->get<std::string>()) != config.activation))
    reader.refuse("dense_act_fn", "the activation of feed_forward_proj, " + name, *function);
  if (gate && *gate != config.gated)
    reader.refuse("is_gated_act",
                  std::string("what feed_forward_proj says, ") + (config.gated ? "true" : "false"), *gate);
}

// The key of today, or else that of the releases before: T5 1.1 has tie_word_embeddings false.
void read_output_scale(ConfigReader& reader, C& config) {
  const nlohmann::json* today = reader.find("scale_decoder_outputs");
  const nlohmann::json* before = reader.find("tie_word_embeddings");
  for (const auto& [key, value] :
       {std::pair{"scale_decoder_outputs", today}, {"tie_word_embeddings", before}}) {
    if (value && !value->is_boolean()) reader.refuse(key, "true or false", *value);
  }
  config.scale_output = today ? *today == true : !before || *before == true;
}

constexpr std::string_view encoder_table =
                               "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
                           decoder_table =
                               "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight";

Family t5() {
  C defaults;
  defaults.model_type = "t5";
  defaults.kind = FamilyKind::translator;
  defaults.vocabulary = 32128;
  defaults.dim = 512;
  defaults.head_dim = 64;
  defaults.feed_forward = 2048;
  defaults.layers = 6;
  defaults.heads = 8;
  defaults.positions = most_positions;
  defaults.norm_epsilon = 1e-6;
  defaults.gated = false;
  defaults.activation = Activation::relu;
  defaults.scale_scores = false;
  defaults.head_layers.bias = false;
  defaults.rotary = false;
  defaults.relative_buckets = 32;
  defaults.pad_id = 0;
  defaults.eos_ids = {1};
  Family family{
      .defaults = defaults,
      .classes = {{"T5ForConditionalGeneration", FamilyHead::language},
                  {"T5WithLMHeadModel", FamilyHead::language},
                  {"T5Model"},
                  {.name = "T5EncoderModel", .encoder_alone = true, .unused = "decoder.*"},
                  {"T5ForSequenceClassification", FamilyHead::sequence_labels, "transformer."},
                  {"T5ForQuestionAnswering", FamilyHead::answer}},
      .fields = {{"vocab_size", SizeField{&C::vocabulary, most_vocabulary}},
                 {"d_model", SizeField{&C::dim, most_dim}},
                 {"d_kv", SizeField{&C::head_dim, most_dim}},
                 {"d_ff", SizeField{&C::feed_forward, most_dim}},
                 {"num_layers", SizeField{&C::layers, most_layers}},
                 {"num_decoder_layers", SizeField{&C::decoder_layers, most_layers}},
                 {"num_heads", SizeField{&C::heads, most_dim}},
                 {"relative_attention_num_buckets", SizeField{&C::relative_buckets, most_dim, 4}},
                 {"relative_attention_max_distance", SizeField{&C::relative_distance, most_positions, 4}},
                 {"layer_norm_epsilon", NumberField{&C::norm_epsilon}},
                 {"feed_forward_proj", read_feed_forward},
                 {"scale_decoder_outputs", read_output_scale},
                 {"decoder_start_token_id", OptionalSizeField{&C::start_id, most_vocabulary, 0}},
                 {"dropout_rate", NoEffect{}},
                 {"n_positions", NoEffect{}}},  // the relative bias has no end
      .tensors = {{"model.shared", "shared"}, {"lm_head", "lm_head"}},
      .heads = translator_heads(),
      .prefix = "",
      .copies = {"*coder.embed_tokens.weight",
                 "*decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"}};
  family.tensors = joined(
      family.tensors,
      {{"model.encoder.layers.*.self_attn.q_proj", "encoder.block.*.layer.0.SelfAttention.q"},
       {"model.encoder.layers.*.self_attn.k_proj", "encoder.block.*.layer.0.SelfAttention.k"},
       {"model.encoder.layers.*.self_attn.v_proj", "encoder.block.*.layer.0.SelfAttention.v"},
       {"model.encoder.layers.*.self_attn.out_proj", "encoder.block.*.layer.0.SelfAttention.o"},
       {"model.encoder.layers.*.self_attn.mods[0].table", encoder_table, Layout::bias_of_heads},
       {"model.encoder.layers.*.self_attn_layer_norm", "encoder.block.*.layer.0.layer_norm"},
       {"model.encoder.layers.*.gate", "encoder.block.*.layer.1.DenseReluDense.wi_0"},
       {"model.encoder.layers.*.fc1", "encoder.block.*.layer.1.DenseReluDense.wi_1", Layout::same, &C::gated},
       {"model.encoder.layers.*.fc1", "encoder.block.*.layer.1.DenseReluDense.wi"},
       {"model.encoder.layers.*.fc2", "encoder.block.*.layer.1.DenseReluDense.wo"},
       {"model.encoder.layers.*.final_layer_norm", "encoder.block.*.layer.1.layer_norm"},
       {"model.encoder.layer_norm", "encoder.final_layer_norm"},
       {"model.decoder.layers.*.self_attn.q_proj", "decoder.block.*.layer.0.SelfAttention.q"},
       {"model.decoder.layers.*.self_attn.k_proj", "decoder.block.*.layer.0.SelfAttention.k"},
       {"model.decoder.layers.*.self_attn.v_proj", "decoder.block.*.layer.0.SelfAttention.v"},
       {"model.decoder.layers.*.self_attn.out_proj", "decoder.block.*.layer.0.SelfAttention.o"},
       {"model.decoder.layers.*.self_attn.mods[0].table", decoder_table, Layout::bias_of_heads},
       {"model.decoder.layers.*.self_attn_layer_norm", "decoder.block.*.layer.0.layer_norm"},
       {"model.decoder.layers.*.encoder_attn.q_proj", "decoder.block.*.layer.1.EncDecAttention.q"},
       {"model.decoder.layers.*.encoder_attn.k_proj", "decoder.block.*.layer.1.EncDecAttention.k"},
       {"model.decoder.layers.*.encoder_attn.v_proj", "decoder.block.*.layer.1.EncDecAttention.v"},
       {"model.decoder.layers.*.encoder_attn.out_proj", "decoder.block.*.layer.1.EncDecAttention.o"},
       {"model.decoder.layers.*.encoder_attn_layer_norm", "decoder.block.*.layer.1.layer_norm"},
       {"model.decoder.layers.*.gate", "decoder.block.*.layer.2.DenseReluDense.wi_0"},
       {"model.decoder.layers.*.fc1", "decoder.block.*.layer.2.DenseReluDense.wi_1", Layout::same, &C::gated},
       {"model.decoder.layers.*.fc1", "decoder.block.*.layer.2.DenseReluDense.wi"},
       {"model.decoder.layers.*.fc2", "decoder.block.*.layer.2.DenseReluDense.wo"},
       {"model.decoder.layers.*.final_layer_norm", "decoder.block.*.layer.2.layer_norm"},
       {"model.decoder.layer_norm", "decoder.final_layer_norm"}});
  return family;
}

// The published configs say that the output matrix is the model's own, and transformers ties it all the same,
// unless the file has one. Nothing is scaled.
void pass_over_tying(ConfigReader& reader, C&) {
  const nlohmann::json* value = reader.find("tie_word_embeddings");
  if (value && !value->is_boolean()) reader.refuse("tie_word_embeddings", "true or false", *value);
}

Family mt5() {
  Family family = t5();
  C& defaults = family.defaults;
  defaults.model_type = "mt5";
  defaults.vocabulary = 250112;
  defaults.feed_forward = 1024;
  defaults.layers = 8;
  defaults.heads = 6;
  defaults.gated = true;
  defaults.activation = Activation::gelu_tanh;
  defaults.start_id = 0;
  family.classes = {{"MT5ForConditionalGeneration", FamilyHead::language},
                    {"MT5Model"},
                    {.name = "MT5EncoderModel", .encoder_alone = true, .unused = "decoder.*"},
                    {"MT5ForSequenceClassification", FamilyHead::sequence_labels, "transformer."},
                    {"MT5ForQuestionAnswering", FamilyHead::answer}};
  for (Field& field : family.fields) {
    if (field.key == "scale_decoder_outputs") field = {"tie_word_embeddings", pass_over_tying};
  }
  return family;
}

// mT5 with a table of relative positions in each layer. transformers 5.23 scales the rows that logits are
// made of in every UMT5, whatever tie_word_embeddings says. Its releases before 5 did so where the key is
// true.
Family umt5() {
  Family family = mt5();
  family.defaults.model_type = "umt5";
  family.defaults.relative_of_each_layer = family.defaults.scale_output = true;
  family.classes = {{"UMT5ForConditionalGeneration", FamilyHead::language},
                    {"UMT5Model"},
                    {.name = "UMT5EncoderModel", .encoder_alone = true, .unused = "decoder.*"},
                    {"UMT5ForSequenceClassification", FamilyHead::sequence_labels, "transformer."},
                    {"UMT5ForQuestionAnswering", FamilyHead::answer}};
  family.fields.push_back(
      {"scalable_attention", NoEffect{}});  // of the published files, which no release reads
  for (TensorRule& rule : family.tensors) {
    if (rule.theirs == encoder_table)
      rule.theirs = "encoder.block.*.layer.0.SelfAttention.relative_attention_bias.weight";
    if (rule.theirs == decoder_table)
      rule.theirs = "decoder.block.*.layer.0.SelfAttention.relative_attention_bias.weight";
  }
  return family;
}

}  // namespace

std::vector<Family> t5_families() {
  return {t5(), mt5(), umt5()};
}

}  // namespace fovea::models
