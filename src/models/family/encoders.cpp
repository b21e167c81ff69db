// The families that read both ways. Facts and names: transformers 5.23, and its older forms.
#include <deque>
#include <string>

#include "models/family/row.h"

namespace fovea::models {
namespace {

using autograd::Activation;
using nn::NormPlace;
using nn::NormSpec;
using Layout = TensorRule::Layout;
using C = FamilyConfig;

// The classes that each of these families has.
std::vector<ClassRow> classes_of(const std::string& name) {
  return {{name + "Model"},
          {name + "ForMaskedLM", FamilyHead::masked},
          {name + "ForSequenceClassification", FamilyHead::sequence_labels},
          {name + "ForTokenClassification", FamilyHead::token_labels},
          {name + "ForQuestionAnswering", FamilyHead::answer}};
}

// One matrix over the rows: labels of ids, and answers.
std::vector<HeadRow> heads_of_rows() {
  return {{FamilyHead::token_labels, {}, {{"head.output", "classifier"}}},
          {FamilyHead::answer, {}, {{"head.output", "qa_outputs"}}}};
}

HeadRow masked_head(std::optional<Activation> activation, std::vector<TensorRule> tensors) {
  return {FamilyHead::masked, {.dense = true, .activation = activation, .norm = true}, std::move(tensors)};
}

// The row of the first id.
HeadRow first_row_head(Activation activation, std::vector<TensorRule> tensors) {
  return {FamilyHead::sequence_labels,
          {.pooling = SentencePooling::Kind::first, .dense = true, .activation = activation},
          std::move(tensors)};
}

// BERT's values; its descendants change some of them.
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

const Field token_types{"type_vocab_size", SizeField{&C::token_types, most_dim}};

// The tensors of a block, for their names in the order of ours below.
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

// BERT's own tensors, below a prefix such as "roberta.".
std::vector<TensorRule> bert_tensors(const std::string& prefix) {
  static std::deque<std::string> names;  // rules are views, and the table of families lives as long
  std::vector<TensorRule> rules;
  for (const auto& [ours, theirs] : std::initializer_list<std::pair<std::string_view, const char*>>{
           {"encoder.layers.*.self_attn.q_proj", "encoder.layer.*.attention.self.query"},
           {"encoder.layers.*.self_attn.k_proj", "encoder.layer.*.attention.self.key"},
           {"encoder.layers.*.self_attn.v_proj", "encoder.layer.*.attention.self.value"},
           {"encoder.layers.*.self_attn.out_proj", "encoder.layer.*.attention.output.dense"},
           {"encoder.layers.*.self_attn_layer_norm", "encoder.layer.*.attention.output.LayerNorm"},
           {"encoder.layers.*.fc1", "encoder.layer.*.intermediate.dense"},
           {"encoder.layers.*.fc2", "encoder.layer.*.output.dense"},
           {"encoder.layers.*.final_layer_norm", "encoder.layer.*.output.LayerNorm"},
           {"embed_tokens", "embeddings.word_embeddings"},
           {"embed_types", "embeddings.token_type_embeddings"},
           {"encoder.embed_positions", "embeddings.position_embeddings"},
           {"encoder.layernorm_embedding", "embeddings.LayerNorm"}})
    rules.push_back({ours, names.emplace_back(prefix + theirs)});
  return rules;
}

Family bert() {
  return {.defaults = bert_defaults(),
          .classes = joined(classes_of("Bert"), {{"BertForPreTraining", FamilyHead::masked}}),
          // The pooler of the multilingual models has more numbers, and is not computed.
          .fields = joined(bert_fields(), {token_types,
                                           {"directionality", FixedField{"\"bidi\""}},
                                           {"pooler_fc_size", NoEffect{}},
                                           {"pooler_num_attention_heads", NoEffect{}},
                                           {"pooler_num_fc_layers", NoEffect{}},
                                           {"pooler_size_per_head", NoEffect{}},
                                           {"pooler_type", NoEffect{}}}),
          .tensors = bert_tensors("bert."),
          .heads = joined(heads_of_rows(),
                          {masked_head({}, {{"head.dense", "cls.predictions.transform.dense"},
                                            {"head.norm", "cls.predictions.transform.LayerNorm"},
                                            {"head.output.weight", "cls.predictions.decoder.weight"},
                                            {"head.output.bias", "cls.predictions.bias", Layout::same,
                                             nullptr, "cls.predictions.decoder.bias"}}),
                           first_row_head(Activation::tanh, {{"head.dense", "bert.pooler.dense"},
                                                             {"head.output", "classifier"}})}),
          .prefix = "bert.",
          // Labels of sequences alone read the pooler; seq_relationship is a head of its own.
          .unused = {"*pooler.*", "cls.seq_relationship.*", "cls.predictions.bias"}};
}

// The position of a row is counted from pad_token_id + 1, and so many rows of the table are free.
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

// RoBERTa's and MPNet's. The activation of the masked head is gelu, whatever the blocks have.
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

Family roberta() {
  return {.defaults = roberta_defaults("roberta", 50265),
          .classes = classes_of("Roberta"),
          .fields = joined(bert_fields(), {token_types, {"pad_token_id", read_rows_behind_padding}}),
          .tensors = bert_tensors("roberta."),
          .heads = roberta_heads(),
          .prefix = "roberta.",
          .unused = {"*pooler.*", "lm_head.bias"}};
}

Family xlm_roberta() {
  Family family = roberta();
  family.defaults = roberta_defaults("xlm-roberta", 30522);
  family.classes = classes_of("XLMRoberta");
  return family;
}

Family camembert() {
  Family family = roberta();
  family.defaults = roberta_defaults("camembert", 30522);
  family.classes = classes_of("Camembert");
  return family;
}

Family data2vec_text() {
  Family family = roberta();
  family.defaults = roberta_defaults("data2vec-text", 30522);
  family.classes = classes_of("Data2VecText");
  family.tensors = bert_tensors("data2vec_text.");
  family.prefix = "data2vec_text.";
  return family;
}

// RoBERTa with norms before attention and the feed-forward part, and one behind all blocks.
Family roberta_prelayernorm() {
  Family family = roberta();
  family.defaults = roberta_defaults("roberta-prelayernorm", 50265);
  family.defaults.norm_place = NormPlace::pre;
  family.classes = classes_of("RobertaPreLayerNorm");
  family.prefix = "roberta_prelayernorm.";
  family.tensors = bert_tensors("roberta_prelayernorm.");
  std::erase_if(family.tensors, [](const TensorRule& rule) { return rule.ours.ends_with("layer_norm"); });
  family.tensors = joined(
      family.tensors,
      {{"encoder.layers.*.self_attn_layer_norm", "roberta_prelayernorm.encoder.layer.*.attention.LayerNorm"},
       {"encoder.layers.*.final_layer_norm", "roberta_prelayernorm.encoder.layer.*.intermediate.LayerNorm"},
       {"encoder.layer_norm", "roberta_prelayernorm.LayerNorm"}});
  return family;
}

Family mpnet() {
  C defaults = roberta_defaults("mpnet", 30527);
  defaults.token_types = 0;
  defaults.relative_buckets = 32;
  defaults.first_position_row = 2;  // transformers takes 1 for the padding, whatever pad_token_id says
  const ReadFunction positions = [](ConfigReader& reader, C& config) {
    if (config.positions > 2)
      config.positions -= 2;
    else
      reader.refuse("max_position_embeddings", "more than the 2 rows that are free",
                    std::to_string(config.positions));
  };
  return {.defaults = defaults,
          .classes = classes_of("MPNet"),
          .fields = joined(bert_fields(),
                           {// transformers computes 32 buckets whatever the key says.
                            {"relative_attention_num_buckets", FixedField{"32"}},
                            {"max_position_embeddings", positions}}),
          .tensors = joined(
              layer_tensors(
                  {"mpnet.encoder.layer.*.attention.attn.q", "mpnet.encoder.layer.*.attention.attn.k",
                   "mpnet.encoder.layer.*.attention.attn.v", "mpnet.encoder.layer.*.attention.attn.o",
                   "mpnet.encoder.layer.*.attention.LayerNorm", "mpnet.encoder.layer.*.intermediate.dense",
                   "mpnet.encoder.layer.*.output.dense", "mpnet.encoder.layer.*.output.LayerNorm"}),
              {{"encoder.layers.*.self_attn.mods[0].table", "mpnet.encoder.relative_attention_bias.weight",
                Layout::bias_of_heads},
               {"embed_tokens", "mpnet.embeddings.word_embeddings"},
               {"encoder.embed_positions", "mpnet.embeddings.position_embeddings"},
               {"encoder.layernorm_embedding", "mpnet.embeddings.LayerNorm"}}),
          .heads = roberta_heads(),
          .prefix = "mpnet.",
          .unused = {"*pooler.*", "lm_head.bias"}};
}

Family distilbert() {
  C defaults = bert_defaults();
  defaults.model_type = "distilbert";
  defaults.layers = 6;
  defaults.token_types = 0;
  return {
      .defaults = defaults,
      .classes = classes_of("DistilBert"),
      .fields = {{"vocab_size", SizeField{&C::vocabulary, most_vocabulary}},
                 {"dim", SizeField{&C::dim, most_dim}},
                 {"hidden_dim", SizeField{&C::feed_forward, most_dim}},
                 {"n_layers", SizeField{&C::layers, most_layers}},
                 {"n_heads", SizeField{&C::heads, most_dim}},
                 {"max_position_embeddings", SizeField{&C::positions, most_positions}},
                 {"activation", ActivationField{&C::activation}},
                 {"sinusoidal_pos_embds", NoEffect{}},  // how the saved table was made
                 {"tie_weights_", FixedField{"true"}},
                 {"tie_word_embeddings", FlagField{&C::tied}}},
      .tensors = joined(
          layer_tensors({"distilbert.transformer.layer.*.attention.q_lin",
                         "distilbert.transformer.layer.*.attention.k_lin",
                         "distilbert.transformer.layer.*.attention.v_lin",
                         "distilbert.transformer.layer.*.attention.out_lin",
                         "distilbert.transformer.layer.*.sa_layer_norm",
                         "distilbert.transformer.layer.*.ffn.lin1", "distilbert.transformer.layer.*.ffn.lin2",
                         "distilbert.transformer.layer.*.output_layer_norm"}),
          {{"embed_tokens", "distilbert.embeddings.word_embeddings"},
           {"encoder.embed_positions", "distilbert.embeddings.position_embeddings"},
           {"encoder.layernorm_embedding", "distilbert.embeddings.LayerNorm"}}),
      .heads = joined(heads_of_rows(), {masked_head({}, {{"head.dense", "vocab_transform"},
                                                         {"head.norm", "vocab_layer_norm"},
                                                         {"head.output", "vocab_projector"}}),
                                        first_row_head(Activation::relu, {{"head.dense", "pre_classifier"},
                                                                          {"head.output", "classifier"}})}),
      .prefix = "distilbert."};
}

void read_embedding_size(ConfigReader& reader, C& config) {
  if (const nlohmann::json* value = reader.find("embedding_size")) {
    if (const auto read = reader.size("embedding_size", *value, 1, most_dim)) config.embedding_dim = *read;
  }
}

// A matrix stands behind embeddings of another size than the blocks'; ALBERT has one in any case.
void read_embedding_size_or_none(ConfigReader& reader, C& config) {
  read_embedding_size(reader, config);
  if (config.embedding_dim == config.dim) config.embedding_dim.reset();
}

Family electra() {
  C defaults = bert_defaults();
  defaults.model_type = "electra";
  defaults.dim = 256;
  defaults.feed_forward = 1024;
  defaults.heads = 4;
  defaults.embedding_dim = 128;
  return {.defaults = defaults,
          // The head that says which ids a generator replaced is not computed.
          .classes = joined(classes_of("Electra"), {{"ElectraForPreTraining"}}),
          .fields = joined(bert_fields(), {token_types,
                                           {"embedding_size", read_embedding_size_or_none},
                                           {"generator_size", NoEffect{}},  // of the published files
                                           // Of multiple choice, which is not among the classes.
                                           {"summary_type", NoEffect{}},
                                           {"summary_use_proj", NoEffect{}},
                                           {"summary_activation", NoEffect{}},
                                           {"summary_last_dropout", NoEffect{}}}),
          .tensors = joined(bert_tensors("electra."), {{"encoder.project_in", "electra.embeddings_project"}}),
          .heads = joined(heads_of_rows(),
                          {masked_head(Activation::gelu, {{"head.dense", "generator_predictions.dense"},
                                                          {"head.norm", "generator_predictions.LayerNorm"},
                                                          {"head.output", "generator_lm_head"}}),
                           first_row_head(Activation::gelu, {{"head.dense", "classifier.dense"},
                                                             {"head.output", "classifier.out_proj"}})}),
          .prefix = "electra.",
          // Which ids a generator replaced.
          .unused = {"discriminator_predictions.*"}};
}

// The names of a block have no number: there is one.
Family albert() {
  C defaults = bert_defaults();
  defaults.model_type = "albert";
  defaults.vocabulary = 30000;
  defaults.dim = 4096;
  defaults.feed_forward = 16384;
  defaults.heads = 64;
  defaults.activation = Activation::gelu_tanh;
  defaults.embedding_dim = 128;
  defaults.one_block = true;
  defaults.eos_ids = {3};
  return {.defaults = defaults,
          .classes = joined(classes_of("Albert"), {{"AlbertForPreTraining", FamilyHead::masked}}),
          .fields = joined(bert_fields(), {token_types,
                                           {"embedding_size", read_embedding_size},
                                           {"num_hidden_groups", FixedField{"1"}},
                                           {"inner_group_num", FixedField{"1"}},
                                           {"classifier_dropout_prob", NoEffect{}},
                                           {"down_scale_factor", NoEffect{}},  // of the published files
                                           {"gap_size", NoEffect{}},
                                           {"layers_to_keep", FixedField{"[]"}},
                                           {"net_structure_type", NoEffect{}},
                                           {"num_memory_blocks", NoEffect{}}}),
          .tensors = joined(
              layer_tensors({"albert.encoder.albert_layer_groups.0.albert_layers.0.attention.query",
                             "albert.encoder.albert_layer_groups.0.albert_layers.0.attention.key",
                             "albert.encoder.albert_layer_groups.0.albert_layers.0.attention.value",
                             "albert.encoder.albert_layer_groups.0.albert_layers.0.attention.dense",
                             "albert.encoder.albert_layer_groups.0.albert_layers.0.attention.LayerNorm",
                             "albert.encoder.albert_layer_groups.0.albert_layers.0.ffn",
                             "albert.encoder.albert_layer_groups.0.albert_layers.0.ffn_output",
                             "albert.encoder.albert_layer_groups.0.albert_layers.0.full_layer_layer_norm"}),
              {{"embed_tokens", "albert.embeddings.word_embeddings"},
               {"embed_types", "albert.embeddings.token_type_embeddings"},
               {"encoder.embed_positions", "albert.embeddings.position_embeddings"},
               {"encoder.layernorm_embedding", "albert.embeddings.LayerNorm"},
               {"encoder.project_in", "albert.encoder.embedding_hidden_mapping_in"}}),
          .heads = joined(heads_of_rows(),
                          {masked_head({}, {{"head.dense", "predictions.dense"},
                                            {"head.norm", "predictions.LayerNorm"},
                                            {"head.output.weight", "predictions.decoder.weight"},
                                            {"head.output.bias", "predictions.bias", Layout::same, nullptr,
                                             "predictions.decoder.bias"}}),
                           first_row_head(Activation::tanh,
                                          {{"head.dense", "albert.pooler"}, {"head.output", "classifier"}})}),
          .prefix = "albert.",
          // Labels of sequences alone read the pooler; sop_classifier is a head of its own.
          .unused = {"*pooler.*", "sop_classifier.*", "predictions.bias"}};
}

// The window counts both sides together.
void read_local_attention(ConfigReader& reader, C& config) {
  if (const nlohmann::json* value = reader.find("local_attention")) {
    if (const auto read = reader.size("local_attention", *value, 2, most_positions))
      config.window = *read / 2;
  }
  std::int64_t every = 3;
  if (const nlohmann::json* value = reader.find("global_attn_every_n_layers")) {
    if (const auto read = reader.size("global_attn_every_n_layers", *value, 1, most_positions)) every = *read;
  }
  layer_types_or(reader, config, [&](std::int64_t i) { return i % every != 0; });
}

// All heads have the same layers, and the config has a say in each.
void read_modernbert_head(ConfigReader& reader, C& config) {
  HeadLayers& layers = config.head_layers;
  const auto flag = [&](const char* key, bool& to) {
    const nlohmann::json* value = reader.find(key);
    if (!value) return;
    if (!value->is_boolean()) return reader.refuse(key, "true or false", *value);
    to = value->get<bool>();
  };
  flag("classifier_bias", layers.dense_bias);
  bool logits_bias = true;
  flag("decoder_bias", logits_bias);
  if (config.head == FamilyHead::masked || config.architecture.empty()) layers.bias = logits_bias;
  if (const nlohmann::json* value = reader.find("classifier_activation")) {
    layers.activation = value->is_string() ? activation_of(value->get<std::string>()) : std::nullopt;
    if (!layers.activation) reader.refuse("classifier_activation", "the name of an activation", *value);
  }
  const nlohmann::json* pooling = reader.find("classifier_pooling");
  if (!pooling || config.head != FamilyHead::sequence_labels) return;
  if (*pooling == "mean")
    layers.pooling = SentencePooling::Kind::mean;
  else if (*pooling != "cls")
    reader.refuse("classifier_pooling", "\"cls\" or \"mean\"", *pooling);
}

std::vector<HeadRow> modernbert_heads() {
  const HeadLayers layers{.dense = true, .dense_bias = false, .activation = Activation::gelu, .norm = true};
  HeadLayers of_sequence = layers;
  of_sequence.pooling = SentencePooling::Kind::first;
  const auto tensors = [](std::string_view output) {
    return std::vector<TensorRule>{
        {"head.dense", "head.dense"}, {"head.norm", "head.norm"}, {"head.output", output}};
  };
  return {{FamilyHead::masked, layers, tensors("decoder")},
          {FamilyHead::sequence_labels, of_sequence, tensors("classifier")},
          {FamilyHead::token_labels, layers, tensors("classifier")},
          {FamilyHead::answer, layers, tensors("classifier")}};
}

Family modernbert() {
  C defaults = bert_defaults();
  defaults.model_type = "modernbert";
  defaults.vocabulary = 50368;
  defaults.feed_forward = 1152;
  defaults.layers = 22;
  defaults.positions = 8192;
  defaults.token_types = 0;
  defaults.norm_epsilon = 1e-5;
  defaults.norm_bias = false;
  defaults.norm_place = NormPlace::pre;
  defaults.first_norm = false;
  defaults.gated = true;
  defaults.query_bias = defaults.output_bias = defaults.mlp_bias = false;
  defaults.learned_positions = false;
  defaults.rotary = true;
  defaults.rope.base = 160000.0;
  defaults.window_rope = Rope{};
  defaults.window = 64;
  defaults.pad_id = 50283;
  defaults.eos_ids = {50282};
  return {.defaults = defaults,
          .classes = classes_of("ModernBert"),
          .fields = joined(
              size_fields(),
              {{"intermediate_size", SizeField{&C::feed_forward, most_dim}},
               {"hidden_activation", ActivationField{&C::activation}},
               {"norm_eps", NumberField{&C::norm_epsilon}},
               {"norm_bias", FlagField{&C::norm_bias}},
               {"attention_bias", read_attention_bias},
               {"mlp_bias", FlagField{&C::mlp_bias}},
               {"classifier_bias", read_modernbert_head},
               {"local_attention", read_local_attention},
               {"rope_parameters", read_rope_by_layer},
               // BERT's keys, which this family writes and does not read, and ways to compute the same.
               {"layer_norm_eps", NoEffect{}},
               {"position_embedding_type", NoEffect{}},
               {"deterministic_flash_attn", NoEffect{}},
               {"reference_compile", NoEffect{}},
               {"repad_logits_with_grad", NoEffect{}}}),
          .tensors = {{"embed_tokens", "model.embeddings.tok_embeddings"},
                      {"encoder.layernorm_embedding", "model.embeddings.norm"},
                      {"encoder.layers.*.self_attn.q_proj", "model.layers.*.attn.Wqkv"},
                      {"encoder.layers.*.self_attn.k_proj", "model.layers.*.attn.Wqkv"},
                      {"encoder.layers.*.self_attn.v_proj", "model.layers.*.attn.Wqkv"},
                      {"encoder.layers.*.self_attn.out_proj", "model.layers.*.attn.Wo"},
                      {"encoder.layers.*.self_attn_layer_norm", "model.layers.*.attn_norm"},
                      {"encoder.layers.*.gate", "model.layers.*.mlp.Wi"},
                      {"encoder.layers.*.fc1", "model.layers.*.mlp.Wi"},
                      {"encoder.layers.*.fc2", "model.layers.*.mlp.Wo"},
                      {"encoder.layers.*.final_layer_norm", "model.layers.*.mlp_norm"},
                      {"encoder.layer_norm", "model.final_norm"}},
          .heads = modernbert_heads(),
          .prefix = "model."};
}

}  // namespace

std::vector<Family> encoder_families() {
  return {bert(),          distilbert(),           roberta(), xlm_roberta(), camembert(),
          data2vec_text(), roberta_prelayernorm(), mpnet(),   modernbert(),  electra(),
          albert()};
}

}  // namespace fovea::models
