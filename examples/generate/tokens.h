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
/// The pieces of each line, then </s> for its end.
Ids encode(const fovea::text::Tokenizer& tokenizer, const std::string& text);
/// The text of `ids`, with `line_end` for each end of a line.
std::string decode(const fovea::text::Tokenizer& tokenizer, std::span<const std::int32_t> ids,
                   const std::string& line_end = "\n");
/// How many characters each id stands for, the end of a line counted as one: they sum to the text's size.
std::vector<std::int64_t> lengths(const fovea::text::Tokenizer& tokenizer, std::span<const std::int32_t> ids);
/// Characters as ids.
Ids characters(const std::string& text);

}  // namespace generate
