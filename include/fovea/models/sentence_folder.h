// Folders of sentence-transformers: a model, and how one vector for each text is made of its hidden states.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "fovea/core/tensor.h"

namespace fovea::models {

/// How the rows of a text become one.
struct SentencePooling {
  enum class Kind : std::uint8_t {
    first,          ///< that of the first id, such as [CLS]
    last,           ///< that of the last id
    mean,           ///< the mean of all rows
    mean_sqrt_len,  ///< their sum, divided by the square root of their number
    max             ///< the largest element of each column
  };
  Kind kind = Kind::mean;
  bool normalize = false;  ///< to length 1

  /// The vector [dim] of f32 rows [rows, dim]. Throws InvalidArgument for no rows.
  Tensor apply(const Tensor& rows) const;
};

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
