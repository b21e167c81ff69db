// Models on disk: a folder of config.json and model.safetensors.
#pragma once

#include <memory>
#include <string>

#include "fovea/files/safetensors.h"
#include "fovea/models/sequence_to_sequence.h"

namespace fovea::models {

/// folder/config.json and folder/model.safetensors.
void save_model(const std::string& folder, const SequenceToSequence& model);
/// Throws FileError: missing, unexpected or wrongly shaped tensors are named.
std::unique_ptr<SequenceToSequence> load_model(const std::string& folder);
/// Copies tensors named `prefix` + parameter name into the parameters, converted to f32; each must be there,
/// of the right shape. Throws FileError.
void assign_parameters(const std::string& path, const files::TensorFile& file, const std::string& prefix,
                       nn::ParameterSet& parameters);

}  // namespace fovea::models
