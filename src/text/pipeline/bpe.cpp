// Byte-pair encoding (Sennrich et al. 2016, arXiv 1508.07909): the pair of neighbours whose merge stands
// first in the list is merged, again and again.
#include <algorithm>
#include <cstdio>
#include <queue>

#include "core/excerpt.h"
#include "text/pipeline/model.h"
#include "text/utf8.h"

namespace fovea::text::pipeline {
namespace {

using nlohmann::json;

constexpr std::size_t kNone = ~std::size_t{0};

struct Symbol {
  std::int32_t id = 0;
  std::size_t bytes = 0;
  std::size_t before = kNone, next = kNone;
};

struct Merge {
  std::uint32_t rank = 0;
  std::int32_t id = 0;
};

// A pair that can be merged, unless one of the two has been merged with another since.
struct Candidate {
  std::uint32_t rank = 0;
  std::size_t at = 0;
  std::int32_t id = 0;
  bool operator>(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : at > other.at;
  }
};

std::uint64_t pair_of(std::int32_t first, std::int32_t second) {
  return std::uint64_t{static_cast<std::uint32_t>(first)} << 32 | static_cast<std::uint32_t>(second);
}

struct BpeOptions {
  std::optional<std::string> unk_token, continuing_subword_prefix, end_of_word_suffix;
  bool fuse_unk = false, byte_fallback = false, ignore_merges = false;
};

class Bpe final : public VocabularyModel {
 public:
  explicit Bpe(std::shared_ptr<Document> document);

  std::string_view type() const override { return "BPE"; }
  std::string_view continuing_prefix() const override {
    return options_.continuing_subword_prefix ? std::string_view(*options_.continuing_subword_prefix) : "";
  }
  void tokenize(std::string_view word, std::vector<Token>& tokens) const override;
  std::string to_json() const override;

 private:
  void read_options();
  void read_merges();
  void add_merge(files::JsonScanner& scanner, std::string_view first, std::string_view second);
  std::vector<Symbol> symbols_of(std::string_view word) const;
  bool add_bytes(std::vector<Symbol>& symbols, std::string_view letter) const;
  std::int32_t unknown() const;
  void merge(std::vector<Symbol>& symbols) const;

  BpeOptions options_;
  nlohmann::json dropout_;
  std::unordered_map<std::uint64_t, Merge> merges_;
  std::uint32_t ranks_ = 0;
};

Bpe::Bpe(std::shared_ptr<Document> document) : VocabularyModel(std::move(document)) {
  read_options();
  read_merges();
}

void Bpe::read_options() {
  const json options = document_->model_options();
  const Fields fields(options, {document_->file(), "model"},
                      {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                       "fuse_unk", "byte_fallback", "ignore_merges"});
  const auto text = [&](std::string_view key) {
    return fields.has(key) ? std::optional(fields.string(key)) : std::nullopt;
  };
  options_ = {.unk_token = text("unk_token"),
              .continuing_subword_prefix = text("continuing_subword_prefix"),
              .end_of_word_suffix = text("end_of_word_suffix"),
              .fuse_unk = fields.boolean("fuse_unk", false),
              .byte_fallback = fields.boolean("byte_fallback", false),
              .ignore_merges = fields.boolean("ignore_merges", false)};
  // With dropout a text has other tokens each time.
  if (fields.has("dropout")) dropout_ = fields.at("dropout");
  if (!dropout_.is_null() && dropout_ != 0.0) fields.where("dropout").expected("null or 0", dropout_);
}

void Bpe::read_merges() {
  files::JsonScanner scanner = document_->scanner(document_->at("model.merges"));
  scanner.open_array("an array of merges");
  while (scanner.next_element()) {
    if (scanner.at_array()) {
      scanner.open_array();
      std::string_view pair[2];
      for (std::string_view& token : pair) {
        if (!scanner.next_element()) scanner.fail("model.merges: expected two tokens");
        token = scanner.string();
      }
      if (scanner.next_element()) scanner.fail("model.merges: expected two tokens, got more");
      add_merge(scanner, pair[0], pair[1]);
      continue;
    }
    const std::string_view line = scanner.string("a merge");
    if (line.starts_with("#version")) continue;
    const std::size_t blank = line.find(' ');
    if (blank == std::string_view::npos || line.find(' ', blank + 1) != std::string_view::npos)
      scanner.fail("model.merges: expected two tokens with a blank between them, got '" + excerpt(line) +
                   "'");
    add_merge(scanner, line.substr(0, blank), line.substr(blank + 1));
  }
  scanner.finish();
}

void Bpe::add_merge(files::JsonScanner& scanner, std::string_view first, std::string_view second) {
  const std::string prefix = options_.continuing_subword_prefix.value_or("");
  if (!second.starts_with(prefix))
    scanner.fail("model.merges: expected a second token that begins with '" + excerpt(prefix) + "', got '" +
                 excerpt(second) + "'");
  const auto id = [&](std::string_view token) {
    const auto found = vocab_.id_of(token);
    if (!found) scanner.fail("model.merges: '" + excerpt(token) + "' is not in the vocabulary");
    return *found;
  };
  const std::uint64_t pair = pair_of(id(first), id(second));
  std::string whole(first);
  whole += second.substr(prefix.size());
  // Of a pair that is there twice the last one counts.
  merges_.insert_or_assign(pair, Merge{ranks_++, id(whole)});
}

std::int32_t Bpe::unknown() const {
  const auto id = vocab_.id_of(*options_.unk_token);
  if (!id)
    Where{document_->file(), "model.unk_token"}.fail("'" + excerpt(*options_.unk_token) +
                                                     "' is not in the vocabulary, and a text needs it");
  return *id;
}

// Each byte as "<0xE2>", if the vocabulary has all of them.
bool Bpe::add_bytes(std::vector<Symbol>& symbols, std::string_view letter) const {
  std::vector<Symbol> bytes;
  for (const char byte : letter) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(static_cast<unsigned char>(byte)));
    const auto id = vocab_.id_of(name);
    if (!id) return false;
    bytes.push_back({*id, 1});
  }
  symbols.insert(symbols.end(), bytes.begin(), bytes.end());
  return true;
}

