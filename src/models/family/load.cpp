#include "models/family/load.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "files/json.h"
#include "fovea/files/bytes.h"
#include "fovea/files/weights.h"
#include "fovea/models/mixers.h"
#include "models/configs.h"
#include "models/family/tensors.h"
#include "models/read_packed.h"

namespace fovea::models {
namespace {

using autograd::WeightType;
using nlohmann::json;

// All problems of a config in one text.
std::string text_of(const std::vector<ConfigProblem>& problems) {
  std::string text;
  for (const ConfigProblem& problem : problems)
    text +=
        (text.empty() ? "" : "; ") + problem.key + ": expected " + problem.expected + ", got " + problem.got;
  return text;
}

[[noreturn]] void refuse_config(const ModelFolder& folder, const std::string& reason) {
  throw FileError(config_path(folder.path()).string(), -1, reason);
}

// The error of a key, as text_of has it, or one of layers.
std::string text_of(const InvalidArgument& error) {
  if (error.function() != "config.json") return error.what();
  return error.argument() + ": expected " + error.expected() + ", got " + error.got();
}

// Calls `make`, and names the config in errors of layers that its values lead to.
template <class Make>
auto naming_config(const ModelFolder& folder, Make&& make) {
  try {
    return make();
  } catch (const InvalidArgument& error) {
    refuse_config(folder, text_of(error));
  }
}

}  // namespace

FamilyConfig config_of(const ModelFolder& folder) {
  FamilyReading reading = naming_config(folder, [&] { return read_family(folder.config()); });
  if (!reading.problems.empty()) refuse_config(folder, text_of(reading.problems));
  return std::move(reading.config);
}

namespace {

LanguageModel language_model_of(const FamilyConfig& config, FamilyTensors& tensors,
                                std::optional<WeightType> packed = {}) {
  LanguageModelSpec spec = language_model_spec(config);
  if (tensors.has("lm_head.weight")) spec.output = LanguageModelSpec::Output::own;
  LanguageModel model(spec, tensors.source());
  tensors.check_all_taken();
  model.parameters().seal();
  if (packed) tensors.pack(model.parameters(), *packed);
  return model;
}

TextEncoder text_encoder_of(const FamilyConfig& config, FamilyTensors& tensors,
                            std::optional<WeightType> packed = {}) {
  TextEncoderSpec spec = text_encoder_spec(config);
  if (spec.head && tensors.has("head.output.weight")) spec.head->output = HeadSpec::Output::own;
  TextEncoder model(spec, tensors.source());
  tensors.check_all_taken();
  model.parameters().seal();
  if (packed) tensors.pack(model.parameters(), *packed);
  return model;
}

std::unique_ptr<SequenceToSequence> translator_of(const FamilyConfig& config, FamilyTensors& tensors,
                                                  std::optional<WeightType> packed = {}) {
  TranslatorSpec spec = translator_spec(config);
  if (tensors.has("lm_head.weight")) spec.output = TranslatorSpec::Output::own;
  // A model without a head has no bias of logits either.
  if (spec.bias == nn::Linear::Bias::with && config.head != FamilyHead::language &&
      !tensors.has("final_logits_bias"))
    spec.bias = nn::Linear::Bias::without;
  auto model = make_translator(spec, tensors.source());
  tensors.check_all_taken();
  model->parameters().seal();
  if (packed) tensors.pack(model->parameters(), *packed);
  return model;
}

// The file of weights. Throws FileError, which also names a file of PyTorch's, because that is not read.
std::filesystem::path weights_path(const ModelFolder& folder) {
  try {
    return files::find_weights(folder.path());
  } catch (const FileError& missing) {
    for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
      std::error_code error;
      if (std::filesystem::exists(folder.path() / name, error))
        throw FileError(missing.file(), -1,
                        missing.reason() + ". " + name +
                            " is not read; save_pretrained of transformers writes model.safetensors");
    }
    throw;
  }
}

const char* kind_of(FamilyKind kind) {
  switch (kind) {
    case FamilyKind::decoder:
      return "a language model, which reads from left to right";
    case FamilyKind::encoder:
      return "an encoder, or a model with a head for labels or answers";
    case FamilyKind::translator:
      break;
  }
  return "a translator, which reads one sequence and writes another";
}

// A folder that names no class has the masked head if its tensors are there.
FamilyConfig with_head(FamilyConfig config, const files::WeightFile& weights) {
  const Family& family = *find_family(config.model_type);
  const HeadRow* head = head_of(family, FamilyHead::masked);
  if (!config.architecture.empty() || !head) return config;
  FamilyConfig masked = config;
  masked.head = FamilyHead::masked;
  const char* first = head->layers.dense ? "head.dense.weight" : "head.output.weight";
  return FamilyTensors(weights, family, masked).has(first) ? masked : config;
}

// Calls `make` with the config of a folder and its tensors.
template <class Make>
auto load(const ModelFolder& folder, FamilyKind kind, std::optional<WeightType> packed, Make&& make) {
  const FamilyConfig read = config_of(folder);
  if (runs_as(read) != kind)
    refuse_config(folder, std::string("expected ") + kind_of(kind) + ", got " +
                              (read.architecture.empty() ? read.model_type : read.architecture) + ", " +
                              kind_of(runs_as(read)));
  const files::WeightFile weights(weights_path(folder));
  const FamilyConfig config = with_head(read, weights);
  FamilyTensors tensors(weights, *find_family(config.model_type), config,
                        packed ? FamilyTensors::Read::later : FamilyTensors::Read::values);
  return naming_config(folder, [&] { return make(config, tensors, packed); });
}

}  // namespace

