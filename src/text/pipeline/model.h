// The "model" of tokenizer.json: the tokens that a word is made of, and their ids.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/pipeline/document.h"

namespace fovea::text::pipeline {

/// The longest token that is read. At each place of a text as many bytes may be compared with tokens.
inline constexpr std::size_t kMostTokenBytes = 4096;

/// A token in a word: bytes [begin, end).
struct Token {
  std::int32_t id = 0;
  std::size_t begin = 0, end = 0;
};

class Model {
 public:
  virtual ~Model() = default;
  /// "BPE", "WordPiece", "Unigram" or "WordLevel".
  virtual std::string_view type() const = 0;
  /// Appends the tokens of a word, which is not empty. Throws FileError if the word needs a token that the
  /// vocabulary lacks.
  virtual void tokenize(std::string_view word, std::vector<Token>& tokens) const = 0;
  virtual std::optional<std::int32_t> id_of(std::string_view token) const = 0;
  virtual std::optional<std::string_view> token(std::int32_t id) const = 0;
  /// What tokens inside a word begin with; "" where nothing shows them.
  virtual std::string_view continuing_prefix() const { return ""; }
  /// How many tokens there are.
  virtual std::int64_t count() const = 0;
  /// The largest id and 1.
  virtual std::int64_t end_id() const = 0;
  /// As it stands in tokenizer.json.
  virtual std::string to_json() const = 0;
};

/// Reads the model of a document, which it keeps: tokens are views into its text. Throws FileError.
std::unique_ptr<const Model> read_model(const std::shared_ptr<Document>& document);

/// The object "vocab": tokens and their ids.
class Vocab {
 public:
  /// Throws FileError for an id that is no whole number from 0 on, is given twice or is more than 4 times the
  /// number of tokens.
  Vocab(files::JsonScanner scanner, const Where& where);

  std::optional<std::int32_t> id_of(std::string_view token) const;
  std::optional<std::string_view> token(std::int32_t id) const;
  std::int64_t count() const { return static_cast<std::int64_t>(ids_.size()); }
  std::int64_t end_id() const { return static_cast<std::int64_t>(tokens_.size()); }
  std::string to_json() const;

 private:
  std::unordered_map<std::string_view, std::int32_t> ids_;
  std::vector<std::string_view> tokens_;  // by id; without data where there is none
};

/// A model whose tokens are the entries of one vocabulary, "model.vocab".
class VocabularyModel : public Model {
 public:
  explicit VocabularyModel(std::shared_ptr<Document> document)
      : document_(std::move(document)),
        vocab_(document_->scanner(document_->at("model.vocab")), {document_->file(), "model.vocab"}) {}

  std::optional<std::int32_t> id_of(std::string_view token) const final { return vocab_.id_of(token); }
  std::optional<std::string_view> token(std::int32_t id) const final { return vocab_.token(id); }
  std::int64_t count() const final { return vocab_.count(); }
  std::int64_t end_id() const final { return vocab_.end_id(); }

 protected:
  std::shared_ptr<Document> document_;  // its text holds the tokens
  Vocab vocab_;
};

/// One reader for each type.
std::unique_ptr<const Model> read_bpe_model(const std::shared_ptr<Document>& document);
std::unique_ptr<const Model> read_wordpiece_model(const std::shared_ptr<Document>& document);
std::unique_ptr<const Model> read_word_level_model(const std::shared_ptr<Document>& document);
std::unique_ptr<const Model> read_unigram_model(const std::shared_ptr<Document>& document);

}  // namespace fovea::text::pipeline
