#include "fovea/models/convert.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "core/excerpt.h"
#include "files/json.h"
#include "fovea/core/error.h"
#include "fovea/files/bytes.h"
#include "fovea/files/weights.h"
#include "fovea/models/model_folder.h"
#include "models/configs.h"
#include "models/family/tensors.h"
#include "models/family/todays_config.h"

namespace fovea::models {
namespace {

namespace fs = std::filesystem;
using files::StoredTensor;
using files::StoredType;
using nlohmann::json;

DType type_of(const StoredTensor& tensor, const ConvertOptions& options) {
  if (options.type) return *options.type;
  return tensor.type == StoredType::bf16  ? DType::bf16
         : tensor.type == StoredType::f16 ? DType::f16
                                          : DType::f32;
}

[[noreturn]] void refuse_overflow(const std::string& file, const std::string& name) {
  throw FileError(file, -1, "tensor '" + excerpt(name) + "' has a number that f16 cannot hold");
}

// f32 elements, rounded.
template <class T>
Tensor rounded(const float* x, const Shape& shape, const std::string& file, const std::string& name) {
  Tensor result(dtype_of<T>, shape);
  T* y = result.data<T>();
  for (std::int64_t i = 0; i < shape.count(); ++i) {
    y[i] = T(x[i]);
    if (std::isfinite(x[i]) && !std::isfinite(static_cast<float>(y[i]))) refuse_overflow(file, name);
  }
  return result;
}

Tensor as_type(const Tensor& f32, DType type, const std::string& file, const std::string& name) {
  const float* x = f32.data<float>();
  if (type == DType::bf16) return rounded<bfloat16>(x, f32.shape(), file, name);
  if (type == DType::f16) return rounded<float16>(x, f32.shape(), file, name);
  return f32;
}

// Elements of the type that is wanted are copied, so that they keep their bits.
Tensor read(const StoredTensor& tensor, DType type) {
  const std::pair<StoredType, DType> equal[] = {
      {StoredType::f32, DType::f32}, {StoredType::bf16, DType::bf16}, {StoredType::f16, DType::f16}};
  if (std::find(std::begin(equal), std::end(equal), std::pair(tensor.type, type)) != std::end(equal)) {
    Tensor copy(type, tensor.shape);
    if (!tensor.bytes.empty()) std::memcpy(copy.raw(), tensor.bytes.data(), tensor.bytes.size());
    return copy;
  }
  Tensor wide(DType::f32, tensor.shape);
  tensor.copy_to(wide.data<float>(), 0, tensor.shape.count());
  return as_type(wide, type, tensor.file, tensor.name);
}

// Norms of the first BERT files.
std::string todays_name(std::string name) {
  for (const auto& [before, now] :
       {std::pair<std::string_view, std::string_view>{".gamma", ".weight"}, {".beta", ".bias"}}) {
    if (name.ends_with(before)) name.replace(name.size() - before.size(), before.size(), now);
  }
  return name;
}

// Whether a file repeats the embeddings as an output matrix that the config ties to them.
bool is_tied_copy(const StoredTensor& tensor, const FamilyConfig& config, const FamilyTensors& tensors) {
  if (!config.tied) return false;
  const bool translator = config.kind == FamilyKind::translator;
  const char* table = config.kind == FamilyKind::encoder ? "embed_tokens.weight"
                      : translator                       ? "model.shared.weight"
                                                         : "model.embed_tokens.weight";
  const char* output = runs_as(config) == FamilyKind::encoder ? "head.output.weight" : "lm_head.weight";
  const bool has_output = config.head == FamilyHead::language || config.head == FamilyHead::masked;
  if (!has_output || tensors.stored(output) != &tensor) return false;
  const StoredTensor* embeddings = tensors.stored(table);
  return embeddings && embeddings->type == tensor.type && std::ranges::equal(embeddings->bytes, tensor.bytes);
}

files::TensorFile tensors_of(const ModelFolder& folder, const FamilyConfig& config,
                             const ConvertOptions& options, Converted& converted) {
  const files::WeightFile weights(files::find_weights(folder.path()));
  const Family& family = *find_family(config.model_type);
  const FamilyTensors tensors(weights, family, config, FamilyTensors::Read::shapes);
  files::TensorFile file;
  std::int64_t done = 0;
  for (const StoredTensor& tensor : weights.tensors()) {
    if (options.progress) options.progress(done++, std::ssize(weights.tensors()));
    if (tensors.is_copy(tensor) || is_tied_copy(tensor, config, tensors))
      converted.left_out.push_back(tensor.name);
    else
      file.tensors.push_back({todays_name(tensor.name), read(tensor, type_of(tensor, options))});
  }
  return file;
}

// A translator of ours as a MarianMTModel: the same layers under the same names.
files::TensorFile marian_of(const ModelFolder& folder, const ConvertOptions& options, std::string& config) {
  const std::string path = config_path(folder.path()).string();
  ModelConfig ours;
  try {
    ours = read_config(folder.config());
  } catch (const InvalidArgument& error) {
    throw FileError(path, -1, error.what());
  }
  const auto* transformer = std::get_if<TransformerConfig>(&ours);
  if (!transformer || transformer->norm != NormPlace::post ||
      transformer->positions != TransformerConfig::Positions::sinusoidal ||
      !transformer->encoder_mixers.empty() || !transformer->decoder_mixers.empty())
    throw FileError(path, -1,
                    "expected a model that transformers has: of ours a Transformer with attention, post-norm "
                    "layers and sinusoidal positions, or a language model with attention alone");
  config = marian_config(*transformer);
  const auto model = folder.sequence_to_sequence();
  files::TensorFile file =
      family_tensors(*find_family("marian"), read_family(config).config, model->parameters());
  for (files::NamedTensor& named : file.tensors)
    named.tensor = as_type(named.tensor, options.type.value_or(DType::f32), path, named.name);
  return file;
}

// Files that say how a model's texts are read and written, or what its vectors are made by.
bool belongs_to_texts(const fs::path& file) {
  const std::string name = file.filename().string();
  const std::set<std::string> kinds{".json", ".txt", ".model", ".spm", ".jinja"};
  return kinds.contains(file.extension().string()) && name != "config.json" && name != "training.json" &&
         !name.ends_with(".index.json");
}

void copy_files(const fs::path& from, const fs::path& to, Converted& converted) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(from, error)) {
    const fs::path name = entry.path().filename();
    // Modules of sentence-transformers are folders such as 1_Pooling.
    const std::string text = name.string();
    const bool module =
        entry.is_directory() && text.find('_') != std::string::npos && text[0] >= '0' && text[0] <= '9';
    // A module's name may also be that of the folder that is being written.
    if (fs::equivalent(entry.path(), to, error)) continue;
    if (!module && !(entry.is_regular_file() && belongs_to_texts(name))) continue;
    fs::copy(entry.path(), to / name, fs::copy_options::overwrite_existing | fs::copy_options::recursive,
             error);
    if (error) throw FileError((to / name).string(), -1, "cannot be written: " + error.message());
    converted.files.push_back(text);
  }
  if (error) throw FileError(from.string(), -1, "cannot be read: " + error.message());
  std::sort(converted.files.begin(), converted.files.end());
}

