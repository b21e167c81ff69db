#include "text/pipeline/added_tokens.h"

#include <algorithm>

#include "core/excerpt.h"
#include "text/pipeline/pre_tokenizers.h"
#include "text/utf8.h"

namespace fovea::text::pipeline {
namespace {

using nlohmann::json;

// The beginning of the character that ends at `end`.
std::size_t before(std::string_view text, std::size_t end) {
  do --end;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0u) == 0x80u);
  return end;
}

bool is_word_character(std::string_view character) {
  static const Regex word("[" + std::string(kRustWord) + "]");
  const std::vector<Part> parts = word.parts(character);
  return !parts.empty() && parts.front().match;
}

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  if (begin > 0 && is_word_character(text.substr(before(text, begin), begin - before(text, begin))))
    return false;
  if (end == text.size()) return true;
  return !is_word_character(text.substr(end, static_cast<std::size_t>(decode_utf8(text, end).bytes)));
}

std::size_t without_blanks_before(std::string_view text, std::size_t begin) {
  while (begin > 0 && is_white_space(decode_utf8(text, before(text, begin)).value))
    begin = before(text, begin);
  return begin;
}

std::size_t with_blanks_behind(std::string_view text, std::size_t end) {
  while (end < text.size()) {
    const CodePoint point = decode_utf8(text, end);
    if (!is_white_space(point.value)) break;
    end += static_cast<std::size_t>(point.bytes);
  }
  return end;
}

}  // namespace

AddedTokens::AddedTokens(const json& value, const Where& where, const Model& model,
                         const std::optional<Normalizer>& normalizer) {
  if (value.is_null()) return;
  if (!value.is_array()) where.expected("an array", value);
  std::int64_t next = model.count();
  for (std::size_t i = 0; i < value.size(); ++i) {
    const Fields fields(value[i], where.at(i),
                        {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    AddedToken token{.content = fields.string("content"),
                     .single_word = fields.boolean("single_word"),
                     .lstrip = fields.boolean("lstrip"),
                     .rstrip = fields.boolean("rstrip"),
                     .normalized = fields.boolean("normalized"),
                     .special = fields.boolean("special"),
                     .spelling = {}};
    const std::int64_t id = fields.number("id", 1 << 30);
    if (token.content.empty()) fields.where("content").fail("is empty");
    std::optional<std::int32_t> known = id_of(token.content);
    if (!known) known = model.id_of(token.content);
    const std::int64_t expected = known ? *known : next++;
    if (id != expected)
      fields.where("id").fail("expected " + std::to_string(expected) + ", the id of '" +
                              excerpt(token.content) + "' after those of the model, got " +
                              std::to_string(id));
    token.spelling = token.content;
    if (token.normalized && normalizer) {
      Normalized spelling(token.content);
      normalizer->apply(spelling);
      token.spelling = spelling.text();
    }
    add(std::move(token), static_cast<std::int32_t>(id));
  }
}

void AddedTokens::add(AddedToken token, std::int32_t id) {
  if (!token.spelling.empty()) (token.normalized ? in_normalized_ : in_source_).add(token.spelling, id);
  if (token.special) special_.insert(token.content);
  ids_.insert_or_assign(token.content, id);
  by_id_.insert_or_assign(id, std::move(token));
}

std::optional<std::int32_t> AddedTokens::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

// At each place the longest token is taken, and the search goes on behind it.
void AddedTokens::append_pieces(const Normalized& text, const ByteTrie& trie,
                                std::vector<Piece>& pieces) const {
  const std::string& of = text.text();
  std::size_t done = 0;
  const auto add = [&](std::size_t begin, std::size_t end, std::optional<std::int32_t> id) {
    if (begin < end) pieces.push_back({text.slice(begin, end), id});
  };
  for (std::size_t at = 0; !trie.empty() && at < of.size();) {
    std::size_t length = 0;
    std::int32_t id = -1;
    trie.prefixes(std::string_view(of).substr(at), [&](std::size_t size, std::int32_t value) {
      length = size;
      id = value;
    });
    if (length == 0) {
      ++at;
      continue;
    }
    std::size_t begin = at, end = at + length;
    at = end;
    const AddedToken& token = by_id_.at(id);
    if (token.single_word && !stands_alone(of, begin, end)) continue;
    if (token.lstrip) begin = std::max(without_blanks_before(of, begin), done);
    if (token.rstrip) end = with_blanks_behind(of, end);
    if (done < begin) add(done, begin, std::nullopt);
    add(begin, end, id);
    done = end;
  }
  add(done, of.size(), std::nullopt);
}

std::vector<Piece> AddedTokens::split(std::string_view text,
                                      const std::optional<Normalizer>& normalizer) const {
  std::vector<Piece> in_source, pieces;
  append_pieces(Normalized(text), in_source_, in_source);
  for (Piece& piece : in_source) {
    if (piece.id) {
      pieces.push_back(std::move(piece));
      continue;
    }
    if (normalizer) normalizer->apply(piece.text);
    append_pieces(piece.text, in_normalized_, pieces);
  }
  return pieces;
}

std::string AddedTokens::to_json() const {
  auto all = nlohmann::ordered_json::array();
  for (const auto& [id, token] : by_id_)
    all.push_back({{"id", id},
                   {"content", token.content},
                   {"single_word", token.single_word},
                   {"lstrip", token.lstrip},
                   {"rstrip", token.rstrip},
                   {"normalized", token.normalized},
                   {"special", token.special}});
  return all.dump();
}

}  // namespace fovea::text::pipeline
