// A model on disk: a folder in the layout of Hugging Face's, and its reader.
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

/// Opens a model's folder; every load below uses it. Weights are read when a model is made, and converted to
/// f32.
class ModelFolder {
 public:
  /// Reads config.json. Throws FileError if it cannot be read, is larger than 1 MB, or is not a JSON object.
  explicit ModelFolder(const std::filesystem::path& folder);

  const std::filesystem::path& path() const noexcept { return path_; }
  /// The text of config.json.
  const std::string& config() const noexcept { return config_; }

  /// Make the model. They throw FileError for a config of another kind of model or with features that the
  /// model lacks. They also throw it for missing, unexpected or wrongly shaped tensors, which they name. A
  /// config whose sizes exceed the weights is refused before anything is allocated.
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
/// Copies the tensors named `prefix` + parameter name into the parameters, converted to f32. Each must be
/// there and have the parameter's shape. Throws FileError.
void assign_parameters(const std::string& path, const files::TensorFile& file, const std::string& prefix,
                       nn::ParameterSet& parameters);

}  // namespace fovea::models
