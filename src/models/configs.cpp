#include "models/configs.h"

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "core/excerpt.h"
#include "files/json.h"

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

// A config's value for an error message; dump() would write all of it.
std::string shown(const json& value) {
  return excerpt(value.dump(-1, ' ', false, json::error_handler_t::replace));
}

// `function` and `argument` are those of the error. load_model has checked the text before, to name its file.
json parse_object(const std::string& text, const char* function, const char* argument) {
  try {
    return files::parse_json_object("JSON", text, config_depth);
  } catch (const FileError& error) {
    throw InvalidArgument(function, argument, "a JSON object", error.what());
  }
}

// No model of this kind is larger. The limit prevents allocations by the numbers of a corrupt file.
std::int64_t size_field(const json& object, const char* key, std::int64_t most) {
  const json& value = field(object, key);
  if (!value.is_number_integer() || value < 1 || value > most) {
    refuse(key, "a whole number from 1 to " + std::to_string(most), shown(value));
  }
  return value.get<std::int64_t>();
}

float rate_field(const json& object, const char* key) {
  const json& value = field(object, key);
  if (!value.is_number() || value < 0 || value >= 1) refuse(key, "a rate in [0, 1)", shown(value));
  return value.get<float>();
}

template <class Enum, std::size_t n>
using Names = std::array<std::pair<const char*, Enum>, n>;

constexpr Names<RnnAttention, 6> attention_names{{{"none", RnnAttention::none},
                                                  {"additive", RnnAttention::additive},
                                                  {"dot", RnnAttention::dot},
                                                  {"scaled-dot", RnnAttention::scaled_dot},
                                                  {"general", RnnAttention::general},
                                                  {"low-rank", RnnAttention::low_rank}}};
constexpr Names<QueryState, 2> query_names{{{"before", QueryState::before}, {"after", QueryState::after}}};
constexpr Names<ValueKind, 2> value_names{
    {{"states", ValueKind::states}, {"projection", ValueKind::projection}}};
constexpr Names<autograd::Cell, 3> cell_names{
    {{"rnn", autograd::Cell::rnn}, {"gru", autograd::Cell::gru}, {"lstm", autograd::Cell::lstm}}};
using Positions = TransformerConfig::Positions;
constexpr Names<Positions, 4> position_names{{{"sinusoidal", Positions::sinusoidal},
                                              {"rotary", Positions::rotary},
                                              {"alibi", Positions::alibi},
                                              {"relative", Positions::relative}}};
constexpr Names<NormPlace, 2> norm_names{{{"pre", NormPlace::pre}, {"post", NormPlace::post}}};

template <class Enum, std::size_t n>
Enum enum_field(const json& object, const char* key, const Names<Enum, n>& names) {
  const json& value = field(object, key);
  std::string expected;
  for (const auto& [name, meaning] : names) {
    if (value.is_string() && value == name) return meaning;
    expected += (expected.empty() ? "" : ", ") + std::string(name);
  }
  refuse(key, "one of " + expected, shown(value));
}

template <class Enum, std::size_t n>
const char* name_of(Enum value, const Names<Enum, n>& names) {
  for (const auto& [name, meaning] : names) {
    if (meaning == value) return name;
  }
  return "";
}

// The double nearest to the shortest decimal that reads back as this float: 0.1, where a plain widening would
// write 0.10000000149011612.
double shortest(float value) {
  char digits[32];
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, value);
  double wide = value;
  if (error == std::errc()) std::from_chars(digits, end, wide);
  return wide;
}

constexpr std::int64_t most_words = 10'000'000, most_dim = 65'536, most_layers = 1'000;

// Checks a key that varies in other libraries and not in this one: it must be absent or have this value.
void require(const json& object, const char* key, const json& value) {
  const auto found = object.find(key);
  if (found != object.end() && *found != value) refuse(key, shown(value), shown(*found));
}

