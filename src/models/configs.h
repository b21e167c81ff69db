// Configs as JSON, in the shape of a Hugging Face config.json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "fovea/models/rnn.h"
#include "fovea/models/transformer.h"

namespace fovea::models {

RnnConfig read_rnn_config(const nlohmann::json& json);
TransformerConfig read_transformer_config(const nlohmann::json& json);
std::string write_config(const RnnConfig& config);
std::string write_config(const TransformerConfig& config);

}  // namespace fovea::models