// Weights of an earlier run would be read in place of the new ones, or beside them. Returns whether the
// folder was made.
bool check_target(const fs::path& from, const fs::path& to) {
  std::error_code error;
  const bool made = fs::create_directories(to, error);
  if (error) throw FileError(to.string(), -1, "cannot be made: " + error.message());
  if (fs::equivalent(from, to, error)) throw FileError(to.string(), -1, "is the folder that is converted");
  for (const fs::directory_entry& entry : fs::directory_iterator(to, error)) {
    if (entry.path().filename().string().find(".safetensors") != std::string::npos)
      throw FileError(entry.path().string(), -1, "is there already: expected a folder without weights");
  }
  return made;
}

}  // namespace

Converted convert_folder(const fs::path& from, const fs::path& to, const ConvertOptions& options) {
  const ModelFolder folder(from);
  const FolderReport report = report_on(folder);
  if (!report.refused.empty()) throw FileError(config_path(from).string(), -1, report.refused);
  const bool made = check_target(from, to);
  Converted converted;
  files::TensorFile file;
  std::string config;
  try {
    if (report.config) {
      file = tensors_of(folder, *report.config, options, converted);
      config = folder.config();
    } else {
      file = marian_of(folder, options, config);
      converted.from_ours = true;
    }
  } catch (...) {  // such as a number that f16 cannot hold: no empty folder is left
    std::error_code ignored;
    if (made) fs::remove(to, ignored);
    throw;
  }
  file.metadata["format"] = "pt";
  std::map<DType, std::int64_t> types;
  std::size_t bytes = 0;
  for (const files::NamedTensor& named : file.tensors) {
    types[named.tensor.dtype()] += named.tensor.count();
    bytes += static_cast<std::size_t>(named.tensor.count()) * size_of(named.tensor.dtype());
  }
  const DType most = std::max_element(types.begin(), types.end(), [](const auto& a, const auto& b) {
                       return a.second < b.second;
                     })->first;
  if (bytes > options.shard_bytes)
    files::save_sharded_safetensors(to, file, options.shard_bytes);
  else
    files::save_safetensors(to / "model.safetensors", file);
  files::write_file(config_path(to), todays_config(config, most));
  copy_files(from, to, converted);
  converted.tensors = std::ssize(file.tensors);
  converted.bytes = static_cast<std::int64_t>(bytes);
  converted.model_type = json::parse(config).at("model_type").get<std::string>();
  return converted;
}

}  // namespace fovea::models
