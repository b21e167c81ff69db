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

}  // namespace

void save_model(const std::string& folder, const SequenceToSequence& model) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw FileError(folder, -1, "cannot be made: " + error.message());
  TensorFile file;
  file.metadata["format"] = "pt";  // what readers of the format look for: plain row-major tensors
  for (const nn::Parameter& parameter : model.parameters().all())
    file.tensors.push_back({parameter.name, parameter.value});
  save_safetensors(folder + "/model.safetensors", file);
  write_file_atomically(folder + "/config.json", model.config());
}

std::unique_ptr<SequenceToSequence> load_model(const std::string& folder) {
  const std::string config = folder + "/config.json", weights = folder + "/model.safetensors";
  const std::string text = read_file(config, 1u << 20);
  const TensorFile file = load_safetensors(weights);
  std::int64_t elements = 0;
  for (const NamedTensor& named : file.tensors) elements += named.tensor.count();
  std::unique_ptr<SequenceToSequence> model;
  try {
    const std::int64_t least = least_elements(read_config(text));
    if (least > elements) {
      throw FileError(weights, -1,
                      "holds " + std::to_string(elements) +
                          " elements, and the model of config.json at least " + std::to_string(least));
    }
    model = make_model(text, 0);
  } catch (const InvalidArgument& error) {
    throw FileError(config, -1, error.what());
  }
  assign_parameters(weights, file, "", model->parameters());
  for (const NamedTensor& named : file.tensors) {
    if (!model->parameters().contains(named.name))
      throw FileError(weights, -1, "tensor '" + named.name + "' belongs to no parameter of the model");
  }
  return model;
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
