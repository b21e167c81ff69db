#include "tokens.h"

#include "fovea/core/error.h"

namespace generate {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

}  // namespace

std::unique_ptr<fovea::text::SentencePieceTokenizer> train_tokenizer(const std::string& text,
                                                                     std::int64_t vocabulary) {
  std::vector<std::string> lines = lines_of(text);
  std::string every_character;
  for (char c = '!'; c <= '~'; ++c) every_character += {c, ' '};
  lines.push_back(every_character);
  return fovea::text::SentencePieceTokenizer::train(lines, {.vocabulary_size = vocabulary});
}

Ids encode(const fovea::text::Tokenizer& tokenizer, const std::string& text) {
  const Ids ids = fovea::text::encode_lines(tokenizer, text);
  // Bits are divided by the characters of this text, so pieces that spell another text would falsify them.
  if (fovea::text::decode_lines(tokenizer, ids) != text)
    throw fovea::InvalidArgument("encode", "text", "lines that their pieces give back", text);
  return ids;
}

std::vector<std::int64_t> lengths(const fovea::text::Tokenizer& tokenizer,
                                  std::span<const std::int32_t> ids) {
  // A piece spells a blank with three bytes. The blank before a line's first word stands for no character.
  constexpr std::string_view blank = "\xE2\x96\x81";
  const std::vector<std::string> pieces = tokenizer.pieces(ids);
  std::vector<std::int64_t> result;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    auto length = static_cast<std::int64_t>(pieces[i].size());
    if (pieces[i].starts_with(blank)) length -= 2;
    if (ids[i] == fovea::text::kEosId) length = 1;
    if (i > 0 && ids[i - 1] == fovea::text::kEosId && ids[i] != fovea::text::kEosId) --length;
    result.push_back(length);
  }
  return result;
}

Ids characters(const std::string& text) {
  return {text.begin(), text.end()};
}

}  // namespace generate
