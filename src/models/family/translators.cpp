// The families that read one sequence and write another. Facts and names: transformers 5.23, and its older
// forms.
#include <string>

#include "models/family/translator_heads.h"

namespace fovea::models {
namespace {

using autograd::Activation;
using nn::NormPlace;
using nn::NormSpec;
using Layout = TensorRule::Layout;
using C = FamilyConfig;

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

// Keys of the first files that say where norms are, which have one value in each family.
std::vector<Field> norm_places(const char* before, const char* of_embeddings) {
  return {{"normalize_before", FixedField{before}},
          {"normalize_embedding", FixedField{of_embeddings}},
          {"add_final_layer_norm", FixedField{before}}};
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
          .fields = joined(joined(bart_fields(), norm_places("false", "true")),
                           {{"static_position_embeddings", FixedField{"false"}}}),
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
          .fields = joined(joined(bart_fields(), norm_places("true", "true")),
                           {{"static_position_embeddings", FixedField{"false"}}}),
          .tensors = bart_tensors(),
          .heads = translator_heads(),
          .prefix = "model.",
          .copies = {"*.embed_tokens.weight"}};
}

// Another name of encoder_layers in transformers.
void read_hidden_layers(ConfigReader& reader, C& config) {
  const nlohmann::json* layers = reader.find("num_hidden_layers");
  if (layers && *layers != config.layers)
    reader.refuse("num_hidden_layers", "the encoder_layers, " + std::to_string(config.layers), *layers);
}

// BART whose embeddings are scaled, and whose decoder begins as mBART's.
Family plbart() {
  C defaults = bart_defaults("plbart", 50005);
  defaults.dim = 768;
  defaults.layers = defaults.decoder_layers = 6;
  defaults.heads = defaults.decoder_heads = 12;
  defaults.feed_forward = defaults.decoder_feed_forward = 3072;
  defaults.scale_embedding = true;
  defaults.starts_with_last = true;
  return {.defaults = defaults,
          .classes = {{"PLBartForConditionalGeneration", FamilyHead::language},
                      {"PLBartModel"},
                      {"PLBartForSequenceClassification", FamilyHead::sequence_labels}},
          .fields = joined(joined(bart_fields(), norm_places("false", "true")),
                           {{"num_hidden_layers", read_hidden_layers},
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
          .fields = joined(joined(bart_fields(), norm_places("false", "false")),
                           {{"static_position_embeddings", FixedField{"true"}},
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
  family.fields = joined(joined(bart_fields(), norm_places("true", "false")),
                         {// Whatever made the table, it is in the file.
                          {"static_position_embeddings", NoEffect{}}});
  family.heads = {};
  return family;
}

// M2M-100 and NLLB. Positions are counted from pad_token_id + 1.
void read_m2m_positions(ConfigReader& reader, C& config) {
  const std::int64_t pad = read_padding(reader, config);
  if (pad > config.positions + 1)
    reader.refuse("pad_token_id", "at most max_position_embeddings + 1", std::to_string(pad));
  read_hidden_layers(reader, config);
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
  family.fields =
      joined(joined(bart_fields(), norm_places("true", "false")),
             {{"pad_token_id", read_m2m_positions}, {"static_position_embeddings", FixedField{"true"}}});
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

}  // namespace

std::vector<Family> translator_families() {
  return {bart(), mbart(), plbart(), marian(), pegasus(), blenderbot(), m2m_100()};
}

}  // namespace fovea::models
