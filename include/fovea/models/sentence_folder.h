// Folders of sentence-transformers: a model, and how one vector for each text is made of its hidden states.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "fovea/models/pooling.h"

namespace fovea::models {

struct SentenceFolder {
  std::filesystem::path model;  ///< the folder of the model itself
  SentencePooling pooling;
  std::optional<std::int64_t> max_length;  ///< ids of a text; what is behind them is cut off
};

/// Reads modules.json of a folder, and the configs of the modules that it names; nothing without
/// modules.json. Throws FileError for modules other than Transformer, Pooling and Normalize in this order,
/// and for settings that are not known.
std::optional<SentenceFolder> read_sentence_folder(const std::filesystem::path& folder);

}  // namespace fovea::models