std::vector<Symbol> Bpe::symbols_of(std::string_view word) const {
  std::vector<Symbol> symbols;
  std::optional<Symbol> unknown_before;  // not added yet, because the next one may be fused with it
  const auto flush = [&] {
    if (unknown_before) symbols.push_back(*unknown_before);
    unknown_before.reset();
  };
  std::string spelled;
  for (std::size_t at = 0; at < word.size();) {
    const auto bytes = static_cast<std::size_t>(decode_utf8(word, at).bytes);
    std::string_view letter = word.substr(at, bytes);
    const bool first = at == 0, last = at + bytes == word.size();
    at += bytes;
    if ((!first && options_.continuing_subword_prefix) || (last && options_.end_of_word_suffix)) {
      spelled = first ? "" : options_.continuing_subword_prefix.value_or("");
      spelled += letter;
      if (last) spelled += options_.end_of_word_suffix.value_or("");
      letter = spelled;
    }
    if (const auto id = vocab_.id_of(letter)) {
      flush();
      symbols.push_back({*id, bytes});
    } else if (options_.byte_fallback && add_bytes(symbols, letter)) {
      continue;
    } else if (options_.unk_token) {
      if (unknown_before && options_.fuse_unk) {
        unknown_before->bytes += bytes;
      } else {
        flush();
        unknown_before = Symbol{unknown(), bytes};
      }
    }
  }
  flush();
  return symbols;
}

void Bpe::merge(std::vector<Symbol>& symbols) const {
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto offer = [&](std::size_t at) {
    const Symbol& first = symbols[at];
    if (first.next == kNone) return;
    const auto found = merges_.find(pair_of(first.id, symbols[first.next].id));
    if (found != merges_.end()) queue.push({found->second.rank, at, found->second.id});
  };
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    symbols[i].before = i == 0 ? kNone : i - 1;
    symbols[i].next = i + 1 == symbols.size() ? kNone : i + 1;
  }
  for (std::size_t i = 0; i < symbols.size(); ++i) offer(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& first = symbols[best.at];
    if (first.bytes == 0 || first.next == kNone) continue;
    Symbol& second = symbols[first.next];
    const auto found = merges_.find(pair_of(first.id, second.id));
    if (found == merges_.end() || found->second.id != best.id) continue;
    first.id = best.id;
    first.bytes += second.bytes;
    second.bytes = 0;
    first.next = second.next;
    if (first.next != kNone) symbols[first.next].before = best.at;
    if (first.before != kNone) offer(first.before);
    offer(best.at);
  }
}

void Bpe::tokenize(std::string_view word, std::vector<Token>& tokens) const {
  if (options_.ignore_merges) {
    if (const auto id = vocab_.id_of(word)) return tokens.push_back({*id, 0, word.size()});
  }
  std::vector<Symbol> symbols = symbols_of(word);
  merge(symbols);
  std::size_t at = 0;
  for (const Symbol& symbol : symbols) {
    if (symbol.bytes == 0) continue;
    tokens.push_back({symbol.id, at, at + symbol.bytes});
    at += symbol.bytes;
  }
}

std::string Bpe::to_json() const {
  using Json = nlohmann::ordered_json;
  const auto text = [](const std::optional<std::string>& value) { return value ? Json(*value) : Json(); };
  Json options = {{"type", "BPE"},
                  {"dropout", Json(dropout_)},
                  {"unk_token", text(options_.unk_token)},
                  {"continuing_subword_prefix", text(options_.continuing_subword_prefix)},
                  {"end_of_word_suffix", text(options_.end_of_word_suffix)},
                  {"fuse_unk", options_.fuse_unk},
                  {"byte_fallback", options_.byte_fallback},
                  {"ignore_merges", options_.ignore_merges}};
  std::vector<std::pair<std::uint32_t, std::uint64_t>> order;
  for (const auto& [pair, merge] : merges_) order.emplace_back(merge.rank, pair);
  std::sort(order.begin(), order.end());
  std::string result = options.dump();
  result.back() = ',';
  result += "\"vocab\":" + vocab_.to_json() + ",\"merges\":[";
  const auto token = [&](std::uint64_t id) {
    return nlohmann::json(*vocab_.token(static_cast<std::int32_t>(id & 0xFFFFFFFF))).dump();
  };
  for (const auto& [rank, pair] : order) {
    if (result.back() != '[') result += ',';
    result += '[' + token(pair >> 32) + ',' + token(pair) + ']';
  }
  return result + "]}";
}

}  // namespace

std::unique_ptr<const Model> read_bpe_model(const std::shared_ptr<Document>& document) {
  return std::make_unique<Bpe>(document);
}

}  // namespace fovea::text::pipeline
