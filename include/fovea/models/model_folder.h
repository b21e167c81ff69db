// A model on disk: a folder in the layout of Hugging Face's, and its reader.
//   config.json         what model it is
//   model.safetensors   its weights, or shards of them beside model.safetensors.index.json
//   vocab.json, spm.model   its tokenizer (text::load_tokenizer), where it has one
//   tokenizer.json      instead of them, the tokenizer of another library (text::read_folder_tokenizer)
//   modules.json        how texts become vectors, of sentence-transformers (read_sentence_folder)
//   training.json       curves and options of its training, where `fovea train` made it
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fovea/files/safetensors.h"
#include "fovea/models/beam_search.h"
#include "fovea/models/family.h"
#include "fovea/models/language_model.h"
#include "fovea/models/sequence_to_sequence.h"
#include "fovea/models/text_encoder.h"
#include "fovea/models/transformer.h"

namespace fovea::models {

/// What generation_config.json says, and where it says nothing config.json.
struct GenerationDefaults {
  std::string file;                      ///< the one that says how texts are written
  std::vector<std::int32_t> stop_ids;    ///< a text ends with any of them
  std::optional<std::int32_t> start_id;  ///< what a translator's decoder reads first
  std::vector<std::string> not_applied;  ///< "key = value of file" of what changes texts and is not done here
  /// How tokens are chosen, and how many; nothing without a generation_config.json. Without do_sample it is
  /// greedily.
  std::optional<SampleOptions> sample;
  std::optional<DrawOptions> draws;  ///< with do_sample: how ids are drawn
  std::int64_t beams = 1;            ///< num_beams
  double length_penalty = 1.0;       ///< of beams, as early_stopping
  double repetition_penalty = 1.0;
  EarlyStopping early_stopping = EarlyStopping::off;
  TokenRules rules;  ///< also without a generation_config.json
  /// The tokens to write at most, and the tokens of the prompt and the text together.
  std::optional<std::int64_t> max_new, max_length;
  std::string prefix;  ///< of a task: what stands before each text
};

/// Opens a model's folder; every load below uses it. Weights are read when a model is made, and converted to
/// f32.
class ModelFolder {
 public:
  /// Reads config.json. Throws FileError if it cannot be read, is larger than 1 MB, or is not a JSON object.
  explicit ModelFolder(const std::filesystem::path& folder);

  const std::filesystem::path& path() const noexcept { return path_; }
  /// The text of config.json.
  const std::string& config() const noexcept { return config_; }

  /// Throws FileError where the config is neither that of a model of ours nor of one that read_family runs.
  /// It names each key and says what is missing. A command that asks for the kind of a model calls it first.
  /// A folder that does not run has no kind, and an error about an option would be untrue.
  void check_runs() const;

  /// Make the model. They throw FileError for a config of another kind of model or with features that the
  /// model lacks. They also throw it for missing, unexpected or wrongly shaped tensors, which they name. A
  /// config whose sizes exceed the weights is refused before anything is allocated.
  /// With `packed` the weights are those of ParameterSet::pack. They are then packed while the file is read,
  /// and no f32 copy of a matrix is ever in memory. Such a model is for inference alone, and cannot be saved.
  /// The files of weights stay open, because rows of embeddings are read from them, and may not be cut
  /// meanwhile. A language model of ours in Starcoder2's form keeps its values.
  using Packed = std::optional<autograd::WeightType>;
  /// Of ours, or a translator of a family.
  std::unique_ptr<SequenceToSequence> sequence_to_sequence(Packed packed = {}) const;
  /// A language model of ours, or of a family that read_family knows (models/family.h).
  LanguageModel language_model(Packed packed = {}) const;
  /// An encoder of a family.
  TextEncoder text_encoder(Packed packed = {}) const;
  /// What the folder says about generation. Throws FileError for a generation_config.json that is no JSON
  /// object, or larger than 1 MB, and for numbers outside their ranges.
  GenerationDefaults generation() const;
  /// The same for a task of config.json's task_specific_params, such as "summarization", whose values count
  /// before the others. Throws FileError for a task that is not there.
  GenerationDefaults generation_for(const std::string& task) const;
  /// The names of its tasks.
  std::vector<std::string> tasks() const;
  /// What the decoder of a translator reads first. Throws FileError where no file says it.
  std::int32_t decoder_start() const;
  /// How a translator of another library searches for its texts, or draws them with do_sample. They are no
  /// longer than its positions.
  /// Throws FileError where no file says which id the decoder reads first, and which ends a text.
  TranslatorBeams translator_beams(const GenerationDefaults& defaults) const;

 private:
  std::filesystem::path path_;
  std::string config_;
};

/// What a model of a family is made of; `config` has no problems (read_family). Whether an output matrix is
/// its own is decided by the file of weights, which counts if it has one; here the config decides.
LanguageModelSpec language_model_spec(const FamilyConfig& config);
TextEncoderSpec text_encoder_spec(const FamilyConfig& config);
TranslatorSpec translator_spec(const FamilyConfig& config);
/// Writes a folder that ModelFolder and transformers read: `config` as config.json, and the parameters of a
/// model of its family under the family's names, in f32. Throws InvalidArgument for a config of no family and
/// for parameters that it does not have or that were read packed, and FileError.
void save_model(const std::string& folder, const std::string& config, const nn::ParameterSet& parameters);

/// What a folder is, as far as can be seen without reading its weights.
struct FolderReport {
  std::string model_type;
  std::optional<FamilyConfig> config;                   ///< of a family that read_family knows
  std::vector<ConfigProblem> problems;                  ///< of its config.json
  std::string refused;                                  ///< why the model cannot be run; "" if it can
  std::int64_t tensors = 0, parameters = 0, bytes = 0;  ///< in the files of weights
  std::map<std::string, std::int64_t> types;            ///< elements of each type, such as "BF16"
  std::int64_t cache_bytes_per_token = 0;               ///< of keys and values; 0 for an encoder
  /// Of a language model with recurrences, and of a translator of ours those of its decoder and what its
  /// encoder mixes by.
  std::vector<LayerKeeps> layers, encoder_layers;
};
/// Checks names and shapes of all tensors, and reads no element of a matrix but the rates of decays. A folder
/// without weights is reported if its config is refused. Throws FileError for one whose config is not, and
/// for files that cannot be read.
FolderReport report_on(const ModelFolder& folder);

/// folder/config.json.
std::filesystem::path config_path(const std::filesystem::path& folder);
/// folder/training.json.
std::filesystem::path training_path(const std::filesystem::path& folder);

/// folder/config.json and folder/model.safetensors. Throws FileError, and InvalidArgument for a model that
/// was read packed.
void save_model(const std::string& folder, const SequenceToSequence& model);
/// ModelFolder(folder).sequence_to_sequence().
std::unique_ptr<SequenceToSequence> load_model(const std::string& folder);
/// Copies the tensors named `prefix` + parameter name into the parameters, converted to f32. Each must be
/// there and have the parameter's shape. Throws FileError.
void assign_parameters(const std::string& path, const files::TensorFile& file, const std::string& prefix,
                       nn::ParameterSet& parameters);

}  // namespace fovea::models
