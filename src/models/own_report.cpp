// report_on of a language model with recurrences, which is ours and of no family.
#include <set>
#include <string>
#include <variant>

#include "core/excerpt.h"
#include "models/configs.h"
#include "models/family/load.h"

namespace fovea::models {
namespace {

// Gives a model parameters without values, and compares their shapes with those of a file. The memory of a
// parameter is never touched, so the system does not provide it. Each shape is compared before memory is
// reserved, so a config's numbers cannot reserve more than the file has.
class Shapes {
 public:
  explicit Shapes(const files::WeightFile& weights) : weights_(weights) {}

  Tensor take(const std::string& name, const Shape& shape) {
    const files::StoredTensor* tensor = weights_.find(name);
    if (!tensor) throw FileError(weights_.path(), -1, "tensor '" + name + "' is missing");
    if (!(tensor->shape == shape))
      throw FileError(
          tensor->file, -1,
          "tensor '" + name + "': expected shape " + to_string(shape) + ", got " + to_string(tensor->shape));
    taken_.insert(name);
    return Tensor(DType::f32, shape);
  }
  void check_all_taken() const {
    for (const files::StoredTensor& tensor : weights_.tensors()) {
      if (!taken_.contains(tensor.name))
        throw FileError(tensor.file, -1,
                        "tensor '" + excerpt(tensor.name) + "' belongs to no parameter of the model");
    }
  }

 private:
  const files::WeightFile& weights_;
  std::set<std::string> taken_;
};

}  // namespace

void report_own(const ModelFolder& folder, const files::WeightFile& weights, FolderReport& report) {
  try {
    const LanguageModelConfig config = read_language_config(folder.config());
    if (least_elements(config) > report.parameters) {
      report.refused = "the weights hold " + std::to_string(report.parameters) +
                       " elements, and the model of config.json at least " +
                       std::to_string(least_elements(config));
      return;
    }
    Shapes shapes(weights);
    const LanguageModel model(config, nn::ParameterSet([&](const std::string& name, const Shape& shape) {
                                return shapes.take(name, shape);
                              }));
    shapes.check_all_taken();
    const std::vector<CacheLayer> layers = model.cache_layers();
    for (std::size_t n = 0; n < layers.size(); ++n) {
      const auto element = static_cast<std::int64_t>(size_of(layers[n].dtype));
      LayerKeeps& layer = report.layers.emplace_back(LayerKeeps{std::string(to_string(config.mixers[n]))});
      if (std::holds_alternative<LastRow>(layers[n].store))
        layer.state_bytes = layers[n].head_dim * element;
      else
        layer.bytes_per_token = layers[n].num_kv_heads * 2 * layers[n].head_dim * element;
      report.cache_bytes_per_token += layer.bytes_per_token;
    }
  } catch (const Error& error) {
    report.refused = error.what();
  }
}

}  // namespace fovea::models
