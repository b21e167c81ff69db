// The families that read one sequence and write another. Facts and names: transformers 5.23, and its older
// forms.
#include <string>

#include "models/family/row.h"

namespace fovea::models {
namespace {

using autograd::Activation;
using nn::NormPlace;
using nn::NormSpec;
using Layout = TensorRule::Layout;
using C = FamilyConfig;

// A translator's heads read the rows of its decoder, labels the one at the end of the text.
std::vector<HeadRow> translator_heads() {
  return {{FamilyHead::sequence_labels,
           {.pooling = SentencePooling::Kind::last,
            .at_eos = true,
            .dense = true,
            .activation = Activation::tanh},
           {{"head.dense", "classification_head.dense"}, {"head.output", "classification_head.out_proj"}}},
          {FamilyHead::answer, {}, {{"head.output", "qa_outputs"}}}};
}

// -- BART and its descendants, whose names are ours

C bart_defaults(const char* type, std::int64_t vocabulary) {
  C config;
  config.model_type = type;
  config.kind = FamilyKind::translator;
  config.vocabulary = vocabulary;
  config.dim = 1024;
  config.layers = config.decoder_layers = 12;
  config.heads = config.decoder_heads = 16;
  config.feed_forward = config.decoder_feed_forward = 4096;
  config.positions = 1024;
  config.norm = NormSpec::Kind::layer;
  config.norm_epsilon = 1e-5;
  config.norm_place = NormPlace::post;
  config.embedding_norm = true;
  config.gated = false;
  config.activation = Activation::gelu;
  config.query_bias = config.output_bias = config.mlp_bias = true;
  config.head_layers.bias = true;
  config.learned_positions = true;
  config.first_position_row = 2;
  config.rotary = false;
  config.pad_id = 1;
  config.eos_ids = {2};
  return config;
}

std::vector<Field> bart_fields() {
  return {{"vocab_size", SizeField{&C::vocabulary, most_vocabulary}},
          {"d_model", SizeField{&C::dim, most_dim}},
          {"encoder_layers", SizeField{&C::layers, most_layers}},
          {"decoder_layers", SizeField{&C::decoder_layers, most_layers}},
          {"encoder_attention_heads", SizeField{&C::heads, most_dim}},
          {"decoder_attention_heads", SizeField{&C::decoder_heads, most_dim}},
          {"encoder_ffn_dim", SizeField{&C::feed_forward, most_dim}},
          {"decoder_ffn_dim", SizeField{&C::decoder_feed_forward, most_dim}},
          {"max_position_embeddings", SizeField{&C::positions, most_positions}},
          {"activation_function", ActivationField{&C::activation}},
          {"scale_embedding", FlagField{&C::scale_embedding}},
          {"tie_word_embeddings", FlagField{&C::tied}},
          {"decoder_start_token_id", OptionalSizeField{&C::start_id, most_vocabulary, 0}},
          // Of files of the first releases. encoder_layers and decoder_layers count.
          {"num_hidden_layers", NoEffect{}},
          {"classif_dropout", NoEffect{}},
          {"extra_pos_embeddings", NoEffect{}},
          {"add_bias_logits", NoEffect{}},
          {"force_bos_token_to_be_generated", NoEffect{}}};
}

std::vector<TensorRule> bart_tensors() {
  return {{"final_logits_bias", "final_logits_bias", Layout::one_row}, {"*", "*"}};
}

Family bart() {
  C defaults = bart_defaults("bart", 50265);
  defaults.start_id = 2;
  return {.defaults = defaults,
          .classes = {{"BartForConditionalGeneration", FamilyHead::language},
                      {"BartModel"},
                      {"BartForSequenceClassification", FamilyHead::sequence_labels},
                      {"BartForQuestionAnswering", FamilyHead::answer}},
          .fields = joined(bart_fields(), {{"normalize_before", FixedField{"false"}},
                                           {"normalize_embedding", FixedField{"true"}},
                                           {"add_final_layer_norm", FixedField{"false"}},
                                           {"static_position_embeddings", FixedField{"false"}}}),
          .tensors = bart_tensors(),
          .heads = translator_heads(),
          .prefix = "model.",
          .copies = {"*.embed_tokens.weight"}};
}

Family mbart() {
  C defaults = bart_defaults("mbart", 50265);
  defaults.norm_place = NormPlace::pre;
  defaults.starts_with_last = true;
  return {.defaults = defaults,
          .classes = {{"MBartForConditionalGeneration", FamilyHead::language},
                      {"MBartModel"},
                      {"MBartForSequenceClassification", FamilyHead::sequence_labels},
                      {"MBartForQuestionAnswering", FamilyHead::answer}},
          .fields = joined(bart_fields(), {{"normalize_before", FixedField{"true"}},
                                           {"normalize_embedding", FixedField{"true"}},
                                           {"add_final_layer_norm", FixedField{"true"}},
                                           {"static_position_embeddings", FixedField{"false"}}}),
          .tensors = bart_tensors(),
          .heads = translator_heads(),
          .prefix = "model.",
          .copies = {"*.embed_tokens.weight"}};
}

// One table serves both sides.
void read_decoder_vocabulary(ConfigReader& reader, C& config) {
  const nlohmann::json* value = reader.find("decoder_vocab_size");
  if (value && *value != config.vocabulary)
    reader.refuse("decoder_vocab_size", "the vocab_size, " + std::to_string(config.vocabulary), *value);
}

Family marian() {
  C defaults = bart_defaults("marian", 58101);
  defaults.embedding_norm = false;
  defaults.learned_positions = false;
  defaults.first_position_row = 0;
  defaults.sinusoidal = true;
  defaults.pad_id = 58100;
  defaults.eos_ids = {0};
  return {.defaults = defaults,
          .classes = {{"MarianMTModel", FamilyHead::language}, {"MarianModel"}},
          .fields = joined(bart_fields(), {{"normalize_before", FixedField{"false"}},
                                           {"normalize_embedding", FixedField{"false"}},
                                           {"add_final_layer_norm", FixedField{"false"}},
                                           {"static_position_embeddings", FixedField{"true"}},
                                           {"share_encoder_decoder_embeddings", FixedField{"true"}},
                                           {"decoder_vocab_size", read_decoder_vocabulary}}),
          .tensors = bart_tensors(),
          .prefix = "model.",
          .copies = {"*.embed_tokens.weight", "*.embed_positions.weight"}};
}

// As mBART, with a plain table of positions and no norm of embeddings. The table is one of sinusoids that the
// file has, in its own type.
Family pegasus() {
  Family family = mbart();
  C& defaults = family.defaults;
  defaults.model_type = "pegasus";
  defaults.embedding_norm = false;
  defaults.first_position_row = 0;
  defaults.starts_with_last = false;
  defaults.start_id = 0;
  defaults.pad_id = 0;
  defaults.eos_ids = {1};
  family.classes = {{"PegasusForConditionalGeneration", FamilyHead::language}, {"PegasusModel"}};
  family.fields = joined(bart_fields(), {{"normalize_before", FixedField{"true"}},
                                         {"normalize_embedding", FixedField{"false"}},
                                         {"add_final_layer_norm", FixedField{"true"}},
                                         // Whatever made the table, it is in the file.
                                         {"static_position_embeddings", NoEffect{}}});
  family.heads = {};
  return family;
}

// M2M-100 and NLLB. Positions are counted from pad_token_id + 1.
void read_m2m_positions(ConfigReader& reader, C& config) {
  const std::int64_t pad = read_padding(reader, config);
  if (pad > config.positions + 1)
    reader.refuse("pad_token_id", "at most max_position_embeddings + 1", std::to_string(pad));
  // transformers takes this for another name of encoder_layers.
  const nlohmann::json* layers = reader.find("num_hidden_layers");
  if (layers && *layers != config.layers)
    reader.refuse("num_hidden_layers", "the encoder_layers, " + std::to_string(config.layers), *layers);
  // Padding has no position: a decoder that begins with it would count from the second id on.
  if (config.start_id == pad)
    reader.refuse("pad_token_id", "another id than the decoder_start_token_id", std::to_string(pad));
  set_fairseq_sines(reader, config, "d_model", pad + 1);
}

Family m2m_100() {
  Family family = mbart();
  C& defaults = family.defaults;
  defaults.model_type = "m2m_100";
  defaults.vocabulary = 128112;
  defaults.activation = Activation::relu;
  defaults.embedding_norm = false;
  defaults.head_layers.bias = false;
  defaults.scale_embedding = true;
  defaults.starts_with_last = false;
  defaults.start_id = 2;
  family.classes = {{"M2M100ForConditionalGeneration", FamilyHead::language}, {"M2M100Model"}};
  family.fields = joined(bart_fields(), {{"pad_token_id", read_m2m_positions},
                                         // Of the first files, which have one value of each alone.
                                         {"normalize_before", FixedField{"true"}},
                                         {"normalize_embedding", FixedField{"false"}},
                                         {"add_final_layer_norm", FixedField{"true"}},
                                         {"static_position_embeddings", FixedField{"true"}}});
  family.tensors = {{"*", "*"}};
  family.heads = {};
  family.copies = {"*.embed_tokens.weight", "*.embed_positions.weights"};
  return family;
}

Family blenderbot() {
  Family family = pegasus();
  C& defaults = family.defaults;
  defaults.model_type = "blenderbot";
  defaults.vocabulary = 8008;
  defaults.dim = 2560;
  defaults.layers = 2;
  defaults.decoder_layers = 24;
  defaults.heads = defaults.decoder_heads = 32;
  defaults.feed_forward = defaults.decoder_feed_forward = 10240;
  defaults.positions = 128;
  defaults.start_id = 1;
  defaults.eos_ids = {2};
  family.classes = {{"BlenderbotForConditionalGeneration", FamilyHead::language}, {"BlenderbotModel"}};
  // Of published files, which no release of transformers 5 reads.
  family.fields = joined(family.fields, {{"layernorm_variant", FixedField{"\"prelayernorm\""}},
                                         {"extra_layer_norm", FixedField{"false"}},
                                         {"do_blenderbot_90_layernorm", NoEffect{}}});
  return family;
}

// -- T5

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

std::vector<Family> translator_families() {
  return {t5(), mt5(), umt5(), bart(), mbart(), marian(), pegasus(), blenderbot(), m2m_100()};
}

}  // namespace fovea::models
