// The families that read both ways. Facts and names: transformers 5.23, and its older forms.
#include <string>

#include "models/family/encoder_parts.h"

namespace fovea::models {
namespace {

using autograd::Activation;
using nn::NormPlace;
using nn::NormSpec;
using Layout = TensorRule::Layout;
using C = FamilyConfig;

Family bert() {
  return {.defaults = bert_defaults(),
          .classes = joined(encoder_classes("Bert"), {{"BertForPreTraining", FamilyHead::masked}}),
          // The pooler of the multilingual models has more numbers, and is not computed.
          .fields = joined(bert_fields(), {token_types(),
                                           {"directionality", FixedField{"\"bidi\""}},
                                           {"pooler_fc_size", NoEffect{}},
                                           {"pooler_num_attention_heads", NoEffect{}},
                                           {"pooler_num_fc_layers", NoEffect{}},
                                           {"pooler_size_per_head", NoEffect{}},
                                           {"pooler_type", NoEffect{}}}),
          .tensors = bert_tensors("bert."),
          .heads = bert_heads("bert.pooler.dense"),
          .prefix = "bert.",
          // Labels of sequences alone read the pooler; seq_relationship is a head of its own.
          .unused = {"*pooler.*", "cls.seq_relationship.*", "cls.predictions.bias"}};
}

Family roberta() {
  return {.defaults = roberta_defaults("roberta", 50265),
          .classes = encoder_classes("Roberta"),
          .fields = joined(bert_fields(), {token_types(), {"pad_token_id", read_rows_behind_padding}}),
          .tensors = bert_tensors("roberta."),
          .heads = roberta_heads(),
          .prefix = "roberta.",
          .unused = {"*pooler.*", "lm_head.bias"}};
}

Family xlm_roberta() {
  Family family = roberta();
  family.defaults = roberta_defaults("xlm-roberta", 30522);
  family.classes = encoder_classes("XLMRoberta");
  return family;
}

Family camembert() {
  Family family = roberta();
  family.defaults = roberta_defaults("camembert", 30522);
  family.classes = encoder_classes("Camembert");
  return family;
}

Family data2vec_text() {
  Family family = roberta();
  family.defaults = roberta_defaults("data2vec-text", 30522);
  family.classes = encoder_classes("Data2VecText");
  family.tensors = bert_tensors("data2vec_text.");
  family.prefix = "data2vec_text.";
  return family;
}

// RoBERTa with norms before attention and the feed-forward part, and one behind all blocks.
Family roberta_prelayernorm() {
  Family family = roberta();
  family.defaults = roberta_defaults("roberta-prelayernorm", 50265);
  family.defaults.norm_place = NormPlace::pre;
  family.classes = encoder_classes("RobertaPreLayerNorm");
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
          .classes = encoder_classes("MPNet"),
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
      .classes = encoder_classes("DistilBert"),
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

Family electra() {
  C defaults = bert_defaults();
  defaults.model_type = "electra";
  defaults.dim = 256;
  defaults.feed_forward = 1024;
  defaults.heads = 4;
  defaults.embedding_dim = 128;
  return {.defaults = defaults,
          // The head that says which ids a generator replaced is not computed.
          .classes = joined(encoder_classes("Electra"), {{"ElectraForPreTraining"}}),
          .fields = joined(bert_fields(), {token_types(),
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
          .classes = joined(encoder_classes("Albert"), {{"AlbertForPreTraining", FamilyHead::masked}}),
          .fields = joined(bert_fields(), {token_types(),
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

}  // namespace

std::vector<Family> encoder_families() {
  return {bert(),          distilbert(),           roberta(), xlm_roberta(), camembert(),
          data2vec_text(), roberta_prelayernorm(), mpnet(),   electra(),     albert()};
}

}  // namespace fovea::models
