// Encoders that are BERT's or Llama's block with other values. Facts and names: transformers 5.23, and older
// forms.
#include <string>
#include <utility>

#include "models/family/decoder_parts.h"
#include "models/family/encoder_parts.h"

namespace fovea::models {
namespace {

using autograd::Activation;
using nn::NormPlace;
using nn::NormSpec;
using Layout = TensorRule::Layout;
using C = FamilyConfig;

// Norms stand before attention and the feed-forward part, and one behind all blocks, and none on embeddings.
// The rules of `norms` are in the place of BERT's own.
Family with_norms_before(Family family, const std::vector<TensorRule>& norms) {
  family.defaults.norm_place = NormPlace::pre;
  family.defaults.embedding_norm = false;
  std::erase_if(family.tensors, [](const TensorRule& rule) { return rule.ours.ends_with("layer_norm"); });
  family.tensors = joined(family.tensors, norms);
  return family;
}

Family megatron_bert() {
  C defaults = bert_defaults();
  defaults.model_type = "megatron-bert";
  defaults.vocabulary = 29056;
  defaults.dim = 1024;
  defaults.feed_forward = 4096;
  defaults.layers = 24;
  defaults.heads = 16;
  return with_norms_before({.defaults = defaults,
                            .classes = joined(encoder_classes("MegatronBert"),
                                              {{"MegatronBertForPreTraining", FamilyHead::masked}}),
                            .fields = joined(bert_fields(), {token_types()}),
                            .tensors = bert_tensors("bert."),
                            .heads = bert_heads("bert.pooler.dense"),
                            .prefix = "bert.",
                            .unused = {"*pooler.*", "cls.seq_relationship.*", "cls.predictions.bias"}},
                           {{"encoder.layers.*.self_attn_layer_norm", "bert.encoder.layer.*.attention.ln"},
                            {"encoder.layers.*.final_layer_norm", "bert.encoder.layer.*.ln"},
                            {"encoder.layer_norm", "bert.encoder.ln"}});
}

Family xlm_roberta_xl() {
  C defaults = roberta_defaults("xlm-roberta-xl", 250880);
  defaults.dim = 2560;
  defaults.feed_forward = 10240;
  defaults.layers = 36;
  defaults.heads = 32;
  defaults.positions = 514;
  defaults.token_types = 1;
  defaults.norm_epsilon = 1e-5;
  return with_norms_before(
      {.defaults = defaults,
       .classes = encoder_classes("XLMRobertaXL"),
       .fields = joined(bert_fields(), {token_types(), {"pad_token_id", read_rows_behind_padding}}),
       .tensors = bert_tensors("roberta."),
       .heads = roberta_heads(),
       .prefix = "roberta.",
       .unused = {"*pooler.*", "lm_head.bias"}},
      {{"encoder.layers.*.self_attn_layer_norm", "roberta.encoder.layer.*.attention.self_attn_layer_norm"},
       {"encoder.layers.*.final_layer_norm", "roberta.encoder.layer.*.LayerNorm"},
       {"encoder.layer_norm", "roberta.encoder.LayerNorm"}});
}

void read_tasks(ConfigReader& reader, C& config) {
  const nlohmann::json *use = reader.find("use_task_id"), *types = reader.find("task_type_vocab_size");
  std::int64_t count = 3;
  if (types) count = reader.size("task_type_vocab_size", *types, 1, most_dim).value_or(count);
  if (use && !use->is_boolean()) return reader.refuse("use_task_id", "true or false", *use);
  if (use && *use == true) config.task_types = count;
}

// All ids are of task 0, as in transformers where a caller does not say another.
Family ernie() {
  C defaults = bert_defaults();
  defaults.model_type = "ernie";
  std::vector<TensorRule> tensors = bert_tensors("ernie.");
  tensors.push_back({"embed_tasks", "ernie.embeddings.task_type_embeddings"});
  return {.defaults = defaults,
          .classes = joined(encoder_classes("Ernie"), {{"ErnieForPreTraining", FamilyHead::masked}}),
          .fields = joined(bert_fields(), {token_types(), {"use_task_id", read_tasks}}),
          .tensors = tensors,
          .heads = bert_heads("ernie.pooler.dense"),
          .prefix = "ernie.",
          .unused = {"*pooler.*", "cls.seq_relationship.*", "cls.predictions.bias"}};
}

// Pairs of neighbours are turned. The table of their sines and cosines is in the file.
Family roformer() {
  C defaults = bert_defaults();
  defaults.model_type = "roformer";
  defaults.vocabulary = 50000;
  defaults.positions = 1536;
  defaults.learned_positions = false;
  defaults.rotary = true;
  defaults.rope.layout = RopeLayout::interleaved;
  return {
      .defaults = defaults,
      .classes = encoder_classes("RoFormer"),
      .fields = joined(bert_fields(), {token_types(),
                                       {"embedding_size", read_embedding_size_or_none},
                                       {"rotary_value", FixedField{"false"}},
                                       // Of multiple choice, which is not among the classes.
                                       {"summary_type", NoEffect{}},
                                       {"summary_use_proj", NoEffect{}}}),
      .tensors = joined(bert_tensors("roformer."), {{"encoder.project_in", "roformer.embeddings_project"}}),
      .heads = joined(heads_of_rows(), {masked_head({}, bert_masked_tensors()),
                                        first_row_head({}, {{"head.dense", "classifier.dense"},
                                                            {"head.output", "classifier.out_proj"}})}),
      .prefix = "roformer.",
      // The table follows from the config, but transformers misses it in a folder without it.
      .unused = {"cls.predictions.bias", "*encoder.embed_positions.weight"}};
}

// The published files have other names of these keys, which transformers does not read.
void read_published_names(ConfigReader& reader, C& config) {
  for (const auto& [published, today] : {std::pair{"n_embd", "hidden_size"},
                                         {"n_head", "num_attention_heads"},
                                         {"n_inner", "intermediate_size"},
                                         {"n_layer", "num_hidden_layers"},
                                         {"n_positions", "max_position_embeddings"},
                                         {"layer_norm_epsilon", "layer_norm_eps"}}) {
    const nlohmann::json *before = reader.find(published), *now = reader.find(today);
    if (before && now && *before != *now)
      reader.refuse(published, "the value of " + std::string(today) + ", if it is there at all", *before);
  }
  if (const nlohmann::json* width = reader.find("n_embd"))
    config.dim = reader.size("n_embd", *width, 1, most_dim).value_or(config.dim);
}

// BERT's places of norms around a gated feed-forward part, rotary positions, and no biases in blocks.
Family nomic_bert() {
  C defaults = bert_defaults();
  defaults.model_type = "nomic_bert";
  defaults.vocabulary = 30528;
  defaults.positions = 2048;
  defaults.gated = true;
  defaults.activation = Activation::silu;
  defaults.query_bias = defaults.output_bias = defaults.mlp_bias = false;
  defaults.learned_positions = false;
  defaults.rotary = true;
  defaults.rope.base = 1000.0;
  std::vector<TensorRule> masked = bert_masked_tensors();
  for (TensorRule& rule : masked) {
    if (rule.ours == "head.norm") rule.theirs = "cls.predictions.transform.layer_norm";
  }
  return {
      .defaults = defaults,
      .classes = {{"NomicBertModel"},
                  {"NomicBertForMaskedLM", FamilyHead::masked},
                  {"NomicBertForSequenceClassification", FamilyHead::sequence_labels},
                  {"NomicBertForTokenClassification", FamilyHead::token_labels}},
      .fields = joined(bert_fields(), {token_types(),
                                       {"head_dim", SizeField{&C::head_dim, most_dim}},
                                       {"rope_parameters", read_rope},
                                       // Of the published files, whose class is not of transformers.
                                       {"n_embd", read_published_names},
                                       {"n_head", SizeField{&C::heads, most_dim}},
                                       {"n_inner", SizeField{&C::feed_forward, most_dim}},
                                       {"n_layer", SizeField{&C::layers, most_layers}},
                                       {"n_positions", SizeField{&C::positions, most_positions}},
                                       {"layer_norm_epsilon", NumberField{&C::norm_epsilon}},
                                       {"activation_function", FixedField{"\"swiglu\""}},
                                       {"causal", FixedField{"false"}},
                                       {"mlp_fc1_bias", FixedField{"false"}},
                                       {"mlp_fc2_bias", FixedField{"false"}},
                                       {"qkv_proj_bias", FixedField{"false"}},
                                       {"parallel_block", FixedField{"false"}},
                                       {"prenorm", FixedField{"false"}},
                                       {"rotary_emb_base", FixedField{"1000"}},
                                       {"rotary_emb_fraction", FixedField{"1.0"}},
                                       {"rotary_emb_interleaved", FixedField{"false"}},
                                       {"rotary_emb_scale_base", FixedField{"null"}},
                                       {"rotary_scaling_factor", FixedField{"null"}},
                                       {"scale_attn_by_inverse_layer_idx", FixedField{"false"}},
                                       {"scale_attn_weights", FixedField{"true"}},
                                       {"use_rms_norm", FixedField{"false"}},
                                       {"dense_seq_output", NoEffect{}},
                                       {"fused_bias_fc", NoEffect{}},
                                       {"fused_dropout_add_ln", NoEffect{}},
                                       {"max_trained_positions", NoEffect{}},
                                       {"pad_vocab_size_multiple", NoEffect{}},
                                       {"parallel_block_tied_norm", NoEffect{}},
                                       {"reorder_and_upcast_attn", NoEffect{}},
                                       {"use_flash_attn", NoEffect{}},
                                       {"use_xentropy", NoEffect{}}}),
      .tensors = joined(
          layer_tensors({"nomic_bert.encoder.layers.*.attn.Wqkv", "nomic_bert.encoder.layers.*.attn.Wqkv",
                         "nomic_bert.encoder.layers.*.attn.Wqkv", "nomic_bert.encoder.layers.*.attn.out_proj",
                         "nomic_bert.encoder.layers.*.norm1", "nomic_bert.encoder.layers.*.mlp.fc11",
                         "nomic_bert.encoder.layers.*.mlp.fc2", "nomic_bert.encoder.layers.*.norm2"}),
          {{"encoder.layers.*.gate", "nomic_bert.encoder.layers.*.mlp.fc12"},
           {"embed_tokens", "nomic_bert.embeddings.word_embeddings"},
           {"embed_types", "nomic_bert.embeddings.token_type_embeddings"},
           {"encoder.layernorm_embedding", "nomic_bert.emb_ln"}}),
      .heads = joined(heads_of_rows(),
                      {masked_head({}, masked),
                       first_row_head(Activation::tanh, {{"head.dense", "nomic_bert.pooler.dense"},
                                                         {"head.output", "classifier"}})}),
      .prefix = "nomic_bert.",
      .unused = {"*pooler.*", "cls.predictions.bias"}};
}

void read_eurobert_bias(ConfigReader& reader, C& config) {
  const nlohmann::json* value = reader.find("mlp_bias");
  if (value && !value->is_boolean()) return reader.refuse("mlp_bias", "true or false", *value);
  config.mlp_bias = value && *value == true;
  if (config.head == FamilyHead::masked) config.head_layers.bias = config.mlp_bias;
}

// "late" is the mean of what each row gives, so of the rows that the matrix reads.
void read_eurobert_pooling(ConfigReader& reader, C& config) {
  const nlohmann::json* value = reader.find("classifier_pooling");
  if (!value || config.head != FamilyHead::sequence_labels) return;
  HeadLayers& layers = config.head_layers;
  if (*value == "bos")
    layers.pooling = SentencePooling::Kind::first;
  else if (*value != "mean" && *value != "late")
    return reader.refuse("classifier_pooling", "\"bos\", \"mean\" or \"late\"", *value);
  layers.pools_late = *value == "late";
}

// Llama's blocks, whose rows see both sides.
Family eurobert() {
  C defaults = llama_defaults("eurobert", 128256, 768, 3072, 12, 12);
  defaults.kind = FamilyKind::encoder;
  defaults.positions = 8192;
  defaults.norm_epsilon = 1e-5;
  defaults.pad_id = 128001;
  defaults.eos_ids = {128001};
  return {.defaults = defaults,
          .classes = {{"EuroBertModel"},
                      {"EuroBertForMaskedLM", FamilyHead::masked},
                      {"EuroBertForSequenceClassification", FamilyHead::sequence_labels},
                      {"EuroBertForTokenClassification", FamilyHead::token_labels}},
          .fields = joined(llama_fields(), {{"attention_bias", read_attention_bias},
                                            {"mlp_bias", read_eurobert_bias},
                                            {"classifier_pooling", read_eurobert_pooling},
                                            {"rope_parameters", read_rope},
                                            // Of the published files, whose class is not of transformers.
                                            {"clf_pooling", FixedField{"\"late\""}},
                                            {"hidden_dropout", NoEffect{}},
                                            {"bos_token", NoEffect{}},
                                            {"eos_token", NoEffect{}},
                                            {"pad_token", NoEffect{}},
                                            {"mask_token", NoEffect{}}}),
          .tensors = joined(
              layer_tensors({"model.layers.*.self_attn.q_proj", "model.layers.*.self_attn.k_proj",
                             "model.layers.*.self_attn.v_proj", "model.layers.*.self_attn.o_proj",
                             "model.layers.*.input_layernorm", "model.layers.*.mlp.up_proj",
                             "model.layers.*.mlp.down_proj", "model.layers.*.post_attention_layernorm"}),
              {{"encoder.layers.*.gate", "model.layers.*.mlp.gate_proj"},
               {"embed_tokens", "model.embed_tokens"},
               {"encoder.layer_norm", "model.norm"}}),
          .heads = {{FamilyHead::masked, {.bias = false}, {{"head.output", "lm_head"}}},
                    {FamilyHead::sequence_labels,
                     {.pooling = SentencePooling::Kind::mean,
                      .pools_late = true,
                      .dense = true,
                      .activation = Activation::gelu},
                     {{"head.dense", "dense"}, {"head.output", "classifier"}}},
                    {FamilyHead::token_labels, {}, {{"head.output", "classifier"}}}},
          .prefix = "model."};
}

}  // namespace

std::vector<Family> bert_relatives() {
  return {xlm_roberta_xl(), megatron_bert(), ernie(), roformer(), nomic_bert(), eurobert()};
}

}  // namespace fovea::models
