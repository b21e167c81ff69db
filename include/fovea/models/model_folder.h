// A model on disk: a folder in the shape of Hugging Face's, which one reader opens.
//   config.json         what model it is
//   model.safetensors   its weights, or shards of them beside model.safetensors.index.json
//   vocab.json, spm.model   its tokenizer (text::load_tokenizer), where it has one
//   training.json       curves and options of its training, where `fovea train` made it
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "fovea/files/safetensors.h"
#include "fovea/models/language_model.h"
#include "fovea/models/sequence_to_sequence.h"

namespace fovea::models {

/// Every load below and every program that opens a model goes through it. Weights are read when a model is
/// asked for; of any dtype that safetensors may have here, they become f32.
class ModelFolder {
 public:
  /// Reads config.json. Throws FileError where it cannot be read, is larger than 1 MB, or is no JSON object.
  explicit ModelFolder(const std::filesystem::path& folder);

  const std::filesystem::path& path() const noexcept { return path_; }
  /// The text of config.json.
  const std::string& config() const noexcept { return config_; }

  /// Throw FileError: a config of another kind of model or one that asks for what the model lacks; missing,
  /// unexpected or wrongly shaped tensors are named. A config whose numbers are larger than the weights is
  /// refused before anything is allocated by them.
  std::unique_ptr<SequenceToSequence> sequence_to_sequence() const;
  LanguageModel language_model() const;

 private:
  std::filesystem::path path_;
  std::string config_;
};

/// folder/config.json.
std::filesystem::path config_path(const std::filesystem::path& folder);
/// folder/training.json.
std::filesystem::path training_path(const std::filesystem::path& folder);

/// folder/config.json and folder/model.safetensors.
void save_model(const std::string& folder, const SequenceToSequence& model);
/// ModelFolder(folder).sequence_to_sequence().
std::unique_ptr<SequenceToSequence> load_model(const std::string& folder);
/// Copies tensors named `prefix` + parameter name into the parameters, converted to f32; each must be there,
/// of the right shape. Throws FileError.
void assign_parameters(const std::string& path, const files::TensorFile& file, const std::string& prefix,
                       nn::ParameterSet& parameters);

}  // namespace fovea::models
