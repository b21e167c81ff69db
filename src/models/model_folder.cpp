#include "fovea/models/model_folder.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "core/excerpt.h"
#include "files/json_scanner.h"
#include "fovea/core/profile.h"
#include "fovea/files/bytes.h"
#include "models/configs.h"
#include "models/family/load.h"
#include "models/family/tensors.h"
#include "models/family/todays_config.h"
#include "models/read_packed.h"

namespace fovea::models {
namespace {

constexpr std::size_t longest_config = std::size_t{1} << 20;

bool is_gguf(const std::filesystem::path& file) {
  std::string suffix = file.extension().string();
  for (char& letter : suffix) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return suffix == ".gguf";
}

// The text of a folder's config.json. Throws FileError, which says what the path is instead of such a folder.
std::string read_config_text(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  const auto refuse = [&](const std::string& reason) {
    throw FileError(folder.empty() ? "''" : folder.string(), -1, reason);
  };
  std::error_code error;
  const fs::file_type type = fs::status(folder, error).type();
  if (type == fs::file_type::not_found) refuse("there is no such folder");
  if (!error && type != fs::file_type::directory)
    refuse(std::string(is_gguf(folder) ? "GGUF is not read" : "is a file") +
           "; expected a folder with config.json and model.safetensors");
  if (fs::status(config_path(folder), error).type() == fs::file_type::not_found)
    refuse("expected a model's folder with config.json, which is missing");
  return files::read_file(config_path(folder), longest_config);
}

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

// From a parameter's name to its name in the file.
using Rename = std::string (*)(const std::string& parameter);

std::string as_it_is(const std::string& parameter) {
  return parameter;
}

std::string as_starcoder(const std::string& parameter) {
  static const Family& family = *find_family("starcoder2");
  return name_in_family(family, family.defaults, parameter);
}

void save(const std::string& folder, const nn::ParameterSet& parameters, Rename rename,
          const std::string& config) {
  static constexpr ProfileLabel label{"writing a model", ProfilePart::data};
  const ProfileSpan span(label);
  check_not_read_packed(parameters);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw FileError(folder, -1, "cannot be made: " + error.message());
  files::TensorFile file;
  file.metadata["format"] = "pt";  // what readers of the format look for: plain row-major tensors
  for (const nn::Parameter& parameter : parameters.all())
    file.tensors.push_back({rename(parameter.name), parameter.value});
  files::save_safetensors(folder + "/model.safetensors", file);
  files::write_file(config_path(folder), config);
}

const Shape& shape_of(const files::NamedTensor& named) {
  return named.tensor.shape();
}
const Shape& shape_of(const files::StoredTensor& stored) {
  return stored.shape;
}

// The tensors of a file, by name.
template <class Named>
class Tensors {
 public:
  Tensors(std::string path, std::span<const Named> tensors) : path_(std::move(path)), tensors_(tensors) {
    for (const Named& named : tensors) by_name_.emplace(named.name, &named);
  }

  const std::string& path() const { return path_; }
  const Named& at(const std::string& name, const Shape& shape) const {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) throw FileError(path_, -1, "tensor '" + name + "' is missing");
    if (!(shape_of(*found->second) == shape)) {
      throw FileError(path_, -1,
                      "tensor '" + name + "': expected shape " + to_string(shape) + ", got " +
                          to_string(shape_of(*found->second)));
    }
    return *found->second;
  }
  std::int64_t elements() const {
    std::int64_t sum = 0;
    for (const Named& named : tensors_) sum += shape_of(named).count();
    return sum;
  }
  /// Throws FileError unless every tensor of the file is the value of a parameter.
  void check_all_belong(const nn::ParameterSet& parameters, Rename rename) const {
    std::set<std::string> names;
    for (const nn::Parameter& parameter : parameters.all()) names.insert(rename(parameter.name));
    for (const Named& named : tensors_) {
      if (!names.contains(named.name))
        throw FileError(path_, -1,
                        "tensor '" + excerpt(named.name) + "' belongs to no parameter of the model");
    }
  }

