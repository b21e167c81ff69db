#include "fovea/text/pieces.h"

#include <utility>

#include "fovea/text/marian_tokenizer.h"
#include "fovea/text/tokenizer.h"
#include "fovea/text/tokenizer_json.h"
#include "text/written_ids.h"

namespace fovea::text {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr std::string_view kBegin = "▁", kGoesOn = "##", kBlank = "␣";

std::string trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(blanks) + 1 - begin));
}

// Tokens one after the other.
class Builder {
 public:
  void special(const std::string& spelling) {
    pieces_.tokens.push_back(spelling);
    begin_word(spelling);
    open_ = blank_ = false;
  }
  /// A token that shows `text`. `begins`: whether a word begins with it; the first one behind a special id
  /// does. A blank alone begins the word of the token behind it.
  void add(std::string_view text, bool begins) {
    const std::string shown = trimmed(text);
    add(shown, shown, begins && !(blank_ && !text.starts_with(' ')));
    blank_ = begins && shown.empty();
  }
  /// Another byte of the character that the token before it shows.
  void add_byte() { add("…", "", false); }
  Pieces take(Ids ids) {
    pieces_.ids = std::move(ids);
    for (std::string& word : pieces_.words) {
      if (word.empty()) word = kBlank;
    }
    return std::move(pieces_);
  }

 private:
  void add(const std::string& shown, const std::string& of_word, bool begins) {
    begins = begins || !open_;
    pieces_.tokens.push_back(begins          ? std::string(kBegin) + shown
                             : shown.empty() ? std::string(kBlank)
                                             : shown);
    if (begins)
      begin_word(of_word);
    else
      go_on(of_word);
    open_ = true;
  }
  void begin_word(std::string label) {
    pieces_.words.push_back(std::move(label));
    pieces_.word_of.push_back(pieces_.words.size() - 1);
  }
  void go_on(const std::string& text) {
    pieces_.words.back() += text;
    pieces_.word_of.push_back(pieces_.words.size() - 1);
  }

  Pieces pieces_;
  bool open_ = false, blank_ = false;
};

void pop_back(Encoding& encoding) {
  encoding.ids.pop_back();
  encoding.offsets.pop_back();
  for (auto* numbers : {&encoding.types, &encoding.texts, &encoding.words}) numbers->pop_back();
  encoding.special.pop_back();
}

class JsonPieces final : public PieceReader {
 public:
  explicit JsonPieces(JsonTokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}
  Pieces read(const std::string& text) const override {
    const Encoding encoding = tokenizer_.encode(text);
    return marked(spanned(text, encoding, tokenizer_.word_begins(text, encoding)));
  }
  Encoding encode(const std::string& text, EncodeOptions::SpecialTokens special) const override {
    return tokenizer_.encode(text, {.special_tokens = special});
  }
  Ids target(const std::string& text) const override {
    return encode(text, EncodeOptions::SpecialTokens::leave_out).ids;
  }

  std::string decode(std::span<const std::int32_t> ids) const override { return tokenizer_.decode(ids); }
  std::string token(std::int32_t id) const override { return tokenizer_.token(id); }

 private:
  // WordPiece marks what goes on with a word, and not what begins one.
  Pieces marked(Pieces pieces) const {
    if (tokenizer_.model_type() != "WordPiece") return pieces;
    for (std::size_t i = 0; i < pieces.tokens.size(); ++i) {
      std::string& token = pieces.tokens[i];
      if (token.starts_with(kBegin))
        token.erase(0, kBegin.size());
      else if (i > 0 && pieces.word_of[i] == pieces.word_of[i - 1])
        token.insert(0, kGoesOn);
    }
    return pieces;
  }

  JsonTokenizer tokenizer_;
};

class MarianPieces final : public PieceReader {
 public:
  explicit MarianPieces(MarianTokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}
  Pieces read(const std::string& text) const override {
    const Encoding encoding = tokenizer_.encoding(text);
    std::vector<bool> begins;
    for (std::size_t i = 0; i < encoding.size(); ++i)
      begins.push_back(i == 0 || encoding.words[i] != encoding.words[i - 1]);
    return spanned(text, encoding, begins);
  }
  Encoding encode(const std::string& text, EncodeOptions::SpecialTokens special) const override {
    Encoding encoding = tokenizer_.encoding(text);
    if (special == EncodeOptions::SpecialTokens::leave_out) pop_back(encoding);
    return encoding;
  }
  Ids target(const std::string& text) const override {
    Ids ids = tokenizer_.encode_target(text);
    ids.pop_back();
    return ids;
  }

