// The text that `fovea generate` writes, id by id.
#pragma once

#include <algorithm>
#include <ostream>
#include <span>
#include <string>
#include <utility>

#include "cli/coder.h"
#include "fovea/text/stop_strings.h"
#include "text/written_ids.h"

namespace fovea::cli {

/// Gives a text as it grows, up to the first stop string. Pieces are spelt in their context, so each time the
/// text is decoded again, from the beginning of its line where lines are ids of their own. That may lie in
/// the prompt.
class TextStream {
 public:
  TextStream(const Coder& coder, std::span<const std::int32_t> before, text::StopStrings stops = {})
      : coder_(coder), stops_(std::move(stops)) {
    auto begin = before.begin();
    if (const auto line_end = coder.line_end()) {
      begin = before.end();
      while (begin != before.begin() && *(begin - 1) != *line_end) --begin;
    }
    line_.assign(begin, before.end());
    given_ = text::finished_size(coder_.text(line_));
  }
  /// What can be shown behind another id.
  std::string add(std::int32_t id) {
    if (id == coder_.line_end()) {
      line_.clear();
      given_ = 0;
      return stops_.add("\n");
    }
    line_.push_back(id);
    return stops_.add(new_text(Rest::held));
  }
  /// A character of which only some bytes are written is held back until the end.
  std::string rest() {
    std::string text = stops_.add(new_text(Rest::given));
    return text + stops_.rest();
  }
  bool stopped() const { return stops_.found(); }

 private:
  enum class Rest : std::uint8_t { held, given };
  std::string new_text(Rest rest) {
    const std::string all = coder_.text(line_);
    const std::size_t end = rest == Rest::held ? text::finished_size(all) : all.size();
    const std::size_t begin = std::exchange(given_, std::max(given_, end));
    return end > begin ? all.substr(begin, end - begin) : std::string();
  }

  const Coder& coder_;
  text::StopStrings stops_;
  Ids line_;
  std::size_t given_ = 0;
};

}  // namespace fovea::cli