 private:
  std::string path_;
  std::span<const Named> tensors_;
  std::map<std::string_view, const Named*> by_name_;
};

// The model of a folder: `read` makes a config of config.json's text, `make` a model of the config and of the
// values that `value_of` gives.
template <class Named, class Read, class Make>
auto make_with(const ModelFolder& folder, const Tensors<Named>& tensors, Rename rename, Read&& read,
               Make&& make, const nn::ParameterSet::Source& value_of) {
  auto model = [&] {
    try {
      const auto config = read(folder.config());
      const std::int64_t least = least_elements(config), elements = tensors.elements();
      if (least > elements) {
        throw FileError(tensors.path(), -1,
                        "holds " + std::to_string(elements) +
                            " elements, and the model of config.json at least " + std::to_string(least));
      }
      return make(config, nn::ParameterSet(value_of));
    } catch (const InvalidArgument& error) {
      throw FileError(config_path(folder.path()).string(), -1, error.what());
    }
  }();
  tensors.check_all_belong(model->parameters(), rename);
  model->parameters().seal();
  return model;
}

// A model whose values are copies, as training needs them.
template <class Read, class Make>
auto load(const ModelFolder& folder, Rename rename, Read&& read, Make&& make) {
  const std::string weights = files::find_weights(folder.path()).string();
  const files::TensorFile file = files::load_weights(weights);
  const Tensors<files::NamedTensor> tensors(weights, file.tensors);
  return make_with(folder, tensors, rename, read, make,
                   [&](const std::string& parameter, const Shape& shape) {
                     const Tensor& tensor = tensors.at(rename(parameter), shape).tensor;
                     if (tensor.dtype() == DType::f32) return tensor;
                     Tensor value(DType::f32, shape);
                     convert(tensor, value);
                     return value;
                   });
}

// What a tensor of ours has been written in: 8-bit floats come from other libraries alone.
bool is_number_of_tensors(files::StoredType type) {
  using enum files::StoredType;
  return type == f32 || type == f64 || type == bf16 || type == f16;
}

// A model that is packed from the mapped file.
template <class Read, class Make>
auto load_packed(const ModelFolder& folder, Read&& read, Make&& make, autograd::WeightType type) {
  const files::WeightFile file(files::find_weights(folder.path()));
  const Tensors<files::StoredTensor> tensors(file.path(), file.tensors());
  std::map<std::string, const files::StoredTensor*> stored;  // by the name of the parameter
  auto model =
      make_with(folder, tensors, as_it_is, read, make, [&](const std::string& parameter, const Shape& shape) {
        const files::StoredTensor& tensor = tensors.at(parameter, shape);
        if (!is_number_of_tensors(tensor.type))
          throw FileError(tensor.file, -1,
                          "tensor '" + excerpt(tensor.name) + "': expected F32, F64, BF16 or F16, got " +
                              std::string(to_string(tensor.type)));
        stored[parameter] = &tensor;
        return Tensor::without_elements(DType::f32, shape);
      });
  reserve_packed(model->parameters(), type);
  for (nn::Parameter& parameter : model->parameters().all()) {
    const files::StoredTensor& tensor = *stored.at(parameter.name);
    const auto copy_rows = [&](std::int64_t first, std::int64_t count, float* to) {
      tensor.read_to(to, first * tensor.shape[1], count * tensor.shape[1]);
    };
    read_packed({.tensor = &tensor,
                 .shape = tensor.shape,
                 .copy = [&](float* to) { tensor.read_to(to, 0, tensor.shape.count()); },
                 .copy_rows = copy_rows},
                type, parameter);
  }
  return model;
}

}  // namespace

void save_model(const std::string& folder, const SequenceToSequence& model) {
  save(folder, model.parameters(), as_it_is, model.config());
}

ModelFolder::ModelFolder(const std::filesystem::path& folder)
    : path_(folder), config_(with_float_objects(read_config_text(folder))) {
  files::check_json_object(config_path(folder).string(), config_, config_depth);
}

std::unique_ptr<SequenceToSequence> ModelFolder::sequence_to_sequence(Packed packed) const {
  static constexpr ProfileLabel label{"reading a model", ProfilePart::data};
  const ProfileSpan span(label);
  if (!is_own_translator(config_)) return family_translator(*this, packed);  // or says what else it has
  const auto make = [this](const ModelConfig&, nn::ParameterSet parameters) {
    return make_model(config_, std::move(parameters));
  };
  return packed ? load_packed(*this, read_config, make, *packed) : load(*this, as_it_is, read_config, make);
}

