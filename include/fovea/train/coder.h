// The tokenizer of a model's folder as its model uses it: texts to ids and ids to texts. It is the same for
// folders that `fovea train` wrote, for those of other libraries with a tokenizer.json, and for Marian's.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fovea/models/model_folder.h"

namespace fovea::train {

/// The words of a sequence of ids: for each id the index of its word, from 0 and never decreasing, and -1 for
/// ids that stand for no text.
struct Words {
  std::vector<std::int32_t> word_of;
  std::vector<std::string> labels;
};

class Coder {
 public:
  virtual ~Coder() = default;
  /// The words of `ids`, by the blanks of their text.
  Words words(std::span<const std::int32_t> ids) const;
  /// The words of `line`, whose ids are begun(line), as they stand in it. Without offsets they are
  /// words(ids).
  virtual Words words_of_line(const std::string& line) const { return words(begun(line)); }
  /// The ids of a text at the beginning of what a model reads.
  virtual std::vector<std::int32_t> begun(const std::string& prompt) const = 0;
  /// The ids of a text that follows another one, which the model has read.
  virtual std::vector<std::int32_t> added(const std::string& prompt) const = 0;
  /// begun(prompt), cut so that it has `most` ids at most. The id that ends a text stays.
  virtual std::vector<std::int32_t> cut(const std::string& prompt, std::int64_t most) const {
    std::vector<std::int32_t> ids = begun(prompt);
    if (std::ssize(ids) <= most) return ids;
    ids.erase(ids.end() - 1 - (std::ssize(ids) - most), ids.end() - 1);
    return ids;
  }
  /// The text that ids stand for.
  virtual std::string text(std::span<const std::int32_t> ids) const = 0;
  /// The id of the end of a paragraph, which `text` shows as the end of a line; nothing if there is none.
  virtual std::optional<std::int32_t> line_end() const = 0;
  /// Ids that end a text.
  virtual std::vector<std::int32_t> stops() const = 0;
  /// The special id with this spelling; nothing if there is none. A special id is never part of a text.
  virtual std::optional<std::int32_t> special_id(const std::string&) const { return std::nullopt; }
  /// Whether an id is special.
  virtual bool is_special(std::int32_t) const { return false; }
};

/// Throws InvalidArgument(function, argument) for an id that is not below `vocabulary`. With `token` the
/// error also shows that id's token. Tokenizers may have more ids than their models.
void check_ids(const std::string& function, const std::string& argument, std::span<const std::int32_t> ids,
               std::int64_t vocabulary, const std::function<std::string(std::int32_t)>& token = {});

/// The tokenizer of a folder, for a model with `vocabulary` ids. Throws FileError if the folder has none that
/// can be read. The coder throws InvalidArgument for a text with a token that the model does not have.
std::unique_ptr<Coder> read_coder(const models::ModelFolder& folder, std::int64_t vocabulary);

}  // namespace fovea::train
