#include "text/pipeline/added_tokens.h"

#include <algorithm>

#include "core/excerpt.h"
#include "fovea/core/error.h"
#include "text/pipeline/post_processors.h"
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

std::size_t without_blanks_before(std::string_view text, std::size_t begin, std::size_t least) {
  while (begin > least && is_white_space(decode_utf8(text, before(text, begin)).value))
    begin = before(text, begin);
  return begin;
}

std::uint32_t characters_of(std::string_view text) {
  return static_cast<std::uint32_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0u) != 0x80u;
  }));
}

// The blanks behind places of a text, which do not decrease. Each blank is read twice at most.
class BlanksBehind {
 public:
  explicit BlanksBehind(std::string_view text) : text_(text) {}
  /// Returns where the blanks behind `at` end.
  std::size_t end(std::size_t at) {
    if (at < end_) {
      count_ -= characters_of(text_.substr(at_, at - at_));
      at_ = at;
      return end_;
    }
    at_ = end_ = at;
    for (count_ = 0; end_ < text_.size(); ++count_) {
      const CodePoint point = decode_utf8(text_, end_);
      if (!is_white_space(point.value)) break;
      end_ += static_cast<std::size_t>(point.bytes);
    }
    return end_;
  }
  /// How many those of the last call are.
  std::uint32_t count() const { return count_; }

 private:
  std::string_view text_;
  std::size_t at_ = 0, end_ = 0;
  std::uint32_t count_ = 0;
};

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
    if (token.content.size() > kMostTokenBytes)
      fields.where("content").fail("expected at most " + std::to_string(kMostTokenBytes) + " bytes, got " +
                                   std::to_string(token.content.size()));
    token.spelling = token.content;
    if (token.normalized && normalizer) {
      Normalized spelling(token.content);
      try {
        normalizer->apply(spelling);
      } catch (const InvalidArgument& error) {
        fields.where("content").fail("expected " + error.expected() + ", got " + error.got());
      }
      if (spelling.text().size() > kMostTokenBytes)
        fields.where("content").fail("expected a normalised spelling of at most " +
                                     std::to_string(kMostTokenBytes) + " bytes, got " +
                                     std::to_string(spelling.text().size()));
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
  BlanksBehind behind(of);
  std::size_t done = 0;
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
    const std::size_t core_end = end;
    at = end;
    const AddedToken& token = by_id_.at(id);
    if (token.single_word && !stands_alone(of, begin, end)) continue;
    std::uint32_t more_before = 0, more_behind = 0;
    std::size_t first_bytes = 0;
    if (token.lstrip) {
      const std::size_t first = without_blanks_before(of, begin, std::min(begin, done));
      first_bytes = begin - first;
      more_before = characters_of(std::string_view(of).substr(first, first_bytes));
      begin = std::max(first, done);
    }
    if (token.rstrip) {
      end = behind.end(end);
      more_behind = behind.count();
    }
    if (done < begin) pieces.push_back({text.slice(done, begin)});
    if (begin < end) {
      const std::size_t from = begin + first_bytes;
      const std::string_view own = std::string_view(of).substr(from, core_end - std::min(from, core_end));
      pieces.push_back({Normalized(""), id, text.place(begin, end), more_before + blanks_before(own),
                        more_behind + blanks_behind(own)});
      if (pieces.back().blanks_before == more_before + characters_of(own)) {
        pieces.back().blanks_before += more_behind;
        pieces.back().blanks_behind += more_before;
      }
    }
    done = end;
  }
  if (done < of.size()) pieces.push_back({text.slice(done, of.size())});
}

std::vector<Piece> AddedTokens::split(std::string_view text,
                                      const std::optional<Normalizer>& normalizer) const {
  std::vector<Piece> in_source, pieces;
  append_pieces(Normalized(text), in_source_, in_source);
  const std::size_t most = most_bytes(text.size());
  std::size_t bytes = 0;
  for (Piece& piece : in_source) {
    if (piece.id) {
      pieces.push_back(std::move(piece));
      continue;
    }
    if (normalizer) normalizer->apply(piece.text);
    bytes += piece.text.text().size();
    if (bytes > most) refuse_growth("normalizer", most);
    append_pieces(piece.text, in_normalized_, pieces);
  }
  return pieces;
}

nlohmann::ordered_json to_json(std::int64_t id, const AddedToken& token) {
  return {{"id", id},
          {"content", token.content},
          {"single_word", token.single_word},
          {"lstrip", token.lstrip},
          {"rstrip", token.rstrip},
          {"normalized", token.normalized},
          {"special", token.special}};
}

std::string AddedTokens::to_json() const {
  auto all = nlohmann::ordered_json::array();
  for (const auto& [id, token] : by_id_) all.push_back(pipeline::to_json(id, token));
  return all.dump();
}

}  // namespace fovea::text::pipeline
