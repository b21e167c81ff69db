// Folders of random models of other libraries' families.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "fovea/models/model_folder.h"

namespace fovea::models {

/// Values that depend on the name alone, and no parameter is 0 or 1 all over.
inline Tensor drawn(const std::string& name, const Shape& shape) {
  Tensor values = Tensor::normal(shape, std::hash<std::string>()(name));
  float* x = values.data<float>();
  for (std::int64_t i = 0; i < values.count(); ++i) x[i] *= 0.4f;
  return values;
}

/// Writes a folder of a random model of this config.json, in the form of transformers. Throws InvalidArgument
/// for a config of no family.
inline void save_random_model(const std::string& folder, const std::string& config) {
  const FamilyConfig read = read_family(config).config;
  switch (runs_as(read)) {
    case FamilyKind::translator:
      return save_model(folder, config, make_translator(translator_spec(read), drawn)->parameters());
    case FamilyKind::encoder:
      return save_model(folder, config, TextEncoder(text_encoder_spec(read), drawn).parameters());
    case FamilyKind::decoder:
      return save_model(folder, config, LanguageModel(language_model_spec(read), drawn).parameters());
  }
}

}  // namespace fovea::models
