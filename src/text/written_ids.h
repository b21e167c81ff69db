// What each id of a text adds to it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fovea::text {

/// The size of a decoded text without the bytes of an unfinished character at its end, which are decoded as
/// U+FFFD.
std::size_t finished_size(std::string_view text);

struct AddedText {
  std::string text;
  /// Whether the id is a further byte of a character that an id before it shows.
  bool goes_on = false;
};
/// One for each id. An id with the first byte of a character shows the whole of it. `decode` gives the text
/// of the first ids.
std::vector<AddedText> added_texts(std::span<const std::int32_t> ids,
                                   const std::function<std::string(std::span<const std::int32_t>)>& decode);

}  // namespace fovea::text
