#include "text/line_reader.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>
#include <utility>

#include "fovea/core/error.h"
#include "fovea/text/line_stream.h"
#include "text/utf8.h"

namespace fovea::text {

namespace {

// Opened again, /dev/stdin would begin a file anew that another program has read in part, and a socket cannot
// be opened at all.
bool is_standard_input(const std::filesystem::path& file) {
  return file == "/dev/stdin";
}

// Whoever waits, and may be told to stop, waits for the first byte of a named pipe and not in open().
int opened(const std::filesystem::path& file, const LineReader::Wait& wait) {
  if (is_standard_input(file)) return ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | (wait ? O_NONBLOCK : 0));
  if (descriptor >= 0 && wait) ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) & ~O_NONBLOCK);
  return descriptor;
}

bool has_something(int descriptor) {
  pollfd polled{descriptor, POLLIN, 0};
  return ::poll(&polled, 1, 0) != 0;
}

}  // namespace

LineReader::LineReader(const std::filesystem::path& file, std::int64_t max_line_bytes, Wait wait)
    : name_(is_standard_input(file) ? "standard input" : file.string()),
      wait_(std::move(wait)),
      buffer_(1 << 16),
      max_line_bytes_(max_line_bytes) {
  if (max_line_bytes < 1) {
    throw InvalidArgument("ReadOptions", "max_line_bytes", "1 or more", std::to_string(max_line_bytes));
  }
  descriptor_ = opened(file, wait_);
  struct stat status {};
  std::error_code error;
  const bool read = descriptor_ >= 0 && ::fstat(descriptor_, &status) == 0;
  if (!read || S_ISDIR(status.st_mode)) {
    const std::string reason = read ? "it is a folder" : std::strerror(errno);
    if (descriptor_ >= 0) ::close(descriptor_);
    const bool there = is_standard_input(file) || std::filesystem::is_symlink(file, error) ||
                       std::filesystem::exists(file, error);
    throw FileError(name_, -1, there ? "cannot be read: " + reason : "does not exist");
  }
  if (S_ISREG(status.st_mode)) file_bytes_ = status.st_size;
}

LineReader::~LineReader() {
  ::close(descriptor_);
}

void LineReader::fill() {
  at_ = end_ = 0;
  if (wait_ && !wait_(descriptor_)) {
    line_.clear();
    begun_ = false;
    ended_ = true;
    return;
  }
  ssize_t got = -1;
  do got = ::read(descriptor_, buffer_.data(), buffer_.size());
  while (got < 0 && errno == EINTR);
  if (got < 0) throw FileError(name_, -1, "cannot be read");
  end_ = static_cast<std::size_t>(got);
  ended_ = got == 0;
}

// Takes what the buffer has of the line. Returns whether the line ends there.
bool LineReader::take() {
  if (at_ == end_) return false;
  begun_ = true;
  const char* begin = buffer_.data() + at_;
  const void* found = std::memchr(begin, '\n', end_ - at_);
  const std::size_t size =
      found ? static_cast<std::size_t>(static_cast<const char*>(found) - begin) : end_ - at_;
  // Two bytes of slack for CR, three for the byte order mark, which do not count.
  const std::size_t room = static_cast<std::size_t>(max_line_bytes_) + 4 - line_.size();
  line_.append(begin, std::min(size, room));
  too_long_ = too_long_ || size > room;
  at_ += size + (found ? 1 : 0);
  bytes_ += static_cast<std::int64_t>(size + (found ? 1 : 0));
  return found != nullptr;
}

void LineReader::begin() {
  if (!given_) return;
  line_.clear();
  given_ = begun_ = whole_ = too_long_ = false;
}

// Gathers the bytes of the next line. Returns whether the line is whole, or the file has ended.
bool LineReader::gather(Waiting waiting) {
  begin();
  while (!whole_ && !ended_) {
    whole_ = take();
    if (whole_) break;
    if (waiting == Waiting::refused && !has_something(descriptor_)) return false;
    fill();
  }
  return true;
}

