#include "models/configs.h"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

namespace fovea::models {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(const char* key, const std::string& expected, const std::string& got) {
  throw InvalidArgument("config.json", key, expected, got);
}

const json& field(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) refuse(key, "a value", "none");
  return *found;
}

// No model of this kind is larger; a corrupt file must not make us allocate by its numbers.
std::int64_t size_field(const json& object, const char* key, std::int64_t most) {
  const json& value = field(object, key);
  if (!value.is_number_integer() || value < 1 || value > most) {
    refuse(key, "a whole number from 1 to " + std::to_string(most), value.dump());
  }
  return value.get<std::int64_t>();
}

float rate_field(const json& object, const char* key) {
  const json& value = field(object, key);
  if (!value.is_number() || value < 0 || value >= 1) refuse(key, "a rate in [0, 1)", value.dump());
  return value.get<float>();
}

template <class Enum, std::size_t n>
using Names = std::array<std::pair<const char*, Enum>, n>;

constexpr Names<RnnAttention, 5> attention_names{{{"none", RnnAttention::none},
                                                  {"additive", RnnAttention::additive},
                                                  {"dot", RnnAttention::dot},
                                                  {"scaled-dot", RnnAttention::scaled_dot},
                                                  {"general", RnnAttention::general}}};
constexpr Names<QueryState, 2> query_names{{{"before", QueryState::before}, {"after", QueryState::after}}};
constexpr Names<ValueKind, 2> value_names{
    {{"states", ValueKind::states}, {"projection", ValueKind::projection}}};
constexpr Names<autograd::Cell, 2> cell_names{{{"rnn", autograd::Cell::rnn}, {"gru", autograd::Cell::gru}}};
constexpr Names<NormPlace, 2> norm_names{{{"pre", NormPlace::pre}, {"post", NormPlace::post}}};

template <class Enum, std::size_t n>
Enum enum_field(const json& object, const char* key, const Names<Enum, n>& names) {
  const json& value = field(object, key);
  std::string expected;
  for (const auto& [name, meaning] : names) {
    if (value.is_string() && value == name) return meaning;
    expected += (expected.empty() ? "" : ", ") + std::string(name);
  }
  refuse(key, "one of " + expected, value.dump());
}

template <class Enum, std::size_t n>
const char* name_of(Enum value, const Names<Enum, n>& names) {
  for (const auto& [name, meaning] : names) {
    if (meaning == value) return name;
  }
  return "";
}

constexpr std::int64_t most_words = 10'000'000, most_dim = 65'536, most_layers = 1'000;

}  // namespace

RnnConfig read_rnn_config(const json& json) {
  return {.vocabulary = size_field(json, "vocab_size", most_words),
          .embedding = size_field(json, "embedding_size", most_dim),
          .hidden = size_field(json, "hidden_size", most_dim),
          .cell = enum_field(json, "cell", cell_names),
          .attention = enum_field(json, "attention", attention_names),
          .query = enum_field(json, "query", query_names),
          .values = enum_field(json, "values", value_names),
          .dropout = rate_field(json, "dropout")};
}

TransformerConfig read_transformer_config(const json& json) {
  return {.vocabulary = size_field(json, "vocab_size", most_words),
          .dim = size_field(json, "d_model", most_dim),
          .feed_forward = size_field(json, "encoder_ffn_dim", most_dim),
          .heads = size_field(json, "encoder_attention_heads", most_dim),
          .encoder_layers = size_field(json, "encoder_layers", most_layers),
          .decoder_layers = size_field(json, "decoder_layers", most_layers),
          .norm = enum_field(json, "norm", norm_names),
          .dropout = rate_field(json, "dropout"),
          .attention_dropout = rate_field(json, "attention_dropout")};
}

std::string write_config(const RnnConfig& config) {
  return json{{"model_type", "fovea-rnn"},
              {"vocab_size", config.vocabulary},
              {"embedding_size", config.embedding},
              {"hidden_size", config.hidden},
              {"cell", name_of(config.cell, cell_names)},
              {"attention", name_of(config.attention, attention_names)},
              {"query", name_of(config.query, query_names)},
              {"values", name_of(config.values, value_names)},
              {"dropout", config.dropout}}
             .dump(2) +
         "\n";
}

std::string write_config(const TransformerConfig& config) {
  return json{{"model_type", "fovea-transformer"},
              {"vocab_size", config.vocabulary},
              {"d_model", config.dim},
              {"encoder_ffn_dim", config.feed_forward},
              {"decoder_ffn_dim", config.feed_forward},
              {"encoder_attention_heads", config.heads},
              {"decoder_attention_heads", config.heads},
              {"encoder_layers", config.encoder_layers},
              {"decoder_layers", config.decoder_layers},
              {"norm", name_of(config.norm, norm_names)},
              {"activation_function", "relu"},
              {"scale_embedding", true},
              {"tie_word_embeddings", true},
              {"dropout", config.dropout},
              {"attention_dropout", config.attention_dropout}}
             .dump(2) +
         "\n";
}

}  // namespace fovea::models
