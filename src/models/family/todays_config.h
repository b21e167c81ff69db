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

}  // namespace fovea::models
