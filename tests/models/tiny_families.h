// Configs of small models of every family, and what reading a folder of one says.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "fovea/models/family.h"
#include "fovea/models/model_folder.h"

namespace fovea::models {

using nlohmann::json;

// The sizes of a config under the names that a family has for them; all else is the default of its class.
inline json tiny_config(std::string_view type) {
  json config{{"model_type", type}, {"pad_token_id", 1}, {"eos_token_id", 2}};
  const std::map<std::string_view, const char*> of_gpt{
      {"gpt2", "GPT2LMHeadModel"}, {"gpt_bigcode", "GPTBigCodeForCausalLM"}, {"gptj", "GPTJForCausalLM"}};
  if (const auto found = of_gpt.find(type); found != of_gpt.end()) {
    config.update({{"vocab_size", 11}, {"n_embd", 8}, {"n_layer", 2}, {"n_head", 2}, {"n_positions", 16}});
    if (type == "gptj") config["rotary_dim"] = 2;
    config["architectures"] = {found->second};
    return config;
  }
  if (type == "gpt_neo") {
    config.update(
        {{"vocab_size", 11}, {"hidden_size", 8}, {"num_layers", 2}, {"num_heads", 2}, {"window_size", 3}});
    config.update({{"max_position_embeddings", 16}, {"attention_types", {{{"global", "local"}, 1}}}});
    return config;
  }
  if (type == "opt") {
    config.update({{"vocab_size", 11}, {"hidden_size", 8}, {"ffn_dim", 12}, {"num_hidden_layers", 2}});
    config.update({{"num_attention_heads", 2}, {"max_position_embeddings", 16}, {"word_embed_proj_dim", 8}});
    return config;
  }
  if (type == "xglm") {
    config.update({{"vocab_size", 11}, {"d_model", 8}, {"ffn_dim", 12}, {"num_layers", 2}});
    config.update({{"attention_heads", 2}, {"max_position_embeddings", 16}});
    return config;
  }
  if (type == "distilbert") {
    config.update({{"vocab_size", 11}, {"dim", 8}, {"hidden_dim", 12}, {"n_layers", 2}, {"n_heads", 2}});
    config["max_position_embeddings"] = 16;
    config["architectures"] = {"DistilBertForMaskedLM"};
    return config;
  }
  if (type == "electra" || type == "albert" || type == "roformer") config["embedding_size"] = 6;
  if (type == "bloom") {
    config.update({{"vocab_size", 11}, {"hidden_size", 8}, {"n_layer", 2}, {"n_head", 2}});
    return config;
  }
  if (type == "mpt") {
    config.update({{"vocab_size", 11}, {"d_model", 8}, {"n_layers", 2}, {"n_heads", 2}});
    config["attn_config"] = {{"alibi", true}, {"softmax_scale", 0.6}};
    return config;
  }
  if (type == "t5" || type == "mt5" || type == "umt5") {
    config.update({{"vocab_size", 11}, {"d_model", 8}, {"d_kv", 4}, {"d_ff", 12}, {"num_layers", 2}});
    config.update({{"num_decoder_layers", 1}, {"num_heads", 2}, {"is_encoder_decoder", true}});
    const std::string name = type == "t5" ? "T5" : type == "mt5" ? "MT5" : "UMT5";
    config["architectures"] = {name + "ForConditionalGeneration"};
    return config;
  }
  if (type == "mamba" || type == "falcon_mamba" || type == "mamba2") {
    config.update({{"vocab_size", 11}, {"hidden_size", 8}, {"num_hidden_layers", 2}, {"state_size", 3}});
    if (type == "mamba2") config.update({{"num_heads", 4}, {"head_dim", 4}, {"n_groups", 2}});
    return config;
  }
  if (family_kind(config.dump()) == FamilyKind::translator) {
    config.update({{"vocab_size", 11}, {"d_model", 8}, {"is_encoder_decoder", true}});
    config.update({{"max_position_embeddings", 16}, {"encoder_layers", 2}, {"decoder_layers", 1}});
    config.update({{"encoder_attention_heads", 2}, {"decoder_attention_heads", 4}});
    config.update({{"encoder_ffn_dim", 12}, {"decoder_ffn_dim", 10}});
    const std::map<std::string_view, const char*> classes{
        {"bart", "BartForConditionalGeneration"},       {"mbart", "MBartForConditionalGeneration"},
        {"plbart", "PLBartForConditionalGeneration"},   {"marian", "MarianMTModel"},
        {"pegasus", "PegasusForConditionalGeneration"}, {"blenderbot", "BlenderbotForConditionalGeneration"},
        {"m2m_100", "M2M100ForConditionalGeneration"}};
    config["architectures"] = {classes.at(type)};
    return config;
  }
  config.update({{"vocab_size", 11},
                 {"hidden_size", 8},
                 {"intermediate_size", 12},
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", 2},
                 {"max_position_embeddings", 18}});
  if (type == "gpt_neox") {
    config["rotary_pct"] = 0.5;
    return config;
  }
  if (type == "falcon") {
    config.erase("intermediate_size");
    return config;
  }
  if (type == "biogpt") return config;
  if (type == "ernie") config["use_task_id"] = true;
  if (type.starts_with("modernbert")) {
    config["local_attention"] = 4;
    return config;
  }
  if (family_kind(config.dump()) == FamilyKind::decoder) config["num_key_value_heads"] = 1;
  if (type == "qwen3" || type == "vaultgemma" || type.starts_with("gemma")) config["head_dim"] = 6;
  if (type == "cwm") config["head_dim"] = 8;
  if (type == "cwm" || type == "vaultgemma") config["sliding_window"] = 3;
  if (type.starts_with("gemma2") || type.starts_with("gemma3")) config["sliding_window"] = 3;
  if (type == "mistral" || type == "ministral" || type == "exaone4" || type == "cohere2" || type == "olmo3")
    config["sliding_window"] = 3;
  if (type == "stablelm") config["partial_rotary_factor"] = 0.5;
  if (type == "nemotron") config["partial_rotary_factor"] = 0.5;
  for (const std::string_view wide : {"glm", "glm4", "helium", "ernie4_5", "seed_oss"}) {
    if (type == wide) config["head_dim"] = 8;
  }
  if (type == "qwen3_5_text") {
    config.update({{"head_dim", 8}, {"linear_key_head_dim", 3}, {"linear_value_head_dim", 2}});
    config.update({{"linear_num_key_heads", 2}, {"linear_num_value_heads", 4}});
    config["layer_types"] = {"linear_attention", "full_attention"};
  }
  return config;
}

inline std::string refusal(const json& config) {
  std::string text;
  try {
    for (const ConfigProblem& problem : read_family(config.dump()).problems)
      text += problem.key + ": expected " + problem.expected + ", got " + problem.got + "\n";
  } catch (const InvalidArgument& error) {
    text = error.what();
  }
  return text;
}

inline FamilyKind kind_of(const ModelFolder& folder) {
  return family_kind(folder.config()).value_or(FamilyKind::decoder);
}

// The parameters of the model of a folder, which `use` gets as long as the model lives.
template <class Use>
void with_model(const ModelFolder& folder, Use&& use, ModelFolder::Packed packed = {}) {
  if (kind_of(folder) == FamilyKind::encoder)
    use(folder.text_encoder(packed).parameters());
  else if (kind_of(folder) == FamilyKind::translator)
    use(folder.sequence_to_sequence(packed)->parameters());
  else
    use(folder.language_model(packed).parameters());
}

inline std::string loaded(const std::filesystem::path& folder) {
  try {
    with_model(ModelFolder(folder), [](const nn::ParameterSet&) {});
  } catch (const FileError& error) {
    return error.what();
  }
  return "";
}

}  // namespace fovea::models
