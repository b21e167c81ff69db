#include "fovea/text/stop_strings.h"

#include <algorithm>
#include <utility>

#include "fovea/core/error.h"

namespace fovea::text {
namespace {

// The size of the longest end of `text` that is a beginning of `string`, and shorter than that.
std::size_t overlap(std::string_view text, std::string_view string) {
  for (std::size_t size = std::min(text.size(), string.size() - 1); size > 0; --size) {
    if (string.starts_with(text.substr(text.size() - size))) return size;
  }
  return 0;
}

}  // namespace

StopStrings::StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {
  for (const std::string& string : strings_) {
    if (string.empty())
      throw InvalidArgument("StopStrings", "strings", "texts of at least one byte", "an empty one");
  }
}

std::string StopStrings::add(std::string_view text) {
  if (found_) return {};
  held_ += text;
  std::size_t first = std::string::npos, overlapping = 0;
  for (const std::string& string : strings_) {
    first = std::min(first, held_.find(string));
    overlapping = std::max(overlapping, overlap(held_, string));
  }
  found_ = first != std::string::npos;
  const std::size_t shown = found_ ? first : held_.size() - overlapping;
  std::string result = held_.substr(0, shown);
  held_ = found_ ? std::string() : held_.substr(shown);
  return result;
}

std::string StopStrings::rest() {
  return std::exchange(held_, {});
}

}  // namespace fovea::text
