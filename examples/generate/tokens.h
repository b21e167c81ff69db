// Text as sub-words, and back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fovea/text/tokenizer.h"

namespace generate {

using Ids = std::vector<std::int32_t>;

/// Byte-pair encoding of the lines of `text`, with a piece for every printable ASCII character, so that no
/// text is unknown.
std::unique_ptr<fovea::text::SentencePieceTokenizer> train_tokenizer(const std::string& text,
                                                                     std::int64_t vocabulary);
/// text::encode_lines. Throws InvalidArgument if the pieces do not spell the text.
Ids encode(const fovea::text::Tokenizer& tokenizer, const std::string& text);
/// How many characters each id stands for, the end of a line counted as one: they sum to the text's size.
std::vector<std::int64_t> lengths(const fovea::text::Tokenizer& tokenizer, std::span<const std::int32_t> ids);
/// Characters as ids.
Ids characters(const std::string& text);

}  // namespace generate
