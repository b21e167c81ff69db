// ModernBERT, and its decoder. Facts and names: transformers 5.23, and its older forms.
#include <string>

#include "models/family/encoder_parts.h"

namespace fovea::models {
namespace {

using autograd::Activation;
using nn::NormPlace;
using Layout = TensorRule::Layout;
using C = FamilyConfig;

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
  if (config.kind == FamilyKind::decoder) {
    config.logit_bias = logits_bias;
    layers.bias = layers.dense_bias;  // of labels
  }
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
          .classes = encoder_classes("ModernBert"),
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

// In the place of half of local_attention, from which transformers writes it.
void read_decoder_window(ConfigReader& reader, C& config) {
  const char* key = "sliding_window";
  if (const nlohmann::json* value = reader.find(key))
    config.window = reader.size(key, *value, 1, most_positions).value_or(1);
  else if (reader.object().contains(key))
    reader.refuse(key, "a number of rows", nlohmann::json());
}

// The same blocks, whose rows see those before them. The layers before the matrix of words are those of the
// masked head.
Family modernbert_decoder() {
  Family family = modernbert();
  C& defaults = family.defaults;
  defaults.model_type = "modernbert-decoder";
  defaults.kind = FamilyKind::decoder;
  family.classes = {{"ModernBertDecoderForCausalLM", FamilyHead::language},
                    {"ModernBertDecoderModel"},
                    {"ModernBertDecoderForSequenceClassification", FamilyHead::sequence_labels}};
  family.fields = joined(family.fields, {{"sliding_window", read_decoder_window},
                                         // Of the published files, which no release reads.
                                         {"causal_mask", FixedField{"true"}},
                                         {"is_causal", FixedField{"true"}}});
  family.tensors = {{"model.embed_tokens", "model.embeddings.tok_embeddings"},
                    {"model.layernorm_embedding", "model.embeddings.norm"},
                    {"model.layers.*.self_attn.q_proj", "model.layers.*.attn.q_proj"},
                    {"model.layers.*.self_attn.k_proj", "model.layers.*.attn.k_proj"},
                    {"model.layers.*.self_attn.v_proj", "model.layers.*.attn.v_proj"},
                    {"model.layers.*.self_attn.out_proj", "model.layers.*.attn.Wo"},
                    {"model.layers.*.self_attn_layer_norm", "model.layers.*.attn_norm"},
                    {"model.layers.*.gate", "model.layers.*.mlp.Wi"},
                    {"model.layers.*.fc1", "model.layers.*.mlp.Wi"},
                    {"model.layers.*.fc2", "model.layers.*.mlp.Wo"},
                    {"model.layers.*.final_layer_norm", "model.layers.*.mlp_norm"},
                    {"model.layer_norm", "model.final_norm"},
                    {"lm_head", "decoder"}};
  const HeadLayers layers{.dense = true, .dense_bias = false, .activation = Activation::gelu, .norm = true};
  HeadLayers of_sequence = layers;
  of_sequence.pooling = SentencePooling::Kind::last;
  of_sequence.bias = false;
  family.heads = {
      {FamilyHead::language, layers, {{"head.dense", "lm_head.dense"}, {"head.norm", "lm_head.norm"}}},
      {FamilyHead::sequence_labels,
       of_sequence,
       {{"head.dense", "head.dense"}, {"head.norm", "head.norm"}, {"head.output", "classifier"}}}};
  return family;
}

}  // namespace

std::vector<Family> modernbert_families() {
  return {modernbert(), modernbert_decoder()};
}

}  // namespace fovea::models