bool LineReader::ready() {
  return gather(Waiting::refused);
}

bool LineReader::next() {
  gather(Waiting::allowed);
  if (!begun_) return false;
  given_ = true;
  ++number_;
  examine();
  return true;
}

void LineReader::examine() {
  if (!too_long_ && line_.ends_with('\r')) line_.pop_back();
  if (number_ == 1 && line_.starts_with("\xEF\xBB\xBF")) line_.erase(0, 3);
  if (too_long_ || static_cast<std::int64_t>(line_.size()) > max_line_bytes_) {
    fault_ = LineFault::too_long;
  } else if (line_.find('\0') != std::string::npos) {  // first: no Latin-1 holds it either
    fault_ = LineFault::nul_byte;
  } else if (find_invalid_utf8(line_) != std::string::npos) {
    fault_ = LineFault::bad_utf8;
  } else {
    fault_ = LineFault::none;
  }
}

std::string LineReader::utf8_or_latin1() const {
  if (fault_ == LineFault::bad_utf8) return latin1_to_utf8(line_);
  refuse_bad();
  return line_;
}

void LineReader::refuse(const std::string& reason) const {
  throw FileError(name_, number_, reason, "line");
}

void LineReader::refuse_bad() const {
  switch (fault_) {
    case LineFault::none:
      return;
    case LineFault::too_long:
      refuse("is longer than " + std::to_string(max_line_bytes_) + " bytes");
    case LineFault::bad_utf8:
      refuse("is not valid UTF-8 (byte " + std::to_string(find_invalid_utf8(line_) + 1) + " of the line)");
    case LineFault::nul_byte:
      refuse("holds a NUL byte");
  }
}

namespace {

CheckedLine checked(const LineReader& reader) {
  try {
    reader.refuse_bad();
    return {.number = reader.number(), .text = reader.line()};
  } catch (const FileError& error) {
    return {.number = reader.number(), .text = {}, .problem = error.reason()};
  }
}

}  // namespace

LineStream::LineStream(const std::filesystem::path& file, LineStreamOptions options)
    : options_(std::move(options)) {
  for (const auto& [name, value] :
       {std::pair{"most_lines", options_.most_lines}, std::pair{"most_bytes", options_.most_bytes}}) {
    if (value < 1)
      throw InvalidArgument("LineStream", std::string("options.") + name, "at least 1",
                            std::to_string(value));
  }
  reader_ = std::make_unique<LineReader>(file, options_.max_line_bytes, options_.wait);
}
LineStream::~LineStream() = default;
LineStream::LineStream(LineStream&&) noexcept = default;

std::vector<CheckedLine> LineStream::next(Waiting waiting) {
  std::optional<ProfileSpan> span;  // without the waiting for a first line
  std::vector<CheckedLine> lines;
  std::int64_t bytes = 0;
  while (std::ssize(lines) < options_.most_lines && bytes < options_.most_bytes) {
    if ((waiting == Waiting::refused || !lines.empty()) && !reader_->ready()) break;
    if (!reader_->next()) {
      ended_ = true;
      break;
    }
    if (!span) span.emplace(reading_lines);
    CheckedLine line = checked(*reader_);
    if (options_.blank_lines == BlankLines::left_out && line.problem.empty() && is_blank(line.text)) continue;
    lines.push_back(std::move(line));
    bytes += static_cast<std::int64_t>(lines.back().text.size()) + 1;
  }
  return lines;
}

std::optional<std::int64_t> LineStream::expected_lines() const {
  const std::int64_t lines = reader_->number(), bytes = reader_->bytes(), all = reader_->file_bytes();
  if (ended_ || (all >= 0 && bytes >= all)) return lines;
  if (all < 0 || bytes == 0) return std::nullopt;
  return static_cast<std::int64_t>(static_cast<double>(lines) * static_cast<double>(all) /
                                   static_cast<double>(bytes));
}

}  // namespace fovea::text