std::unique_ptr<SequenceToSequence> load_model(const std::string& folder) {
  return ModelFolder(folder).sequence_to_sequence();
}

namespace {

// Starcoder2's embeddings have no factor sqrt(dim). Its model is equal to ours with embeddings multiplied by
// that factor and a last layer norm divided by it: the logits are products of the two.
void multiply(nn::ParameterSet& parameters, float embeddings, float last_norm) {
  const std::pair<const char*, float> factors[] = {{"model.embed_tokens.weight", embeddings},
                                                   {"model.layer_norm.weight", last_norm},
                                                   {"model.layer_norm.bias", last_norm}};
  for (const auto& [name, factor] : factors) {
    Tensor& value = parameters.at(name).value;
    float* x = value.data<float>();
    std::transform(x, x + value.count(), x, [f = factor](float element) { return element * f; });
  }
}

float embedding_factor(const LanguageModel& model) {
  return std::sqrt(static_cast<float>(model.config().dim));
}

}  // namespace

void save_model(const std::string& folder, const LanguageModel& model) {
  if (!model.has_config())
    throw InvalidArgument("save_model", "model",
                          "one made of a LanguageModelConfig; others have save_model(folder, config, "
                          "parameters)",
                          "one made of a LanguageModelSpec");
  if (!model.config().mixers.empty())
    return save(folder, model.parameters(), as_it_is, write_config(model.config()));
  check_not_read_packed(model.parameters());
  nn::ParameterSet theirs(0);
  for (const nn::Parameter& parameter : model.parameters().all())
    theirs.constant(parameter.name, parameter.value.shape(), 0.0f).value = parameter.value.clone();
  const float factor = embedding_factor(model);
  multiply(theirs, factor, 1.0f / factor);
  save(folder, theirs, as_starcoder, write_config(model.config()));
}

namespace {

// What save_model wrote: its LanguageModel has embeddings with a factor, and can be trained on.
bool is_own(const std::string& config) {
  // Most folders are of other families. An exception would bring 0.5 MB of code and its tables into memory.
  if (!may_be_starcoder(config)) return false;
  try {
    read_language_config(config);
    return true;
  } catch (const InvalidArgument&) {
    return false;
  }
}

}  // namespace

void ModelFolder::check_runs() const {
  if (!is_own_translator(config_) && !is_own_language(config_) && !is_own(config_)) config_of(*this);
}

LanguageModel ModelFolder::language_model(Packed packed) const {
  static constexpr ProfileLabel label{"reading a model", ProfilePart::data};
  const ProfileSpan span(label);
  const auto make = [](const LanguageModelConfig& config, nn::ParameterSet parameters) {
    return std::make_unique<LanguageModel>(config, std::move(parameters));
  };
  if (!is_own_language(config_) && !is_own(config_)) return family_language_model(*this, packed);
  const bool ours = is_own_language(config_);
  if (ours && packed) return std::move(*load_packed(*this, read_language_config, make, *packed));
  auto model = load(*this, ours ? as_it_is : as_starcoder, read_language_config, make);
  if (!ours) {
    const float factor = embedding_factor(*model);
    multiply(model->parameters(), 1.0f / factor, factor);
  }
  if (packed) model->parameters().pack(*packed);
  return std::move(*model);
}

TextEncoder ModelFolder::text_encoder(Packed packed) const {
  static constexpr ProfileLabel label{"reading a model", ProfilePart::data};
  const ProfileSpan span(label);
  return family_text_encoder(*this, packed);
}

LanguageModel load_language_model(const std::string& folder) {
  return ModelFolder(folder).language_model();
}

std::filesystem::path config_path(const std::filesystem::path& folder) {
  return folder / "config.json";
}

std::filesystem::path training_path(const std::filesystem::path& folder) {
  return folder / "training.json";
}

void assign_parameters(const std::string& path, const files::TensorFile& file, const std::string& prefix,
                       nn::ParameterSet& parameters) {
  const Tensors<files::NamedTensor> tensors(path, file.tensors);
  for (nn::Parameter& parameter : parameters.all())
    convert(tensors.at(prefix + parameter.name, parameter.value.shape()).tensor, parameter.value);
}

}  // namespace fovea::models
