#include "inspect/dot_canvas.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>

#include "inspect/unicode.h"

namespace fovea::inspect {
namespace {

bool has(std::uint8_t dots, int row, int column) {
  return (dots >> (DotCanvas::kColumns * row + column) & 1) != 0;
}

char32_t braille(std::uint8_t dots) {
  // Unicode numbers the dots down the left column, then down the right one; the fourth row came later.
  constexpr int kBit[DotCanvas::kRows][DotCanvas::kColumns] = {{0, 3}, {1, 4}, {2, 5}, {6, 7}};
  char32_t code = 0x2800;
  for (int row = 0; row < DotCanvas::kRows; ++row) {
    for (int column = 0; column < DotCanvas::kColumns; ++column)
      code += has(dots, row, column) ? 1U << kBit[row][column] : 0U;
  }
  return code;
}

// The mean row of one column's dots; -1 if it has none.
double height_of(std::uint8_t dots, int column) {
  int count = 0, sum = 0;
  for (int row = 0; row < DotCanvas::kRows; ++row) {
    if (!has(dots, row, column)) continue;
    ++count;
    sum += row;
  }
  return count == 0 ? -1 : static_cast<double>(sum) / count;
}

// A character of similar slope, height and weight.
char ascii(std::uint8_t dots) {
  const int count = std::popcount(dots);
  if (count == 0) return ' ';
  if (count >= 6) return '#';
  const double left = height_of(dots, 0), right = height_of(dots, 1);
  if (left < 0 || right < 0) {
    if (count >= 3) return '|';
  } else if (std::abs(left - right) >= 1) {
    return left < right ? '\\' : '/';
  }
  if (count >= 4) return '=';
  const double height = left < 0 ? right : right < 0 ? left : (left + right) / 2;
  return height < 1 ? '\'' : height <= 2 ? '-' : '.';
}

}  // namespace

DotCanvas::DotCanvas(int columns, int lines)
    : columns_(columns), lines_(lines), cells_(static_cast<std::size_t>(columns * lines)) {}

void DotCanvas::set(int x, int y, int series) {
  if (x < 0 || y < 0 || x >= kColumns * columns_ || y >= kRows * lines_) return;
  Cell& cell = cells_[static_cast<std::size_t>(y / kRows * columns_ + x / kColumns)];
  cell.dots = static_cast<std::uint8_t>(cell.dots | 1U << (kColumns * (y % kRows) + x % kColumns));
  cell.series = series;
}

void DotCanvas::draw(const Stroke& stroke) {
  constexpr double kMiddle = (kRows - 1) / 2.0;
  const double from = kRows * stroke.from + kMiddle, down = kRows * (stroke.to - stroke.from);
  const int across = kColumns * columns_ - 1;
  const bool steep = std::abs(down) > across;
  const int steps = std::max({1, across, static_cast<int>(std::lround(std::abs(down)))});
  const double before = (stroke.dots - 1) / 2.0;  // the dots of a wide stroke lie around its middle
  for (int step = 0; step <= steps; ++step) {
    if (stroke.dotted && step % 4 >= 2) continue;
    const double part = static_cast<double>(step) / steps;
    const double x = across * part - (steep ? before : 0), y = from + down * part - (steep ? 0 : before);
    for (int dot = 0; dot < stroke.dots; ++dot) {
      set(static_cast<int>(std::lround(x)) + (steep ? dot : 0),
          static_cast<int>(std::lround(y)) + (steep ? 0 : dot), stroke.series);
    }
  }
}

std::string DotCanvas::line(int line, const Pen& pen) const {
  std::string out;
  int series = -1;  // of the characters before; -1: the terminal's own colour
  for (int column = 0; column < columns_; ++column) {
    const Cell& cell = cells_[static_cast<std::size_t>(line * columns_ + column)];
    if (pen.colour && cell.dots != 0 && cell.series != series) {
      series = cell.series;
      out += foreground(series_on_any_ground(series), pen);
    }
    append_utf8(out, pen.unicode ? braille(cell.dots) : static_cast<char32_t>(ascii(cell.dots)));
  }
  return series < 0 ? out : out + "\x1b[0m";
}

}  // namespace fovea::inspect
