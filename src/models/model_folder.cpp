// Models on disk: a folder of config.json and model.safetensors.
#include <algorithm>
#include <filesystem>

#include "fovea/models/weights.h"
#include "models/configs.h"

namespace fovea::models {
namespace {

// Parameters are f32; files of other libraries may hold them wider or narrower.
void convert(const Tensor& from, Tensor& to) {
  const auto copy = [&]<class T>(const T* values) {
    std::transform(values, values + from.count(), to.data<float>(),
                   [](T x) { return static_cast<float>(x); });
  };
  switch (from.dtype()) {
    case DType::f32:
      return copy(from.data<float>());
    case DType::f64:
      return copy(from.data<double>());
    case DType::bf16:
      return copy(from.data<bfloat16>());
    case DType::f16:
      return copy(from.data<float16>());
  }
}

void save(const std::string& folder, const nn::ParameterSet& parameters, const std::string& config) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw FileError(folder, -1, "cannot be made: " + error.message());
  TensorFile file;
  file.metadata["format"] = "pt";  // what readers of the format look for: plain row-major tensors
  for (const nn::Parameter& parameter : parameters.all())
    file.tensors.push_back({parameter.name, parameter.value});
  save_safetensors(folder + "/model.safetensors", file);
  write_file_atomically(folder + "/config.json", config);
}

// The model of a folder: `read` makes a config of config.json's text, `make` a model of the config.
template <class Read, class Make>
auto load(const std::string& folder, Read&& read, Make&& make) {
  const std::string config_path = folder + "/config.json", weights = folder + "/model.safetensors";
  const std::string text = read_file(config_path, 1u << 20);
  const TensorFile file = load_safetensors(weights);
  std::int64_t elements = 0;
  for (const NamedTensor& named : file.tensors) elements += named.tensor.count();
  auto model = [&] {
    try {
      const auto config = read(text);
      const std::int64_t least = least_elements(config);
      if (least > elements) {
        throw FileError(weights, -1,
                        "holds " + std::to_string(elements) +
                            " elements, and the model of config.json at least " + std::to_string(least));
      }
      return make(text, config);
    } catch (const InvalidArgument& error) {
      throw FileError(config_path, -1, error.what());
    }
  }();
  assign_parameters(weights, file, "", model->parameters());
  for (const NamedTensor& named : file.tensors) {
    if (!model->parameters().contains(named.name))
      throw FileError(weights, -1, "tensor '" + named.name + "' belongs to no parameter of the model");
  }
  return model;
}

}  // namespace

void save_model(const std::string& folder, const SequenceToSequence& model) {
  save(folder, model.parameters(), model.config());
}

std::unique_ptr<SequenceToSequence> load_model(const std::string& folder) {
  return load(folder, read_config,
              [](const std::string& text, const ModelConfig&) { return make_model(text, 0); });
}

void save_model(const std::string& folder, const LanguageModel& model) {
  save(folder, model.parameters(), write_config(model.config()));
}

LanguageModel load_language_model(const std::string& folder) {
  return std::move(
      *load(folder, read_language_config, [](const std::string&, const LanguageModelConfig& config) {
        return std::make_unique<LanguageModel>(config, 0);
      }));
}

void assign_parameters(const std::string& path, const TensorFile& file, const std::string& prefix,
                       nn::ParameterSet& parameters) {
  for (nn::Parameter& parameter : parameters.all()) {
    const Tensor* tensor = file.find(prefix + parameter.name);
    if (!tensor) throw FileError(path, -1, "tensor '" + prefix + parameter.name + "' is missing");
    if (!(tensor->shape() == parameter.value.shape())) {
      throw FileError(path, -1,
                      "tensor '" + prefix + parameter.name + "': expected shape " +
                          to_string(parameter.value.shape()) + ", got " + to_string(tensor->shape()));
    }
    convert(*tensor, parameter.value);
  }
}

}  // namespace fovea::models
