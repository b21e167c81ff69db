// Stop strings: a text that grows ends where one of them begins.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace fovea::text {

class StopStrings {
 public:
  StopStrings() = default;  ///< none: text goes through as it is
  /// Throws InvalidArgument for an empty string.
  explicit StopStrings(std::vector<std::string> strings);

  /// Appends to the text. Returns what can be shown: nothing from a stop string on, and nothing that may
  /// still become the beginning of one. Text that is held back is returned by a later call, or by rest().
  std::string add(std::string_view text);
  /// Whether one of the strings has come. Whatever is added then is not shown.
  bool found() const noexcept { return found_; }
  /// At the end of the text: what was held back.
  std::string rest();

 private:
  std::vector<std::string> strings_;
  std::string held_;
  bool found_ = false;
};

}  // namespace fovea::text
