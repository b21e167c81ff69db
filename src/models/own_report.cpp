// report_on of translators of ours, and of language models with recurrences, which are of no family.
#include <memory>
#include <set>
#include <string>
#include <variant>

#include "core/excerpt.h"
#include "models/configs.h"
#include "models/family/load.h"

namespace fovea::models {
namespace {

// Gives a model parameters, and compares their shapes with those of a file. Few have values: the memory of a
// matrix is never touched, so the system does not provide it. Each shape is compared before memory is
// reserved, so a config's numbers cannot reserve more than the file has.
class Shapes {
 public:
  explicit Shapes(const files::WeightFile& weights) : weights_(weights) {}

  /// Those of a model, whose shapes are compared. This object must outlive the making of the model.
  nn::ParameterSet parameters() {
    return nn::ParameterSet(
        [this](const std::string& name, const Shape& shape) { return take(name, shape); });
  }
  void check_all_taken() const {
    for (const files::StoredTensor& tensor : weights_.tensors()) {
      if (!taken_.contains(tensor.name))
        throw FileError(tensor.file, -1,
                        "tensor '" + excerpt(tensor.name) + "' belongs to no parameter of the model");
    }
  }

 private:
  Tensor take(const std::string& name, const Shape& shape) {
    const files::StoredTensor* tensor = weights_.find(name);
    if (!tensor) throw FileError(weights_.path(), -1, "tensor '" + name + "' is missing");
    if (!(tensor->shape == shape))
      throw FileError(
          tensor->file, -1,
          "tensor '" + name + "': expected shape " + to_string(shape) + ", got " + to_string(tensor->shape));
    taken_.insert(name);
    Tensor value(DType::f32, shape);
    // What decays follow from (RecurrentMixer::resting_log_decays): biases, and the rates of Mamba's
    // channels.
    if (shape.rank() == 1 || name.ends_with(".A_log")) tensor->copy_to(value.data<float>(), 0, value.count());
    return value;
  }

  const files::WeightFile& weights_;
  std::set<std::string> taken_;
};

// Whether the weights can hold what a config asks for.
template <class Config>
bool has_elements(const Config& config, FolderReport& report) {
  const std::int64_t least = least_elements(config);
  if (least > report.parameters)
    report.refused = "the weights hold " + std::to_string(report.parameters) +
                     " elements, and the model of config.json at least " + std::to_string(least);
  return report.refused.empty();
}

void report_language_model(const ModelFolder& folder, Shapes& shapes, FolderReport& report) {
  const LanguageModelConfig config = read_language_config(folder.config());
  if (!has_elements(config, report)) return;
  const LanguageModel model(config, shapes.parameters());
  shapes.check_all_taken();
  report.layers = layers_keep(model.stack());
}

void report_translator(const ModelFolder& folder, Shapes& shapes, FolderReport& report) {
  const ModelConfig config = read_config(folder.config());
  if (!has_elements(config, report)) return;
  const std::unique_ptr<SequenceToSequence> model = make_model(folder.config(), shapes.parameters());
  shapes.check_all_taken();
  const auto* transformer = std::get_if<TransformerConfig>(&config);
  if (!transformer) return;
  report.layers = model->decoder_keeps();
  for (std::int64_t n = 0; n < transformer->encoder_layers; ++n) {
    const auto& mixers = transformer->encoder_mixers;
    const LayerMixer mixer = mixers.empty() ? LayerMixer::attention : mixers[static_cast<std::size_t>(n)];
    report.encoder_layers.push_back({.mixer = std::string(to_string(mixer)), .decays = {}});
  }
}

}  // namespace

void report_own(const ModelFolder& folder, const files::WeightFile& weights, FolderReport& report) {
  try {
    Shapes shapes(weights);
    if (is_own_language(folder.config()))
      report_language_model(folder, shapes, report);
    else
      report_translator(folder, shapes, report);
    for (const LayerKeeps& layer : report.layers) report.cache_bytes_per_token += layer.bytes_per_token;
  } catch (const Error& error) {
    report.refused = error.what();
  }
}

}  // namespace fovea::models
