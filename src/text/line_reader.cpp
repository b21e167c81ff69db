#include "text/line_reader.h"

#include <algorithm>
#include <cstring>
#include <system_error>

#include "fovea/core/error.h"
#include "text/utf8.h"

namespace fovea::text {

LineReader::LineReader(const std::filesystem::path& file, std::int64_t max_line_bytes)
    : file_(file), stream_(file, std::ios::binary), buffer_(1 << 16), max_line_bytes_(max_line_bytes) {
  if (max_line_bytes < 1) {
    throw InvalidArgument("ReadOptions", "max_line_bytes", "1 or more", std::to_string(max_line_bytes));
  }
  std::error_code error;
  if (!stream_ || std::filesystem::is_directory(file, error)) {
    throw FileError(file.string(), -1,
                    std::filesystem::exists(file, error) ? "cannot be read" : "does not exist");
  }
}

bool LineReader::fill() {
  stream_.read(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
  if (stream_.bad()) throw FileError(file_.string(), -1, "cannot be read");
  at_ = 0;
  end_ = static_cast<std::size_t>(stream_.gcount());
  return end_ > 0;
}

bool LineReader::next() {
  line_.clear();
  too_long_ = false;
  if (at_ == end_ && !fill()) return false;
  ++number_;
  for (;;) {
    const char* begin = buffer_.data() + at_;
    const void* found = std::memchr(begin, '\n', end_ - at_);
    const std::size_t size =
        found ? static_cast<std::size_t>(static_cast<const char*>(found) - begin) : end_ - at_;
    // Two bytes of slack for CR, three for the byte order mark, which do not count.
    const std::size_t room = static_cast<std::size_t>(max_line_bytes_) + 4 - line_.size();
    line_.append(begin, std::min(size, room));
    too_long_ = too_long_ || size > room;
    at_ += size;
    if (found) {
      ++at_;
      break;
    }
    if (!fill()) break;
  }
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
  throw FileError(file_.string(), number_, reason, "line");
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

}  // namespace fovea::text
