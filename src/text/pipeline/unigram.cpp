// Unigram (Kudo 2018, arXiv 1804.10959): the tokens of a word are those whose scores have the largest sum.
// The search is written here and not left to libsentencepiece, because that adds in f32 and fuses unknown
// characters otherwise, and so decides ties in another way than the library that wrote the file.
#include <cstdio>
#include <limits>

#include "text/pipeline/byte_trie.h"
#include "text/pipeline/model.h"
#include "text/utf8.h"

namespace fovea::text::pipeline {
namespace {

using nlohmann::json;

// An unknown character costs this more than the worst token.
constexpr double kUnknownPenalty = 10.0;
constexpr std::size_t kNone = ~std::size_t{0};

struct Step {
  double score = 0.0;
  std::int32_t id = 0;
  std::size_t begin = kNone;
};

class Unigram final : public Model {
 public:
  explicit Unigram(std::shared_ptr<Document> document) : document_(std::move(document)) {
    read_options();
    read_vocab();
    if (unk_id_ && *unk_id_ >= count())
      Where{document_->file(), "model.unk_id"}.fail("expected less than " + std::to_string(count()) +
                                                    ", got " + std::to_string(*unk_id_));
  }

  std::string_view type() const override { return "Unigram"; }
  void tokenize(std::string_view word, std::vector<Token>& tokens) const override;
  std::optional<std::int32_t> id_of(std::string_view token) const override {
    const auto found = ids_.find(token);
    if (found == ids_.end()) return std::nullopt;
    return found->second;
  }
  std::optional<std::string_view> token(std::int32_t id) const override {
    if (id < 0 || id >= count()) return std::nullopt;
    return pieces_[static_cast<std::size_t>(id)].first;
  }
  std::int64_t count() const override { return static_cast<std::int64_t>(pieces_.size()); }
  std::int64_t end_id() const override { return count(); }
  std::string to_json() const override;

 private:
  void read_options();
  void read_vocab();
  std::vector<Step> best_steps(std::string_view word) const;
  void add(std::string_view word, std::size_t begin, std::size_t end, std::vector<Token>& tokens) const;
  std::int32_t unknown() const {
    if (!unk_id_) Where{document_->file(), "model.unk_id"}.fail("is null, and a text needs it");
    return *unk_id_;
  }

  std::shared_ptr<Document> document_;
  std::vector<std::pair<std::string_view, double>> pieces_;  // and their scores, by id
  std::unordered_map<std::string_view, std::int32_t> ids_;
  ByteTrie trie_;
  std::optional<std::int32_t> unk_id_;
  bool byte_fallback_ = false;
  double lowest_ = std::numeric_limits<double>::infinity();
};

void Unigram::read_options() {
  const json options = document_->model_options();
  const Fields fields(options, {document_->file(), "model"}, {"type", "unk_id", "byte_fallback"});
  if (fields.has("unk_id")) unk_id_ = static_cast<std::int32_t>(fields.number("unk_id", 1 << 30));
  byte_fallback_ = fields.boolean("byte_fallback", false);
}

void Unigram::read_vocab() {
  files::JsonScanner scanner = document_->scanner(document_->at("model.vocab"));
  scanner.open_array("an array of tokens and scores");
  while (scanner.next_element()) {
    scanner.open_array("a token and its score");
    if (!scanner.next_element()) scanner.fail("model.vocab: expected a token and its score");
    const std::string_view token = scanner.string("a token");
    if (token.size() > kMostTokenBytes)
      scanner.fail("model.vocab: expected a token of at most " + std::to_string(kMostTokenBytes) +
                   " bytes, got " + std::to_string(token.size()));
    if (!scanner.next_element()) scanner.fail("model.vocab: expected a score behind the token");
    const double score = scanner.real("a score");
    if (scanner.next_element()) scanner.fail("model.vocab: expected a token and its score, got more");
    const auto id = static_cast<std::int32_t>(pieces_.size());
    pieces_.emplace_back(token, score);
    ids_.insert_or_assign(token, id);  // of a token that is there twice the last one counts
    if (!token.empty()) trie_.add(token, id);
    lowest_ = std::min(lowest_, score);
  }
  scanner.finish();
  if (pieces_.empty()) Where{document_->file(), "model.vocab"}.fail("is empty");
}

// The last token of the best tokens for each beginning of the word (Viterbi).
std::vector<Step> Unigram::best_steps(std::string_view word) const {
  std::vector<Step> best(word.size() + 1);
  for (std::size_t at = 0; at < word.size();) {
    const auto character = static_cast<std::size_t>(decode_utf8(word, at).bytes);
    const double so_far = best[at].score;
    const auto offer = [&](std::size_t length, double score, std::int32_t id) {
      Step& step = best[at + length];
      if (step.begin == kNone || score > step.score) step = {score, id, at};
    };
    bool known = false;
    trie_.prefixes(word.substr(at), [&](std::size_t length, std::int32_t id) {
      offer(length, pieces_[static_cast<std::size_t>(id)].second + so_far, id);
      known = known || length == character;
    });
    if (!known) offer(character, lowest_ - kUnknownPenalty + so_far, unknown());
    at += character;
  }
  return best;
}

void Unigram::tokenize(std::string_view word, std::vector<Token>& tokens) const {
  const std::vector<Step> best = best_steps(word);
  std::vector<std::pair<std::size_t, std::size_t>> parts;  // from the end of the word
  bool fuses = false;
  for (std::size_t end = word.size(); end > 0; end = best[end].begin) {
    const bool is_unknown = unk_id_ && best[end].id == *unk_id_;
    if (is_unknown && fuses)
      parts.back().first = best[end].begin;
    else
      parts.emplace_back(best[end].begin, end);
    fuses = is_unknown;
  }
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) add(word, part->first, part->second, tokens);
}

// The token of a part of the word, or its bytes as "<0xE2>", or the unknown token.
void Unigram::add(std::string_view word, std::size_t begin, std::size_t end,
                  std::vector<Token>& tokens) const {
  const std::string_view part = word.substr(begin, end - begin);
  if (const auto id = id_of(part)) return tokens.push_back({*id, begin, end});
  std::vector<Token> bytes;
  for (const char byte : part) {
    if (!byte_fallback_) break;
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(static_cast<unsigned char>(byte)));
    const auto id = id_of(name);
    if (!id) break;
    bytes.push_back({*id, begin, end});
  }
  if (bytes.size() == part.size())
    tokens.insert(tokens.end(), bytes.begin(), bytes.end());
  else
    tokens.push_back({unknown(), begin, end});
}

std::string Unigram::to_json() const {
  std::string text =
      "{\"type\":\"Unigram\",\"unk_id\":" + (unk_id_ ? std::to_string(*unk_id_) : "null") + ",\"vocab\":[";
  for (const auto& [token, score] : pieces_) {
    if (text.back() != '[') text += ',';
    text += '[' + nlohmann::json(token).dump() + ',' + nlohmann::json(score).dump() + ']';
  }
  return text + "],\"byte_fallback\":" + (byte_fallback_ ? "true" : "false") + '}';
}

}  // namespace

std::unique_ptr<const Model> read_unigram_model(const std::shared_ptr<Document>& document) {
  return std::make_unique<Unigram>(document);
}

}  // namespace fovea::text::pipeline
