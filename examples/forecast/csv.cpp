#include "csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>

#include "fovea/core/error.h"
#include "fovea/models/weights.h"

namespace forecast {
namespace {

constexpr std::size_t kMostBytes = std::size_t{256} << 20, kMostColumns = 4096;

// The cells of one line. "a ""b"", c" is one cell: a "b", c.
std::vector<std::string> cells_of(std::string_view line, const std::string& file, std::int64_t number) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      cells.back() += line[++i];
    } else if (c == '"' && (quoted || cells.back().empty())) {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      if (cells.size() == kMostColumns)
        throw fovea::FileError(file, number, fmt::format("more than {} columns", kMostColumns), "line");
      cells.emplace_back();
    } else {
      cells.back() += c;
    }
  }
  if (quoted) throw fovea::FileError(file, number, "a quoted cell has no end on its line", "line");
  return cells;
}

std::optional<float> number_of(std::string_view cell) {
  while (!cell.empty() && cell.front() == ' ') cell.remove_prefix(1);
  while (!cell.empty() && cell.back() == ' ') cell.remove_suffix(1);
  float value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc() || end != cell.data() + cell.size() || !std::isfinite(value)) return {};
  return value;
}

// Line by line, without its end; a line of nothing is passed over.
class Lines {
 public:
  explicit Lines(std::string_view text) : left_(text) {}
  bool next(std::string_view& line) {
    while (!left_.empty()) {
      const std::size_t end = std::min(left_.find('\n'), left_.size());
      line = left_.substr(0, end);
      left_.remove_prefix(std::min(end + 1, left_.size()));
      ++number_;
      if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
      if (!line.empty()) return true;
    }
    return false;
  }
  std::int64_t number() const { return number_; }

 private:
  std::string_view left_;
  std::int64_t number_ = 0;
};

}  // namespace

Column read_column(const std::string& file) {
  const std::string text = fovea::models::read_file(file, kMostBytes);
  const std::size_t mark = text.starts_with("\xEF\xBB\xBF") ? 3 : 0;  // of UTF-8, as spreadsheets write it
  Lines lines(std::string_view(text).substr(mark));
  std::string_view line;
  if (!lines.next(line)) throw fovea::FileError(file, 1, "is empty, a header line was expected", "line");
  const std::vector<std::string> header = cells_of(line, file, lines.number());
  Column column;
  std::optional<std::size_t> which;
  while (lines.next(line)) {
    const std::vector<std::string> cells = cells_of(line, file, lines.number());
    if (cells.size() != header.size()) {
      throw fovea::FileError(file, lines.number(),
                             fmt::format("{} cells under a header of {}", cells.size(), header.size()),
                             "line");
    }
    for (std::size_t i = cells.size(); !which && i-- > 0;) {
      if (number_of(cells[i])) which = i;
    }
    if (!which) throw fovea::FileError(file, lines.number(), "no cell of the first line is a number", "line");
    const std::optional<float> value = number_of(cells[*which]);
    if (!value) {
      throw fovea::FileError(file, lines.number(),
                             fmt::format("column {} ('{}'): '{}' is no finite number", *which + 1,
                                         header[*which], cells[*which].substr(0, 40)),
                             "line");
    }
    column.values.push_back(*value);
  }
  if (!which) throw fovea::FileError(file, lines.number(), "no line under the header", "line");
  column.name = header[*which];
  return column;
}

}  // namespace forecast
