// The text that `fovea generate` prints, id by id.
#pragma once

#include <algorithm>
#include <ostream>
#include <span>
#include <string>
#include <string_view>

#include "cli/coder.h"

namespace fovea::cli {

/// Prints a text as it grows. Pieces are spelt in their context, so each time the text is decoded again, from
/// the beginning of its line where lines are ids of their own. That may lie in the prompt.
class TextStream {
 public:
  TextStream(const Coder& coder, std::ostream& out, std::span<const std::int32_t> before)
      : coder_(coder), out_(out) {
    auto begin = before.begin();
    if (const auto line_end = coder.line_end()) {
      begin = before.end();
      while (begin != before.begin() && *(begin - 1) != *line_end) --begin;
    }
    line_.assign(begin, before.end());
    printed_ = finished(coder_.text(line_));
  }
  void write(std::int32_t id) {
    if (id == coder_.line_end()) {
      out_ << '\n' << std::flush;
      line_.clear();
      printed_ = 0;
      return;
    }
    line_.push_back(id);
    write_text(Rest::held);
  }
  /// A character of which only some bytes are written is held back until the end.
  enum class Rest : std::uint8_t { held, written };
  void write_text(Rest rest) {
    const std::string all = coder_.text(line_);
    const std::size_t end = rest == Rest::held ? finished(all) : all.size();
    if (end > printed_) out_ << all.substr(printed_, end - printed_) << std::flush;
    printed_ = std::max(printed_, end);
  }

 private:
  // The size of a text without the bytes of an unfinished character at its end.
  static std::size_t finished(std::string_view text) {
    constexpr std::string_view unfinished = "\xEF\xBF\xBD";
    while (text.ends_with(unfinished)) text.remove_suffix(unfinished.size());
    return text.size();
  }

  const Coder& coder_;
  std::ostream& out_;
  Ids line_;
  std::size_t printed_ = 0;
};

}  // namespace fovea::cli
