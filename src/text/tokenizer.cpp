#include "fovea/text/tokenizer.h"

#include <unordered_map>

#include "fovea/core/error.h"
#include "fovea/core/profile.h"
#include "text/utf8.h"

namespace fovea::text {
namespace {

constexpr std::string_view kContinues = "@@";

}  // namespace

std::vector<std::string> Tokenizer::words(std::span<const std::string> pieces) const {
  const std::vector<std::int32_t> word = word_of(pieces);
  std::vector<std::string> words(word.empty() ? 0 : static_cast<std::size_t>(word.back()) + 1);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    words[static_cast<std::size_t>(word[i])] += is_special_piece(pieces[i]) ? pieces[i] : surface(pieces[i]);
  }
  return words;
}

std::unique_ptr<WhitespaceTokenizer> WhitespaceTokenizer::build(std::span<const std::string> lines,
                                                                const WhitespaceOptions& options) {
  static constexpr ProfileLabel label{"learning a tokenizer", ProfilePart::data};
  const ProfileSpan span(label);
  std::unordered_map<std::string, std::int64_t> counts;
  for (const std::string& line : lines) {
    if (find_invalid_utf8(line) != std::string_view::npos) {
      throw InvalidArgument("WhitespaceTokenizer::build", "lines", "valid UTF-8", "bad bytes");
    }
    for (const std::string_view word : split_words(line)) ++counts[std::string(word)];
  }
  return std::make_unique<WhitespaceTokenizer>(
      Vocabulary::from_counts(counts, options.min_frequency, options.max_size));
}

std::vector<std::int32_t> WhitespaceTokenizer::encode(std::string_view line) const {
  static constexpr ProfileLabel label{"text to tokens", ProfilePart::data};
  const ProfileSpan span(label, {.bytes = static_cast<double>(line.size())});
  std::vector<std::int32_t> ids;
  for (const std::string_view word : split_words(line)) {
    const std::int32_t id = vocabulary_.id_of(word);
    ids.push_back(id < kNumSpecialIds ? kUnknownId : id);
  }
  return ids;
}

Encoding WhitespaceTokenizer::encoding(std::string_view line) const {
  if (const std::size_t bad = find_invalid_utf8(line); bad != std::string_view::npos)
    throw InvalidArgument("WhitespaceTokenizer::encoding", "line", "UTF-8",
                          "an invalid byte at offset " + std::to_string(bad));
  Encoding encoding;
  encoding.ids = encode(line);
  for (const std::string_view word : split_words(line)) {
    const auto begin = static_cast<std::size_t>(word.data() - line.data());
    encoding.offsets.push_back({begin, begin + word.size()});
  }
  encoding.words = word_of(pieces(encoding.ids));
  encoding.special.assign(encoding.ids.size(), 0);
  encoding.types.assign(encoding.ids.size(), 0);
  encoding.texts.assign(encoding.ids.size(), 0);
  return encoding;
}

std::string WhitespaceTokenizer::decode(std::span<const std::int32_t> ids) const {
  static constexpr ProfileLabel label{"tokens to text", ProfilePart::data};
  const ProfileSpan span(label, {.bytes = 4.0 * static_cast<double>(ids.size())});
  std::string text;
  bool joined = true;
  for (const std::int32_t id : ids) {
    if (id == kPadId || id == kBosId || id == kEosId) continue;
    const std::string& piece = vocabulary_.piece(id);
    if (!joined) text += ' ';
    joined = piece.ends_with(kContinues);
    text += surface(piece);
  }
  return text;
}

std::vector<std::string> WhitespaceTokenizer::pieces(std::span<const std::int32_t> ids) const {
  std::vector<std::string> pieces;
  for (const std::int32_t id : ids) pieces.push_back(vocabulary_.piece(id));
  return pieces;
}

std::vector<std::int32_t> WhitespaceTokenizer::word_of(std::span<const std::string> pieces) const {
  std::vector<std::int32_t> word;
  std::int32_t current = -1;
  bool joined = false;
  for (const std::string& piece : pieces) {
    const bool special = is_special_piece(piece);
    if (!joined || special) ++current;
    word.push_back(current);
    joined = !special && piece.ends_with(kContinues);
  }
  return word;
}

std::string WhitespaceTokenizer::surface(const std::string& piece) const {
  return piece.ends_with(kContinues) ? piece.substr(0, piece.size() - kContinues.size()) : piece;
}

void WhitespaceTokenizer::save(const std::filesystem::path& folder, const std::string& prefix) const {
  vocabulary_.save(folder / (prefix + "vocab.json"));
  std::error_code ignored;  // one folder, one tokenizer: the other kind's file would be loaded instead
  std::filesystem::remove(folder / (prefix + "spm.model"), ignored);
}

}  // namespace fovea::text