namespace {

HeadSpec head_spec(const FamilyConfig& config) {
  const auto bias = [](bool with) { return with ? nn::Linear::Bias::with : nn::Linear::Bias::without; };
  const HeadLayers& layers = config.head_layers;
  HeadSpec head{.pooling = layers.pooling,
                .pad_id = config.pad_id,
                .pools_late = layers.pools_late,
                .bias = bias(layers.bias)};
  if (layers.at_eos) head.row_of_id = config.eos_ids.at(0);
  const bool masked = config.head == FamilyHead::masked;
  head.outputs = masked                              ? config.vocabulary
                 : config.head == FamilyHead::answer ? 2
                                                     : std::ssize(config.labels);
  if (masked && config.tied) head.output = HeadSpec::Output::tied;
  if (layers.dense)
    head.dense = {.activation = *layers.activation,
                  .bias = bias(layers.dense_bias),
                  .norm = layers.norm ? std::optional(norm_of(config)) : std::nullopt};
  // The matrix to the vocabulary is the embedding's table.
  if (masked && layers.dense) head.dense->outputs = config.embedding_dim;
  return head;
}

}  // namespace

LanguageModelSpec language_model_spec(const FamilyConfig& config) {
  constexpr std::int64_t any = std::numeric_limits<std::int64_t>::max();
  LanguageModelSpec spec{.vocabulary = config.vocabulary,
                         .positions = positions_end(config) ? config.positions : any};
  spec.stack = stack_of(config);
  spec.embedding_factor = static_cast<float>(embedding_factor_of(config));
  if (!config.tied && config.head == FamilyHead::language) spec.output = LanguageModelSpec::Output::own;
  if (config.logit_bias && config.head == FamilyHead::language) spec.bias = nn::Linear::Bias::with;
  if (const HeadLayers& layers = config.head_layers; layers.dense && config.head == FamilyHead::language)
    spec.dense = {.activation = *layers.activation,
                  .bias = layers.dense_bias ? nn::Linear::Bias::with : nn::Linear::Bias::without,
                  .norm = layers.norm ? std::optional(norm_of(config)) : std::nullopt};
  spec.logit_factor = static_cast<float>(config.logit_factor);
  if (config.logit_cap) spec.logit_cap = static_cast<float>(*config.logit_cap);
  return spec;
}

TextEncoderSpec text_encoder_spec(const FamilyConfig& config) {
  TextEncoderSpec spec{
      .vocabulary = config.vocabulary, .token_types = config.token_types, .task_types = config.task_types};
  spec.stack = stack_of(config);
  if (config.kind == FamilyKind::encoder && config.first_position_row > 0)
    spec.pad_id = config.first_position_row - 1;
  spec.embedding_factor = static_cast<float>(embedding_factor_of(config));
  if (config.kind == FamilyKind::decoder) {
    spec.mask = Causal{};
    spec.embedding_name = "model.embed_tokens";  // as in LanguageModel
    spec.stack_name = "model";
  }
  if (config.kind == FamilyKind::translator) {
    spec.embedding_name = "model.shared";  // as in a translator
    spec.stack_name = "model.encoder";
    if (!config.encoder_alone) {
      spec.decoder.emplace();
      spec.decoder->stack = decoder_stack_of(config);
      if (!config.starts_with_last) spec.decoder->start_id = config.start_id;
      spec.decoder->pad_id = config.pad_id;
    }
  }
  if (config.head != FamilyHead::none) spec.head = head_spec(config);
  return spec;
}

