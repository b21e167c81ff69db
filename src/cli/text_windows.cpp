#include "cli/text_windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <utility>

#include "cli/commands.h"
#include "cli/texts.h"
#include "core/excerpt.h"
#include "fovea/core/error.h"

namespace fovea::cli {

TextWindows::TextWindows(const std::string& input, text::LineStreamOptions options) : name_(name_of(input)) {
  options.wait = wait_for_input;
  lines_.emplace(input_path(input), std::move(options));
}

std::vector<text::CheckedLine> TextWindows::next(Waiting waiting) {
  if (stop_requested()) return {};
  return lines_ ? lines_->next(waiting) : std::exchange(arguments_, {});
}

std::optional<std::int64_t> TextWindows::expected() const {
  return lines_ ? lines_->expected_lines() : std::nullopt;
}

std::string TextWindows::place(std::int64_t number) const {
  return lines_ ? fmt::format("{} (line {})", name_, number) : fmt::format("text {}", number);
}

void FailedTexts::add(const std::string& place, const std::string& reason) {
  ++count_;
  fmt::print(stderr, "{}\n", printable(fmt::format("fovea: {}: {}", place, reason)));
}

void FailedTexts::end(std::int64_t all) const {
  if (count_ > 0)
    throw LinesFailed(fmt::format("{} of {} line{} failed, as said above{}", count_, all, all == 1 ? "" : "s",
                                  count_ < all ? "; the others are written" : ""));
}

std::string reason_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const InvalidArgument& caught) {
    const std::string option = caught.argument().starts_with("--") ? caught.argument() + ": " : "";
    return fmt::format("{}expected {}, got {}", option, caught.expected(), caught.got());
  } catch (const FileError& caught) {
    return caught.reason();
  } catch (const std::exception& caught) {
    return caught.what();
  }
}

Output::Output(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  file_.open(path_);
  if (!file_)
    throw FileError(path_, -1, std::string("cannot be opened for writing: ") + std::strerror(errno));
}

std::ostream& Output::stream() {
  return path_.empty() ? std::cout : file_;
}

void Output::flush() {
  if (!stream().flush()) throw FileError(path_.empty() ? "standard output" : path_, -1, "cannot be written");
}

}  // namespace fovea::cli
