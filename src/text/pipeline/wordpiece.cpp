// WordPiece as BERT reads it, the longest token first (Devlin et al. 2018), and a vocabulary of whole words.
#include "core/excerpt.h"
#include "text/pipeline/byte_trie.h"
#include "text/pipeline/model.h"
#include "text/utf8.h"

namespace fovea::text::pipeline {
namespace {

using nlohmann::json;

// Published models have 100 and 200.
constexpr std::int64_t kMostCharacters = std::int64_t{1} << 16;

// A vocabulary, and one of its tokens for all words that it cannot spell.
class WithUnknown : public VocabularyModel {
 public:
  using VocabularyModel::VocabularyModel;

 protected:
  std::int32_t unknown() const {
    const auto id = vocab_.id_of(unk_token_);
    if (!id)
      Where{document_->file(), "model.unk_token"}.fail("'" + excerpt(unk_token_) +
                                                       "' is not in the vocabulary, and a text needs it");
    return *id;
  }
  std::string with_vocab(const nlohmann::ordered_json& options) const {
    std::string text = options.dump();
    text.back() = ',';
    return text + "\"vocab\":" + vocab_.to_json() + '}';
  }

  std::string unk_token_;
};

class WordPiece final : public WithUnknown {
 public:
  explicit WordPiece(std::shared_ptr<Document> document) : WithUnknown(std::move(document)) {
    const json options = document_->model_options();
    const Fields fields(options, {document_->file(), "model"},
                        {"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word"});
    unk_token_ = fields.string("unk_token");
    prefix_ = fields.string("continuing_subword_prefix");
    longest_ = static_cast<std::size_t>(fields.number("max_input_chars_per_word", kMostCharacters));
    for (std::int32_t id = 0; id < vocab_.end_id(); ++id) {
      const std::string_view token = vocab_.token(id).value_or("");
      if (!token.empty()) beginning_.add(token, id);
      if (token.size() > prefix_.size() && token.starts_with(prefix_))
        continuing_.add(token.substr(prefix_.size()), id);
    }
  }

  std::string_view type() const override { return "WordPiece"; }
  std::string_view continuing_prefix() const override { return prefix_; }
  void tokenize(std::string_view word, std::vector<Token>& tokens) const override {
    std::size_t characters = 0;
    for (const char byte : word) characters += (static_cast<unsigned char>(byte) & 0xC0u) != 0x80u;
    const std::size_t before = tokens.size();
    bool known = characters <= longest_;
    for (std::size_t begin = 0; known && begin < word.size();) {
      const Token token = longest_at(word, begin);
      known = token.end > begin;
      if (known) tokens.push_back(token);
      begin = token.end;
    }
    if (known) return;
    tokens.resize(before);
    tokens.push_back({unknown(), 0, word.size()});
  }

  std::string to_json() const override {
    return with_vocab({{"type", "WordPiece"},
                       {"unk_token", unk_token_},
                       {"continuing_subword_prefix", prefix_},
                       {"max_input_chars_per_word", longest_}});
  }

 private:
  // The longest token that continues the word at `begin`; an empty one if there is none.
  Token longest_at(std::string_view word, std::size_t begin) const {
    Token longest{0, begin, begin};
    (begin == 0 ? beginning_ : continuing_)
        .prefixes(word.substr(begin), [&](std::size_t length, std::int32_t id) {
          longest = {id, begin, begin + length};
        });
    return longest;
  }

  std::string prefix_;
  std::size_t longest_ = 0;
  ByteTrie beginning_, continuing_;  // tokens, and without the prefix those that have it
};

class WordLevel final : public WithUnknown {
 public:
  explicit WordLevel(std::shared_ptr<Document> document) : WithUnknown(std::move(document)) {
    const json options = document_->model_options();
    unk_token_ = Fields(options, {document_->file(), "model"}, {"type", "unk_token"}).string("unk_token");
  }
  std::string_view type() const override { return "WordLevel"; }
  void tokenize(std::string_view word, std::vector<Token>& tokens) const override {
    const auto id = vocab_.id_of(word);
    tokens.push_back({id ? *id : unknown(), 0, word.size()});
  }
  std::string to_json() const override {
    return with_vocab({{"type", "WordLevel"}, {"unk_token", unk_token_}});
  }
};

}  // namespace

std::unique_ptr<const Model> read_wordpiece_model(const std::shared_ptr<Document>& document) {
  return std::make_unique<WordPiece>(document);
}

std::unique_ptr<const Model> read_word_level_model(const std::shared_ptr<Document>& document) {
  return std::make_unique<WordLevel>(document);
}

}  // namespace fovea::text::pipeline