std::vector<LayerMixer> mixers_field(const json& object, const char* key, std::int64_t layers) {
  const json& value = field(object, key);
  if (!value.is_array() || static_cast<std::int64_t>(value.size()) != layers)
    refuse(key, "a list of " + std::to_string(layers) + " names, one for each layer", shown(value));
  std::vector<LayerMixer> mixers;
  for (const json& name : value) {
    const auto mixer = name.is_string() ? find_mixer(name.get<std::string>()) : std::nullopt;
    if (!mixer) refuse(key, "names out of " + mixer_names(), shown(name));
    mixers.push_back(*mixer);
  }
  return mixers;
}

json mixers_json(const std::vector<LayerMixer>& mixers) {
  json list = json::array();
  for (const LayerMixer mixer : mixers) list.push_back(to_string(mixer));
  return list;
}

RnnConfig read_rnn_config(const json& json) {
  RnnConfig config{.vocabulary = size_field(json, "vocab_size", most_words),
                   .embedding = size_field(json, "embedding_size", most_dim),
                   .hidden = size_field(json, "hidden_size", most_dim),
                   .cell = enum_field(json, "cell", cell_names),
                   .attention = enum_field(json, "attention", attention_names),
                   .query = enum_field(json, "query", query_names),
                   .values = enum_field(json, "values", value_names),
                   .dropout = rate_field(json, "dropout")};
  if (config.attention == RnnAttention::low_rank) config.rank = size_field(json, "attention_rank", most_dim);
  return config;
}

TransformerConfig read_transformer_config(const json& json) {
  for (const char* side : {"ffn_dim", "attention_heads"}) {
    require(json, (std::string("decoder_") + side).c_str(),
            field(json, (std::string("encoder_") + side).c_str()));
  }
  require(json, "activation_function", "relu");
  require(json, "scale_embedding", true);
  require(json, "tie_word_embeddings", true);
  TransformerConfig config{.vocabulary = size_field(json, "vocab_size", most_words),
                           .dim = size_field(json, "d_model", most_dim),
                           .feed_forward = size_field(json, "encoder_ffn_dim", most_dim),
                           .heads = size_field(json, "encoder_attention_heads", most_dim),
                           .encoder_layers = size_field(json, "encoder_layers", most_layers),
                           .decoder_layers = size_field(json, "decoder_layers", most_layers),
                           .norm = enum_field(json, "norm", norm_names),
                           .dropout = rate_field(json, "dropout"),
                           .attention_dropout = rate_field(json, "attention_dropout")};
  // Older folders have no key "positions", because there was no choice.
  if (json.contains("positions")) config.positions = enum_field(json, "positions", position_names);
  if (config.positions == Positions::rotary) {
    config.longest = size_field(json, "max_position_embeddings", 1 << 20);
    if (config.dim % (2 * config.heads) != 0)
      refuse("encoder_attention_heads",
             "a number n such that 2 * n divides d_model " + std::to_string(config.dim),
             std::to_string(config.heads));
  }
  if (config.dim % config.heads != 0)
    refuse("encoder_attention_heads", "a divisor of d_model " + std::to_string(config.dim),
           std::to_string(config.heads));
  // A side whose layers have attention alone has no list.
  for (const auto& [key, list, layers] :
       {std::tuple("encoder_mixers", &config.encoder_mixers, config.encoder_layers),
        std::tuple("decoder_mixers", &config.decoder_mixers, config.decoder_layers)}) {
    if (json.contains(key)) *list = mixers_field(json, key, layers);
  }
  return config;
}

std::int64_t least(const RnnConfig& c) {
  const std::int64_t cells = 3 * autograd::gate_count(c.cell) * c.hidden * (c.embedding + c.hidden);
  const std::int64_t scores = c.attention == RnnAttention::low_rank ? 3 * c.hidden * c.rank : 0;
  return c.vocabulary * (c.embedding + 1) + cells + scores + 2 * c.hidden * c.hidden;
}