TranslatorSpec translator_spec(const FamilyConfig& config) {
  TranslatorSpec spec{.vocabulary = config.vocabulary};
  spec.encoder = stack_of(config);
  spec.decoder = decoder_stack_of(config);
  spec.embedding_factor = static_cast<float>(embedding_factor_of(config));
  if (config.scale_output) spec.output_factor = 1.0f / std::sqrt(static_cast<float>(config.dim));
  if (!config.tied && config.head == FamilyHead::language) spec.output = TranslatorSpec::Output::own;
  spec.bias = config.head_layers.bias ? nn::Linear::Bias::with : nn::Linear::Bias::without;
  return spec;
}

void save_model(const std::string& folder, const std::string& config, const nn::ParameterSet& parameters) {
  const FamilyConfig read = read_family(config).config;
  const Family* family = find_family(read.model_type);
  check_not_read_packed(parameters);
  files::TensorFile file = family_tensors(*family, read, parameters);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw FileError(folder, -1, "cannot be made: " + error.message());
  file.metadata["format"] = "pt";
  files::save_safetensors(folder + "/model.safetensors", file);
  files::write_file(config_path(folder), config);
}

LanguageModel family_language_model(const ModelFolder& folder, std::optional<WeightType> packed) {
  return load(folder, FamilyKind::decoder, packed, language_model_of);
}

TextEncoder family_text_encoder(const ModelFolder& folder, std::optional<WeightType> packed) {
  return load(folder, FamilyKind::encoder, packed, text_encoder_of);
}

std::unique_ptr<SequenceToSequence> family_translator(const ModelFolder& folder,
                                                      std::optional<WeightType> packed) {
  return load(folder, FamilyKind::translator, packed, translator_of);
}

namespace {

// What config.json alone says of a family, or why it is refused.
void read_family_into(FolderReport& report, const ModelFolder& folder) {
  try {
    FamilyReading reading = read_family(folder.config());
    report.problems = std::move(reading.problems);
    report.config = std::move(reading.config);
    report.refused = text_of(report.problems);
  } catch (const InvalidArgument& error) {
    report.refused = text_of(error);
  }
}

}  // namespace

FolderReport report_on(const ModelFolder& folder) {
  FolderReport report;
  const json object =
      files::parse_json_object(config_path(folder.path()).string(), folder.config(), config_depth);
  if (object.contains("model_type") && object["model_type"].is_string())
    report.model_type = object["model_type"].get<std::string>();
  const bool own = is_own_language(folder.config()) || is_own_translator(folder.config());
  if (!own) read_family_into(report, folder);
  std::filesystem::path path;
  try {
    path = weights_path(folder);
  } catch (const FileError&) {
    // Whether the config is refused can be asked before the weights are fetched.
    if (report.refused.empty()) throw;
    return report;
  }
  const files::WeightFile weights(path);
  for (const files::StoredTensor& tensor : weights.tensors()) {
    ++report.tensors;
    report.parameters += tensor.shape.count();
    report.bytes += static_cast<std::int64_t>(tensor.bytes.size());
    report.types[std::string(to_string(tensor.type))] += tensor.shape.count();
  }
  if (own) report_own(folder, weights, report);
  if (own || !report.refused.empty()) return report;
  report.config = with_head(std::move(*report.config), weights);
  const FamilyConfig& config = *report.config;
  FamilyTensors tensors(weights, *find_family(config.model_type), config, FamilyTensors::Read::shapes);
  try {
    if (runs_as(config) == FamilyKind::encoder) {
      text_encoder_of(config, tensors);
    } else if (config.kind == FamilyKind::translator) {
      translator_of(config, tensors);
      report.cache_bytes_per_token = config.decoder_layers * 2 * config.decoder_heads * config.head_dim * 4;
    } else if (config.recurrence != FamilyRecurrence::none) {
      report.layers = layers_keep(language_model_of(config, tensors).stack());
      for (const LayerKeeps& layer : report.layers) report.cache_bytes_per_token += layer.bytes_per_token;
    } else {
      for (const CacheLayer& layer : language_model_of(config, tensors).cache_layers())
        report.cache_bytes_per_token +=
            layer.num_kv_heads * 2 * layer.head_dim * static_cast<std::int64_t>(size_of(layer.dtype));
    }
  } catch (const Error& error) {
    report.refused = error.what();
  }
  return report;
}

}  // namespace fovea::models
