// The fields "truncation" and "padding" of tokenizer.json.
#pragma once

#include <optional>

#include "text/pipeline/fields.h"
#include "text/pipeline/post_processors.h"

namespace fovea::text::pipeline {

struct Truncation {
  enum class Strategy : std::uint8_t { longest_first, only_first, only_second };
  enum class Side : std::uint8_t { right, left };
  std::int64_t max_length = 0;
  Strategy strategy = Strategy::longest_first;
  Side side = Side::right;

  /// Cuts the encodings of one or two texts to `most` items together. Throws InvalidArgument if the text to
  /// be cut is missing or too short.
  void apply(std::vector<Items>& parts, std::size_t most) const;
};

class Padding {
 public:
  std::int64_t length = 0;       ///< at least; 0: as long as the longest of a batch
  std::int64_t multiple_of = 1;  ///< the length is rounded up
  bool left = false;
  std::int32_t id = 0, type = 0;

  void apply(Items& items) const;

 private:
  std::int64_t length_for(std::size_t size) const;
};

/// Null gives nothing. Throw FileError.
std::optional<Truncation> read_truncation(const nlohmann::json& value, const Where& where);
std::optional<Padding> read_padding(const nlohmann::json& value, const Where& where);

}  // namespace fovea::text::pipeline
