// Folders of models in other types of elements, in shards, and in today's form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fovea/core/dtype.h"

namespace fovea::models {

struct ConvertOptions {
  /// Of the weights: f32, bf16 or f16, rounded to nearest even. Nothing: as they are; f64 and 8-bit floats
  /// become f32.
  std::optional<DType> type = {};
  /// Bytes of tensors in a file at most. Weights that need more are written as shards with an index.
  std::size_t shard_bytes = std::size_t{5} << 30;
  /// Called before each tensor that is read, with how many were.
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
};

struct Converted {
  std::int64_t tensors = 0, bytes = 0;
  bool from_ours = false;             ///< whether it was made of a translator of ours
  std::string model_type;             ///< of the folder that was written
  std::vector<std::string> left_out;  ///< tensors that are copies of others, or follow from the config
  std::vector<std::string> files;     ///< that were copied, such as tokenizer.json
};

/// Writes the model of a folder into another one, which transformers reads: config.json with the keys of
/// transformers 5, and the weights. A folder of a family keeps its names; layer norms named gamma and beta
/// are named weight and bias. Files of the tokenizer and of generation are copied. A translator of ours with
/// post-norm layers and sinusoidal positions becomes a MarianMTModel; a language model of ours with attention
/// alone is a Starcoder2ForCausalLM already. Throws FileError for a model that does not run here, and for one
/// of ours that no class of transformers computes. The same is thrown for a target that holds the source or
/// other weights, and for a number that f16 cannot hold.
Converted convert_folder(const std::filesystem::path& from, const std::filesystem::path& to,
                         const ConvertOptions& options = {});

}  // namespace fovea::models
