#include "models/family/encoder_parts.h"

#include <deque>
#include <utility>

namespace fovea::models {

using autograd::Activation;
using nn::NormPlace;
using nn::NormSpec;
using Layout = TensorRule::Layout;
using C = FamilyConfig;

std::vector<ClassRow> encoder_classes(const std::string& name) {
  return {{name + "Model"},
          {name + "ForMaskedLM", FamilyHead::masked},
          {name + "ForSequenceClassification", FamilyHead::sequence_labels},
          {name + "ForTokenClassification", FamilyHead::token_labels},
          {name + "ForQuestionAnswering", FamilyHead::answer}};
}

std::vector<HeadRow> heads_of_rows() {
  return {{FamilyHead::token_labels, {}, {{"head.output", "classifier"}}},
          {FamilyHead::answer, {}, {{"head.output", "qa_outputs"}}}};
}

HeadRow masked_head(std::optional<Activation> activation, std::vector<TensorRule> tensors) {
  return {FamilyHead::masked, {.dense = true, .activation = activation, .norm = true}, std::move(tensors)};
}

HeadRow first_row_head(std::optional<Activation> activation, std::vector<TensorRule> tensors) {
  return {FamilyHead::sequence_labels,
          {.pooling = SentencePooling::Kind::first, .dense = true, .activation = activation},
          std::move(tensors)};
}

std::vector<TensorRule> layer_tensors(const std::vector<std::string_view>& theirs) {
  constexpr std::string_view ours[] = {"self_attn.q_proj",
                                       "self_attn.k_proj",
                                       "self_attn.v_proj",
                                       "self_attn.out_proj",
                                       "self_attn_layer_norm",
                                       "fc1",
                                       "fc2",
                                       "final_layer_norm"};
  static const std::vector<std::string> names = [&] {
    std::vector<std::string> list;
    for (const std::string_view name : ours) list.push_back("encoder.layers.*." + std::string(name));
    return list;
  }();
  std::vector<TensorRule> rules;
  for (std::size_t i = 0; i < theirs.size(); ++i) rules.push_back({names[i], theirs[i]});
  return rules;
}

C bert_defaults() {
  C config;
  config.model_type = "bert";
  config.kind = FamilyKind::encoder;
  config.vocabulary = 30522;
  config.dim = 768;
  config.feed_forward = 3072;
  config.layers = config.heads = 12;
  config.positions = 512;
  config.token_types = 2;
  config.norm = NormSpec::Kind::layer;
  config.norm_epsilon = 1e-12;
  config.norm_place = NormPlace::post;
  config.embedding_norm = true;
  config.gated = false;
  config.activation = Activation::gelu;
  config.query_bias = config.output_bias = config.mlp_bias = true;
  config.learned_positions = true;
  config.rotary = false;
  config.pad_id = 0;
  return config;
}

std::vector<Field> bert_fields() {
  return joined(size_fields(), {{"intermediate_size", SizeField{&C::feed_forward, most_dim}},
                                {"layer_norm_eps", NumberField{&C::norm_epsilon}},
                                {"hidden_act", ActivationField{&C::activation}},
                                {"position_embedding_type", FixedField{"\"absolute\""}}});
}

Field token_types() {
  return {"type_vocab_size", SizeField{&C::token_types, most_dim}};
}

std::vector<TensorRule> bert_tensors(const std::string& prefix) {
  static std::deque<std::string> names;  // rules are views, and the table of families lives as long
  const auto name = [&](const char* theirs) -> std::string_view {
    return names.emplace_back(prefix + theirs);
  };
  return joined(
      layer_tensors(
          {name("encoder.layer.*.attention.self.query"), name("encoder.layer.*.attention.self.key"),
           name("encoder.layer.*.attention.self.value"), name("encoder.layer.*.attention.output.dense"),
           name("encoder.layer.*.attention.output.LayerNorm"), name("encoder.layer.*.intermediate.dense"),
           name("encoder.layer.*.output.dense"), name("encoder.layer.*.output.LayerNorm")}),
      {{"embed_tokens", name("embeddings.word_embeddings")},
       {"embed_types", name("embeddings.token_type_embeddings")},
       {"encoder.embed_positions", name("embeddings.position_embeddings")},
       {"encoder.layernorm_embedding", name("embeddings.LayerNorm")}});
}

std::vector<TensorRule> bert_masked_tensors() {
  return {
      {"head.dense", "cls.predictions.transform.dense"},
      {"head.norm", "cls.predictions.transform.LayerNorm"},
      {"head.output.weight", "cls.predictions.decoder.weight"},
      {"head.output.bias", "cls.predictions.bias", Layout::same, nullptr, "cls.predictions.decoder.bias"}};
}

std::vector<HeadRow> bert_heads(std::string_view pooler) {
  return joined(heads_of_rows(),
                {masked_head({}, bert_masked_tensors()),
                 first_row_head(Activation::tanh, {{"head.dense", pooler}, {"head.output", "classifier"}})});
}

void read_embedding_size(ConfigReader& reader, C& config) {
  if (const nlohmann::json* value = reader.find("embedding_size")) {
    if (const auto read = reader.size("embedding_size", *value, 1, most_dim)) config.embedding_dim = *read;
  }
}

void read_embedding_size_or_none(ConfigReader& reader, C& config) {
  read_embedding_size(reader, config);
  if (config.embedding_dim == config.dim) config.embedding_dim.reset();
}

void read_rows_behind_padding(ConfigReader& reader, C& config) {
  const std::int64_t pad = read_padding(reader, config);
  config.pad_id = pad;
  config.first_position_row = pad + 1;
  if (config.positions > pad + 1)
    config.positions -= pad + 1;
  else
    reader.refuse("max_position_embeddings",
                  "more than pad_token_id + 1, which is " + std::to_string(pad + 1),
                  std::to_string(config.positions));
}

C roberta_defaults(const char* type, std::int64_t vocabulary) {
  C defaults = bert_defaults();
  defaults.model_type = type;
  defaults.vocabulary = vocabulary;
  defaults.pad_id = 1;
  defaults.eos_ids = {2};
  return defaults;
}

std::vector<HeadRow> roberta_heads() {
  return joined(
      heads_of_rows(),
      {masked_head(Activation::gelu,
                   {{"head.dense", "lm_head.dense"},
                    {"head.norm", "lm_head.layer_norm"},
                    {"head.output.weight", "lm_head.decoder.weight"},
                    {"head.output.bias", "lm_head.bias", Layout::same, nullptr, "lm_head.decoder.bias"}}),
       first_row_head(Activation::tanh,
                      {{"head.dense", "classifier.dense"}, {"head.output", "classifier.out_proj"}})});
}

}  // namespace fovea::models
