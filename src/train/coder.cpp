#include "fovea/train/coder.h"

#include <algorithm>
#include <string>
#include <utility>

#include "fovea/core/error.h"
#include "fovea/text/marian_tokenizer.h"
#include "fovea/text/tokenizer.h"
#include "fovea/text/tokenizer_json.h"
#include "text/written_ids.h"

namespace fovea::train {
namespace {

using Ids = std::vector<std::int32_t>;

class OwnCoder final : public Coder {
 public:
  explicit OwnCoder(std::unique_ptr<text::Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}
  // A text begins as a paragraph of the training text does, behind the end of another one. Its last line is
  // not ended, because the model goes on with it.
  Ids begun(const std::string& prompt) const override {
    return text::encode_lines(*tokenizer_, "\n" + prompt);
  }
  Ids added(const std::string& prompt) const override { return text::encode_lines(*tokenizer_, prompt); }
  std::string text(std::span<const std::int32_t> ids) const override {
    return text::decode_lines(*tokenizer_, ids);
  }
  std::optional<std::int32_t> line_end() const override { return text::kEosId; }
  std::vector<std::int32_t> stops() const override { return {}; }

 private:
  std::unique_ptr<text::Tokenizer> tokenizer_;
};

// The blanks of the line divide its words, whatever the tokenizer makes of them.
Words words_between_blanks(const std::string& line, const text::Encoding& encoding) {
  Words words;
  std::size_t end = 0;  // of the word that is open
  for (std::size_t i = 0; i < encoding.size(); ++i) {
    const std::size_t at = line.find_first_not_of(" \t", encoding.offsets[i].begin);
    if (encoding.texts[i] < 0 || at == std::string::npos) {
      words.word_of.push_back(-1);
      continue;
    }
    if (words.labels.empty() || at >= end) {
      const std::size_t begin = at == 0 ? 0 : line.find_last_of(" \t", at) + 1;
      end = std::min(line.find_first_of(" \t", at), line.size());
      words.labels.push_back(line.substr(begin, end - begin));
    }
    words.word_of.push_back(static_cast<std::int32_t>(words.labels.size()) - 1);
  }
  return words;
}

class JsonCoder final : public Coder {
 public:
  JsonCoder(text::JsonTokenizer tokenizer, std::vector<std::int32_t> stops, std::int64_t vocabulary)
      : tokenizer_(std::move(tokenizer)), stops_(std::move(stops)), vocabulary_(vocabulary) {}
  Ids begun(const std::string& prompt) const override { return ids_of(prompt, {}); }
  Ids added(const std::string& prompt) const override {
    return ids_of(prompt, {.special_tokens = text::EncodeOptions::SpecialTokens::leave_out});
  }
  Ids cut(const std::string& prompt, std::int64_t most) const override {
    return ids_of(prompt, {.max_length = most});
  }
  std::string text(std::span<const std::int32_t> ids) const override { return tokenizer_.decode(ids); }
  std::optional<std::int32_t> line_end() const override { return std::nullopt; }
  std::vector<std::int32_t> stops() const override { return stops_; }
  std::optional<std::int32_t> special_id(const std::string& spelling) const override {
    const std::optional<std::int32_t> id = tokenizer_.id_of(spelling);
    return id && tokenizer_.is_special(*id) ? id : std::nullopt;
  }
  bool is_special(std::int32_t id) const override { return tokenizer_.is_special(id); }
  Words words_of_line(const std::string& line) const override {
    return words_between_blanks(line, tokenizer_.encode(line));
  }

 private:
  Ids ids_of(const std::string& text, const text::EncodeOptions& options) const {
    Ids ids = tokenizer_.encode(text, options).ids;
    check_ids("the tokenizer", "text", ids, vocabulary_,
              [this](std::int32_t id) { return tokenizer_.token(id); });
    return ids;
  }

  text::JsonTokenizer tokenizer_;
  std::vector<std::int32_t> stops_;
  std::int64_t vocabulary_;
};

class MarianCoder final : public Coder {
 public:
  MarianCoder(text::MarianTokenizer tokenizer, std::vector<std::int32_t> stops, std::int64_t vocabulary)
      : tokenizer_(std::move(tokenizer)), stops_(std::move(stops)), vocabulary_(vocabulary) {}
  Ids begun(const std::string& prompt) const override { return added(prompt); }
  Ids added(const std::string& prompt) const override {
    Ids ids = tokenizer_.encode(prompt);
    check_ids("the tokenizer", "text", ids, vocabulary_);
    return ids;
  }
  std::string text(std::span<const std::int32_t> ids) const override { return tokenizer_.decode(ids); }
  std::optional<std::int32_t> line_end() const override { return std::nullopt; }
  std::vector<std::int32_t> stops() const override { return stops_; }
  Words words_of_line(const std::string& line) const override {
    return words_between_blanks(line, tokenizer_.encoding(line));
  }

 private:
  text::MarianTokenizer tokenizer_;
  std::vector<std::int32_t> stops_;
  std::int64_t vocabulary_;
};

}  // namespace

void check_ids(const std::string& function, const std::string& argument, std::span<const std::int32_t> ids,
               std::int64_t vocabulary, const std::function<std::string(std::int32_t)>& token) {
  for (const std::int32_t id : ids) {
    if (id >= 0 && id < vocabulary) continue;
    const std::string of = std::to_string(id);
    throw InvalidArgument(
        function, argument,
        "tokens that the model has, whose ids are from 0 to " + std::to_string(vocabulary - 1),
        token ? "'" + token(id) + "', whose id is " + of : "the id " + of);
  }
}

// What a token adds to the text of those before it says whether it begins a word.
Words Coder::words(std::span<const std::int32_t> ids) const {
  Words words;
  bool behind_blank = false;
  for (const text::AddedText& added : text::added_texts(ids, [&](auto some) { return text(some); })) {
    const std::size_t begin = added.text.find_first_not_of(' ');
    if (added.goes_on) {
      words.word_of.push_back(words.word_of.back());
    } else if (begin == std::string::npos) {
      words.word_of.push_back(-1);
    } else {
      if (words.labels.empty() || begin > 0 || behind_blank) words.labels.emplace_back();
      words.labels.back() += added.text.substr(begin);
      words.word_of.push_back(static_cast<std::int32_t>(words.labels.size()) - 1);
    }
    if (!added.text.empty()) behind_blank = added.text.ends_with(' ');
  }
  return words;
}

std::unique_ptr<Coder> read_coder(const models::ModelFolder& folder, std::int64_t vocabulary) {
  const std::string path = folder.path().string();
  const bool json = text::has_folder_tokenizer(folder.path());
  if (json || text::MarianTokenizer::is_in(folder.path())) {
    std::vector<std::int32_t> stops = folder.generation().stop_ids;
    if (json) {
      text::FolderTokenizer read = text::read_folder_tokenizer(folder.path());
      return std::make_unique<JsonCoder>(std::move(read.tokenizer), std::move(stops), vocabulary);
    }
    text::MarianTokenizer read = text::MarianTokenizer::read(folder.path());
    return std::make_unique<MarianCoder>(std::move(read), std::move(stops), vocabulary);
  }
  auto tokenizer = text::load_tokenizer(folder.path());
  if (tokenizer->size() != vocabulary)
    throw FileError(path, -1,
                    "the tokenizer has " + std::to_string(tokenizer->size()) + " pieces and the model " +
                        std::to_string(vocabulary));
  return std::make_unique<OwnCoder>(std::move(tokenizer));
}

}  // namespace fovea::train
