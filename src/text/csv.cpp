#include "fovea/text/csv.h"

#include <charconv>
#include <cmath>

#include "fovea/core/error.h"
#include "text/line_reader.h"

namespace fovea::text {
namespace {

// 256 bytes for each cell of the widest table: lines of tables may be much longer than lines of text.
constexpr std::int64_t kMostLineBytes = std::int64_t{256} * CsvReader::max_columns;

}  // namespace

CsvReader::CsvReader(const std::filesystem::path& file)
    : lines_(std::make_unique<LineReader>(file, kMostLineBytes)) {}
CsvReader::~CsvReader() = default;

std::int64_t CsvReader::number() const noexcept {
  return lines_->number();
}
void CsvReader::refuse(const std::string& reason) const {
  lines_->refuse(reason);
}

bool CsvReader::next() {
  while (lines_->next()) {
    const std::string line = lines_->utf8_or_latin1();
    if (line.empty()) continue;
    split(line);
    if (columns_ == 0) columns_ = cells_.size();
    if (cells_.size() != columns_) {
      refuse("expected " + std::to_string(columns_) + " cells, as in the first line, found " +
             std::to_string(cells_.size()));
    }
    return true;
  }
  if (columns_ == 0) throw FileError(lines_->name(), -1, "has no lines");
  return false;
}

void CsvReader::split(std::string_view line) {
  cells_.assign(1, {});
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      cells_.back() += line[++i];
    } else if (c == '"' && (quoted || cells_.back().empty())) {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      if (cells_.size() == max_columns) refuse("has more than " + std::to_string(max_columns) + " columns");
      cells_.emplace_back();
    } else {
      cells_.back() += c;
    }
  }
  if (quoted) refuse("has a quoted cell without an end");
}

std::optional<float> finite_number(std::string_view cell) {
  while (!cell.empty() && cell.front() == ' ') cell.remove_prefix(1);
  while (!cell.empty() && cell.back() == ' ') cell.remove_suffix(1);
  float value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc() || end != cell.data() + cell.size() || !std::isfinite(value)) return {};
  return value;
}

}  // namespace fovea::text