std::int64_t least(const TransformerConfig& c) {
  const std::int64_t attention = 4 * c.dim * c.dim, inner = 2 * c.dim * c.feed_forward;
  // Every recurrence has two matrices of dim² at least, and one that reads both ways twice as many.
  const std::int64_t mixer = c.decoder_mixers.empty() ? attention : 2 * c.dim * c.dim;
  return c.vocabulary * (c.dim + 1) + c.encoder_layers * (attention + inner) +
         c.decoder_layers * (mixer + attention + inner);
}

}  // namespace

ModelConfig read_config(const std::string& text) {
  const auto json = parse_object(text, "make_model", "config");
  const auto type = json.find("model_type");
  if (type != json.end() && *type == "fovea-rnn") return read_rnn_config(json);
  if (type != json.end() && *type == "fovea-transformer") return read_transformer_config(json);
  throw InvalidArgument("make_model", "config.model_type", "\"fovea-rnn\" or \"fovea-transformer\"",
                        type == json.end() ? "none" : shown(*type));
}

bool is_own_translator(const std::string& text) {
  const auto json = parse_object(text, "config.json", "text");
  const auto type = json.find("model_type");
  return type != json.end() && (*type == "fovea-rnn" || *type == "fovea-transformer");
}

bool may_be_starcoder(const std::string& text) {
  const auto json = parse_object(text, "config.json", "text");
  const auto type = json.find("model_type");
  return type != json.end() && *type == "starcoder2";
}

std::int64_t least_elements(const ModelConfig& config) {
  return std::visit([](const auto& c) { return least(c); }, config);
}

std::string write_config(const RnnConfig& config) {
  json object{{"model_type", "fovea-rnn"},
              {"vocab_size", config.vocabulary},
              {"embedding_size", config.embedding},
              {"hidden_size", config.hidden},
              {"cell", name_of(config.cell, cell_names)},
              {"attention", name_of(config.attention, attention_names)},
              {"query", name_of(config.query, query_names)},
              {"values", name_of(config.values, value_names)},
              {"dropout", shortest(config.dropout)}};
  if (config.attention == RnnAttention::low_rank) object["attention_rank"] = config.rank;
  return object.dump(2) + "\n";
}

std::string write_config(const TransformerConfig& config) {
  json object{{"model_type", "fovea-transformer"},
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
              {"dropout", shortest(config.dropout)},
              {"attention_dropout", shortest(config.attention_dropout)}};
  if (config.positions != Positions::sinusoidal)
    object["positions"] = name_of(config.positions, position_names);
  if (config.positions == Positions::rotary) object["max_position_embeddings"] = config.longest;
  if (!config.encoder_mixers.empty()) object["encoder_mixers"] = mixers_json(config.encoder_mixers);
  if (!config.decoder_mixers.empty()) object["decoder_mixers"] = mixers_json(config.decoder_mixers);
  return object.dump(2) + "\n";
}