  std::string decode(std::span<const std::int32_t> ids) const override { return tokenizer_.decode(ids); }
  std::string token(std::int32_t id) const override { return tokenizer_.token(id); }

 private:
  MarianTokenizer tokenizer_;
};

class OwnPieces final : public PieceReader {
 public:
  explicit OwnPieces(std::unique_ptr<Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}
  Pieces read(const std::string& text) const override {
    Ids ids = tokenizer_->encode(text);
    Pieces pieces{ids, tokenizer_->pieces(ids), {}, {}};
    const std::vector<std::int32_t> words = tokenizer_->word_of(pieces.tokens);
    pieces.words = tokenizer_->words(pieces.tokens);
    for (const std::int32_t word : words) pieces.word_of.push_back(static_cast<std::size_t>(word));
    return pieces;
  }
  // Ours adds no ids to those of the text.
  Encoding encode(const std::string& text, EncodeOptions::SpecialTokens) const override {
    return tokenizer_->encoding(text);
  }
  Ids target(const std::string& text) const override { return tokenizer_->encode(text); }

  std::string decode(std::span<const std::int32_t> ids) const override { return tokenizer_->decode(ids); }
  std::string token(std::int32_t id) const override { return tokenizer_->pieces({&id, 1})[0]; }

 private:
  std::unique_ptr<Tokenizer> tokenizer_;
};

}  // namespace

// A word that the vocabulary lacks is shown as itself.
Pieces PieceReader::spanned(std::string_view text, const Encoding& encoding,
                            const std::vector<bool>& begins) const {
  Builder builder;
  for (std::size_t i = 0; i < encoding.size(); ++i) {
    const auto [begin, end] = encoding.offsets[i];
    const std::string spelling = token(encoding.ids[i]);
    if (encoding.texts[i] < 0 || (end <= begin && spelling != kBegin)) {
      builder.special(spelling);
      continue;
    }
    // Ids that share a character are bytes of it: it is shown once, and then its place.
    const bool shared =
        i > 0 && begin < end && encoding.texts[i - 1] >= 0 && end <= encoding.offsets[i - 1].end;
    if (shared)
      builder.add_byte();
    else
      builder.add(text.substr(begin, end - begin), begins[i]);
  }
  return builder.take(encoding.ids);
}

// What a token adds to the text of those before it says whether it begins a word.
Pieces PieceReader::written(std::span<const std::int32_t> ids) const {
  Builder builder;
  bool behind_blank = false;
  const std::vector<AddedText> added = added_texts(ids, [&](auto some) { return decode(some); });
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::string &text = added[i].text, spelling = token(ids[i]);
    if (added[i].goes_on)
      builder.add_byte();
    else if (text.empty() && spelling != kBegin)
      builder.special(spelling);
    else
      builder.add(text, text.empty() || text.starts_with(' ') || behind_blank);
    if (!text.empty()) behind_blank = text.ends_with(' ');
  }
  return builder.take(Ids(ids.begin(), ids.end()));
}

std::unique_ptr<PieceReader> read_pieces(const std::filesystem::path& folder) {
  if (has_folder_tokenizer(folder))
    return std::make_unique<JsonPieces>(read_folder_tokenizer(folder).tokenizer);
  if (MarianTokenizer::is_in(folder)) return std::make_unique<MarianPieces>(MarianTokenizer::read(folder));
  return std::make_unique<OwnPieces>(load_tokenizer(folder));
}

Pieces number_pieces(Ids ids) {
  Pieces pieces;
  for (const std::int32_t id : ids) {
    pieces.word_of.push_back(pieces.tokens.size());
    pieces.tokens.push_back(std::to_string(id));
  }
  pieces.words = pieces.tokens;
  pieces.ids = std::move(ids);
  return pieces;
}

}  // namespace fovea::text
