// Texts of many lines as ids, and back.
#include <algorithm>

#include "fovea/text/tokenizer.h"

namespace fovea::text {

std::vector<std::int32_t> encode_lines(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::int32_t> ids;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::vector<std::int32_t> line = tokenizer.encode(text.substr(at, end - at));
    ids.insert(ids.end(), line.begin(), line.end());
    if (end < text.size()) ids.push_back(kEosId);
    at = end + 1;
  }
  return ids;
}

std::string decode_lines(const Tokenizer& tokenizer, std::span<const std::int32_t> ids,
                         std::string_view line_end) {
  std::string text;
  for (std::size_t begin = 0; begin < ids.size();) {
    std::size_t end = begin;
    while (end < ids.size() && ids[end] != kEosId) ++end;
    text += tokenizer.decode(ids.subspan(begin, end - begin));
    if (end < ids.size()) text += line_end;
    begin = end + 1;
  }
  return text;
}

}  // namespace fovea::text
