#include "text/written_ids.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace fovea::text {
namespace {

constexpr std::string_view kUnfinished = "\xEF\xBF\xBD";

// The bytes of U+FFFD at the beginning of a text.
std::size_t unfinished_before(std::string_view text) {
  std::size_t size = 0;
  while (text.substr(size).starts_with(kUnfinished)) size += kUnfinished.size();
  return size;
}

}  // namespace

std::size_t finished_size(std::string_view text) {
  while (text.ends_with(kUnfinished)) text.remove_suffix(kUnfinished.size());
  return text.size();
}

std::vector<AddedText> added_texts(std::span<const std::int32_t> ids,
                                   const std::function<std::string(std::span<const std::int32_t>)>& decode) {
  std::vector<AddedText> added(ids.size());
  std::size_t given = 0;
  std::optional<std::size_t> open;  // the id that begins a character of which bytes are missing
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::string now = decode(ids.first(i + 1));
    const bool last = i + 1 == ids.size();
    const std::size_t end = last ? now.size() : finished_size(now);
    if (end > given) {
      std::string text = now.substr(given, end - given);
      if (open) {
        // Bytes that no further ones made whole stay U+FFFD, and this id begins anew.
        const std::size_t broken = last && finished_size(text) == 0 ? 0 : unfinished_before(text);
        std::string rest = broken > 0 ? text.substr(broken) : std::string();
        if (broken > 0) text.resize(broken);
        for (std::size_t k = *open + 1; k <= i; ++k) added[k].goes_on = k < i || rest.empty();
        added[std::exchange(open, std::nullopt).value()].text = std::move(text);
        added[i].text = std::move(rest);
      } else {
        added[i].text = std::move(text);
      }
    } else if (end < now.size() && !open) {
      open = i;
    }
    given = std::max(given, end);
  }
  return added;
}

}  // namespace fovea::text
