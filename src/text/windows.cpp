// Long texts as windows, and where words begin.
#include <algorithm>

#include "fovea/core/error.h"
#include "fovea/text/tokenizer_json.h"

namespace fovea::text {

std::vector<Encoding> windows_of(const Encoding& pair, std::int64_t max_length, std::int64_t stride) {
  const auto of_second = static_cast<std::int64_t>(std::count(pair.texts.begin(), pair.texts.end(), 1));
  const std::int64_t others = static_cast<std::int64_t>(pair.size()) - of_second, room = max_length - others;
  if (others + of_second <= max_length) return {pair};
  if (stride < 0 || room <= stride)
    throw InvalidArgument("windows_of", "max_length",
                          "more than " + std::to_string(others + std::max<std::int64_t>(stride, 0)) +
                              ": the ids of the first text and of the template, and the stride",
                          std::to_string(max_length));
  std::vector<Encoding> windows;
  for (std::int64_t begin = 0, end = 0; end < of_second; begin += room - stride) {
    end = std::min(begin + room, of_second);
    Encoding& window = windows.emplace_back();
    std::int64_t number = 0;  // of an id among those of the second text
    for (std::size_t i = 0; i < pair.size(); ++i) {
      const bool second = pair.texts[i] == 1;
      const bool inside = !second || (number >= begin && number < end);
      number += second;
      if (!inside) continue;
      window.ids.push_back(pair.ids[i]);
      window.offsets.push_back(pair.offsets[i]);
      window.special.push_back(pair.special[i]);
      window.types.push_back(pair.types[i]);
      window.texts.push_back(pair.texts[i]);
      window.words.push_back(pair.words[i]);
    }
  }
  return windows;
}

std::vector<bool> JsonTokenizer::word_begins(std::string_view text, const Encoding& encoding) const {
  const std::string prefix = continuing_prefix();
  std::vector<bool> begins;
  for (std::size_t i = 0; i < encoding.size(); ++i) {
    const std::size_t at = encoding.offsets[i].begin;
    const auto blank = [&](std::size_t byte) { return byte < text.size() && text[byte] == ' '; };
    begins.push_back(prefix.empty() ? at == 0 || blank(at) || blank(at - 1)
                                    : !token(encoding.ids[i]).starts_with(prefix));
  }
  return begins;
}

}  // namespace fovea::text
