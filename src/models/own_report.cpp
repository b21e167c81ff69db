// report_on of a language model with recurrences, which is ours and of no family.
#include <map>
#include <string_view>
#include <variant>

#include "models/configs.h"
#include "models/family/load.h"

namespace fovea::models {
namespace {

// The first tensor that is missing or has another shape; "" if all fit.
std::string difference(const nn::ParameterSet& parameters, const files::WeightFile& weights) {
  std::map<std::string_view, const Shape*> shapes;
  for (const files::StoredTensor& tensor : weights.tensors()) shapes.emplace(tensor.name, &tensor.shape);
  for (const nn::Parameter& parameter : parameters.all()) {
    const auto found = shapes.find(parameter.name);
    if (found == shapes.end()) return "tensor '" + parameter.name + "' is missing";
    if (!(*found->second == parameter.value.shape()))
      return "tensor '" + parameter.name + "': expected shape " + to_string(parameter.value.shape()) +
             ", got " + to_string(*found->second);
  }
  return "";
}

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
    const LanguageModel model(config, 0);
    report.refused = difference(model.parameters(), weights);
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
  } catch (const InvalidArgument& error) {
    report.refused = error.what();
  }
}

}  // namespace fovea::models
