// The text of a tokenizer.json and the places of its parts. The parts that describe the pipeline are small
// and parsed as documents; vocabularies and merges are read in place.
#pragma once

#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "files/json_scanner.h"
#include "text/pipeline/fields.h"

namespace fovea::text::pipeline {

/// Bytes [begin, end) of the document's text.
struct Extent {
  std::size_t begin = 0, end = 0;
};

class Document {
 public:
  /// Checks that `text` is JSON with the keys of a tokenizer, and none twice. Costs `text` once more while it
  /// checks. Throws FileError.
  Document(std::string file, std::string text);

  const std::string& file() const noexcept { return file_; }
  /// "decoder", "model.vocab"; nullptr if it is not there.
  const Extent* find(std::string_view key) const;
  /// Throws FileError if it is not there.
  const Extent& at(std::string_view key) const;
  /// A small part; null if it is not there. Throws FileError for one with more than 500,000 values.
  nlohmann::json part(std::string_view key) const;
  /// Its text, as it stands in the file; "null" if it is not there.
  std::string text_of(std::string_view key) const;
  /// The same for all members of the model but vocab and merges, as one object.
  nlohmann::json model_options() const;
  /// Reads a part in place, which resolves escapes in the text: once for each part.
  files::JsonScanner scanner(const Extent& extent);

 private:
  nlohmann::json parse(const std::string& key, const Extent& extent) const;

  std::string file_, text_;
  std::map<std::string, Extent, std::less<>> extents_;
};

}  // namespace fovea::text::pipeline