namespace {

constexpr const char* own_language = "fovea-language";

void check_heads(const LanguageModelConfig& config) {
  if (config.dim % (2 * config.heads) != 0) {
    refuse("num_attention_heads",
           "a number n such that 2 * n divides hidden_size " + std::to_string(config.dim),
           std::to_string(config.heads));
  }
}

// The keys that both types of config have.
LanguageModelConfig language_fields(const json& object) {
  const LanguageModelConfig config{.vocabulary = size_field(object, "vocab_size", most_words),
                                   .dim = size_field(object, "hidden_size", most_dim),
                                   .feed_forward = size_field(object, "intermediate_size", most_dim),
                                   .heads = size_field(object, "num_attention_heads", most_dim),
                                   .layers = size_field(object, "num_hidden_layers", most_layers),
                                   .positions = size_field(object, "max_position_embeddings", 1 << 20),
                                   .dropout = rate_field(object, "residual_dropout"),
                                   .attention_dropout = rate_field(object, "attention_dropout")};
  check_heads(config);
  return config;
}

std::string write_own_config(const LanguageModelConfig& config) {
  return json{{"model_type", own_language},
              {"vocab_size", config.vocabulary},
              {"hidden_size", config.dim},
              {"intermediate_size", config.feed_forward},
              {"num_attention_heads", config.heads},
              {"num_hidden_layers", config.layers},
              {"mixers", mixers_json(config.mixers)},
              {"max_position_embeddings", config.positions},
              {"residual_dropout", shortest(config.dropout)},
              {"attention_dropout", shortest(config.attention_dropout)}}
             .dump(2) +
         "\n";
}

// Of a model with recurrences. No other library writes this type, so a key that write_own_config does not
// write asks for a feature that the model lacks.
LanguageModelConfig read_own_language_config(const json& object) {
  LanguageModelConfig config = language_fields(object);
  config.mixers = mixers_field(object, "mixers", config.layers);
  const json known = json::parse(write_own_config(config));
  for (const auto& [key, value] : object.items()) {
    if (!known.contains(key))
      refuse(excerpt(key).c_str(), std::string("no such key in a config of ") + own_language, shown(value));
  }
  return config;
}

}  // namespace

bool is_own_language(const std::string& text) {
  const auto json = parse_object(text, "config.json", "text");
  const auto type = json.find("model_type");
  return type != json.end() && *type == own_language;
}

LanguageModelConfig read_language_config(const std::string& text) {
  const auto json = parse_object(text, "config.json", "text");
  if (is_own_language(text)) return read_own_language_config(json);
  // These keys must be present, because Starcoder2's defaults for them are different values.
  for (const char* key : {"model_type", "hidden_act", "num_key_value_heads"}) field(json, key);
  require(json, "model_type", "starcoder2");
  require(json, "hidden_act", "relu");
  require(json, "num_key_value_heads", field(json, "num_attention_heads"));
  require(json, "norm_epsilon", 1e-5);
  require(json, "rope_theta", 10000.0);
  require(json, "rope_parameters", nullptr);
  require(json, "rope_scaling", nullptr);
  require(json, "sliding_window", nullptr);
  require(json, "use_bias", true);
  require(json, "tie_word_embeddings", true);
  require(json, "embedding_dropout", field(json, "residual_dropout"));
  return language_fields(json);
}

std::int64_t least_elements(const LanguageModelConfig& c) {
  // Every recurrence has two matrices of dim² at least: the first and the last.
  if (!c.mixers.empty())
    return c.vocabulary * c.dim + c.layers * (2 * c.dim * c.dim + 2 * c.dim * c.feed_forward);
  return c.vocabulary * c.dim + c.layers * (4 * c.dim * c.dim + 2 * c.dim * c.feed_forward);
}

std::string write_config(const LanguageModelConfig& config) {
  if (!config.mixers.empty()) return write_own_config(config);
  return json{{"model_type", "starcoder2"},
              {"architectures", {"Starcoder2ForCausalLM"}},
              {"vocab_size", config.vocabulary},
              {"hidden_size", config.dim},
              {"intermediate_size", config.feed_forward},
              {"num_attention_heads", config.heads},
              {"num_key_value_heads", config.heads},
              {"num_hidden_layers", config.layers},
              {"max_position_embeddings", config.positions},
              {"hidden_act", "relu"},
              {"norm_epsilon", 1e-5},
              {"rope_theta", 10000.0},
              {"sliding_window", nullptr},
              {"use_bias", true},
              {"tie_word_embeddings", true},
              {"residual_dropout", shortest(config.dropout)},
              {"embedding_dropout", shortest(config.dropout)},
              {"attention_dropout", shortest(config.attention_dropout)},
              // The tokenizer's keys, which this model does not know. Their defaults lie outside small
              // vocabularies.
              {"bos_token_id", nullptr},
              {"eos_token_id", nullptr}}
             .dump(2) +
         "\n";
}

}  // namespace fovea::models
