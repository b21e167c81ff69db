// A folder of a small random model of each family, and what the model computes.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "fovea/files/bytes.h"
#include "fovea/models/decoding.h"
#include "fovea/models/family.h"
#include "fovea/models/model_folder.h"
#include "models/family/row.h"
#include "models/random_family.h"
#include "models/tiny_families.h"

namespace fovea::models {

namespace fs = std::filesystem;

// The sizes of layers that attend.
inline bool attends_somewhere(const json& config) {
  return attends(read_family(config.dump()).config);
}

inline bool config_is_translator(const json& config) {
  return family_kind(config.dump()) == FamilyKind::translator;
}

class FamilyFolders : public testing::TestWithParam<std::string_view> {
 protected:
  FamilyFolders() : folder(fs::temp_directory_path() / ("fovea-families-" + std::to_string(::getpid()))) {
    fs::create_directories(folder);
  }
  ~FamilyFolders() override { fs::remove_all(folder); }

  // A folder of a random model of this config, in the form of transformers.
  void write(const json& config) const {
    const FamilyReading reading = read_family(config.dump());
    ASSERT_TRUE(reading.problems.empty()) << refusal(config);
    save_random_model(folder.string(), config.dump());
  }
  void write_config(const json& config) const {
    fs::remove(folder / "config.json");
    std::ofstream(folder / "config.json") << config.dump();
  }
  // Logits, or hidden states of an encoder, of some ids. `packed` while the folder is read, or `afterwards`.
  Tensor rows(ModelFolder::Packed packed = {}, ModelFolder::Packed afterwards = {}) const {
    const ModelFolder opened(folder);
    const std::vector<std::int32_t> ids{3, 7, 4, 10, 5, 3, 9};
    nn::Context context;
    const auto pack = [&](nn::ParameterSet& parameters) {
      if (afterwards) parameters.pack(*afterwards);
    };
    if (kind_of(opened) == FamilyKind::translator) {
      const auto model = opened.sequence_to_sequence(packed);
      pack(model->parameters());
      return model->logits(model->hidden(context, make_batch({ids}, {ids}), nullptr, nullptr));
    }
    if (kind_of(opened) == FamilyKind::encoder) {
      TextEncoder model = opened.text_encoder(packed);
      pack(model.parameters());
      return model.hidden(context, {&ids, 1}).value();
    }
    LanguageModel model = opened.language_model(packed);
    pack(model.parameters());
    return model.logits(model.hidden(context, pad({&ids, 1})));
  }
  std::string bytes() const { return files::read_file(folder / "model.safetensors", 1 << 24); }

  fs::path folder;
};

inline std::string test_name(const testing::TestParamInfo<std::string_view>& info) {
  std::string name(info.param);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace fovea::models
