// config.json as transformers 5 writes it.
#pragma once

#include <string>

#include "fovea/core/dtype.h"
#include "fovea/models/transformer.h"

namespace fovea::models {

/// A config of a family with today's keys in place of those of transformers 4: dtype, rope_parameters and
/// layer_types. `type` is that of the weights. The text is one that read_family takes.
std::string todays_config(const std::string& text, DType type);

/// The MarianConfig of a translator of ours with post-norm layers and sinusoidal positions.
std::string marian_config(const TransformerConfig& config);

/// The text of a config.json in which Infinity, -Infinity and NaN, which are no JSON, are the objects
/// {"__float__": "Infinity"} of today. transformers wrote the bare words before its version 5, for Mamba-2.
std::string with_float_objects(const std::string& text);

}  // namespace fovea::models
