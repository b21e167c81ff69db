#include "models/family/todays_config.h"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "fovea/models/family.h"

namespace fovea::models {
namespace {

using nlohmann::json;

const char* name_of(DType type) {
  switch (type) {
    case DType::f32:
      return "float32";
    case DType::f64:
      return "float64";
    case DType::bf16:
      return "bfloat16";
    case DType::f16:
      return "float16";
  }
  return "";
}

const char* name_of(LayerSees sees) {
  switch (sees) {
    case LayerSees::all:
      return "full_attention";
    case LayerSees::window:
      return "sliding_attention";
    case LayerSees::state:
      break;
  }
  return "linear_attention";
}

bool has_any(const json& object, std::initializer_list<const char*> keys) {
  return std::any_of(keys.begin(), keys.end(), [&](const char* key) { return object.contains(key); });
}

void erase(json& object, std::initializer_list<const char*> keys) {
  for (const char* key : keys) object.erase(key);
}

// An old rope_scaling, or none, as an object of today.
json rope_object(const json& scaling, double base) {
  json rope = scaling.is_object() ? scaling : json::object();
  if (rope.contains("type")) {
    if (!rope.contains("rope_type")) rope["rope_type"] = rope["type"];
    rope.erase("type");
  }
  if (!rope.contains("rope_type")) rope["rope_type"] = "default";
  rope["rope_theta"] = base;
  return rope;
}

// rope_parameters in place of the keys for bases and scaling.
void write_rope(json& object, const FamilyConfig& config) {
  const auto old = {"rope_theta",        "rope_scaling",     "rope_local_base_freq",
                    "global_rope_theta", "local_rope_theta", "rotary_emb_base"};
  if (!config.rotary) return;
  const bool partial = config.rotary_share && has_any(object, {"partial_rotary_factor", "rotary_pct"});
  if (!object.contains("rope_parameters") && (partial || has_any(object, old))) {
    const json scaled = rope_object(object.value("rope_scaling", json()), config.rope.base);
    object["rope_parameters"] = scaled;
    if (config.window_rope)
      object["rope_parameters"] = {{"full_attention", scaled},
                                   {"sliding_attention", rope_object(json(), config.window_rope->base)}};
  }
  erase(object, old);
  if (!partial) return;
  object["rope_parameters"]["partial_rotary_factor"] = *config.rotary_share;
  erase(object, {"partial_rotary_factor", "rotary_pct"});
}

// layer_types in place of the keys for the distance between layers of a kind.
void write_layer_types(json& object, const FamilyConfig& config) {
  const auto old = {"sliding_window_pattern", "global_attn_every_n_layers", "full_attention_interval"};
  if (!object.contains("layer_types") && has_any(object, old)) {
    for (const LayerSees sees : config.sees) object["layer_types"].push_back(name_of(sees));
  }
  erase(object, old);
}

}  // namespace

std::string todays_config(const std::string& text, DType type) {
  json object = json::parse(text);
  const FamilyConfig config = read_family(text).config;
  object.erase("torch_dtype");
  object["dtype"] = name_of(type);
  write_rope(object, config);
  write_layer_types(object, config);
  return object.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string with_float_objects(const std::string& text) {
  std::string result;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size();) {
    const std::string_view rest = std::string_view(text).substr(i);
    std::string_view number;
    for (const std::string_view name : {"-Infinity", "Infinity", "NaN"}) {
      if (!in_string && rest.starts_with(name)) number = name;
    }
    if (!number.empty()) {
      result += R"({"__float__": ")" + std::string(number) + "\"}";
      i += number.size();
      continue;
    }
    const std::size_t count = in_string && text[i] == '\\' && rest.size() > 1 ? 2 : 1;  // an escape
    if (text[i] == '"') in_string = !in_string;
    result.append(rest.substr(0, count));
    i += count;
  }
  return result;
}

std::string marian_config(const TransformerConfig& config) {
  // The ids of our tokenizers: </s> is 3, a decoder reads <s> first, and padding is 0.
  json object{{"model_type", "marian"},
              {"architectures", {"MarianMTModel"}},
              {"is_encoder_decoder", true},
              {"vocab_size", config.vocabulary},
              {"decoder_vocab_size", config.vocabulary},
              {"d_model", config.dim},
              {"activation_function", "relu"},
              {"scale_embedding", true},
              {"share_encoder_decoder_embeddings", true},
              {"tie_word_embeddings", true},
              {"max_position_embeddings", 1024},
              {"pad_token_id", 0},
              {"bos_token_id", 2},
              {"decoder_start_token_id", 2},
              {"eos_token_id", 3},
              {"forced_eos_token_id", nullptr}};
  for (const auto& [side, layers] :
       {std::pair{"encoder", config.encoder_layers}, std::pair{"decoder", config.decoder_layers}}) {
    const std::string name = side;
    object[name + "_layers"] = layers;
    object[name + "_attention_heads"] = config.heads;
    object[name + "_ffn_dim"] = config.feed_forward;
  }
  return object.dump(2) + "\n";
}

}  // namespace fovea::models
