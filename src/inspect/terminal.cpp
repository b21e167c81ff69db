#include "fovea/inspect/terminal.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <vector>

#include "fovea/inspect/colour_map.h"
#include "inspect/pen.h"

namespace fovea::inspect {
namespace {

constexpr int kCell = 2;  // two columns by one line is about square in every terminal font

// One cell, two columns. Without colour the shade carries the weight, and a faint dot keeps the empty grid
// readable.
std::string cell(float weight, float largest, const Pen& pen) {
  if (!std::isfinite(weight)) return pen.colour ? background(not_finite_colour, pen) + "??\x1b[0m" : "??";
  const double position = largest > 0 ? std::clamp<double>(weight / largest, 0, 1) : 0;
  if (pen.colour) return background(colour_of(position, Theme::dark), pen) + "  \x1b[0m";
  if (pen.unicode) {
    constexpr std::string_view kShades[] = {"· ", "░░", "▒▒", "▓▓", "██"};
    return std::string(kShades[position < 0.08   ? 0
                               : position < 0.3  ? 1
                               : position < 0.55 ? 2
                               : position < 0.8  ? 3
                                                 : 4]);
  }
  constexpr std::string_view kShades = ".:-=+*#%@";
  const char shade = kShades[std::min<std::size_t>(8, static_cast<std::size_t>(position * 9))];
  return shade == '.' ? ". " : std::string(2, shade);
}

// Labels above the columns [first, last) as a stair: each is read from left to right and a line leads down
// from it, so that a long word costs neither a tilted head nor a wide column.
void draw_stair(std::string& out, const std::vector<Label>& labels, std::size_t first, std::size_t last,
                int margin, const Pen& pen) {
  const std::string_view line = pen.unicode ? "│ " : "| ";
  for (std::size_t step = first; step < last; ++step) {
    out += spaces(margin);
    for (std::size_t column = first; column < step; ++column) out += line;
    out += labels[step].text;
    out += '\n';
  }
}

// How many columns from `first` fit: every stair label must end inside the width, too.
std::size_t block_end(const std::vector<Label>& labels, std::size_t first, int margin, int width) {
  std::size_t last = first;
  while (last < labels.size()) {
    const int left = margin + kCell * static_cast<int>(last - first);
    if (left + std::max(kCell, labels[last].columns) > width) break;
    ++last;
  }
  return std::max(last, first + 1);
}

void draw_scale(std::string& out, float largest, bool any_not_finite, int margin, const Pen& pen) {
  char number[32];
  std::snprintf(number, sizeof number, "%.3g", static_cast<double>(largest));
  constexpr int kSteps = 9;
  const int length = 2 + kCell * kSteps + 1 + static_cast<int>(sizeof "1.23e-05   ?? not finite");
  out += spaces(std::min(margin, pen.width - length)) + "0 ";
  for (int i = 0; i < kSteps; ++i) out += cell(static_cast<float>(i) / (kSteps - 1), 1, pen);
  out += std::string(" ") + number;
  if (any_not_finite) out += "   ?? not finite";
  out += '\n';
}

}  // namespace

std::string draw_terminal(const AlignmentMatrix& alignment, const TerminalStyle& style) {
  check(alignment, "draw_terminal");
  const Pen pen = resolve(style);
  const std::vector<Label> rows = make_labels(alignment.target_tokens, pen);
  const std::vector<Label> columns = make_labels(alignment.source_tokens, pen);
  if (rows.empty() || columns.empty()) return "(empty matrix)\n";

  float largest = 0;
  bool any_not_finite = false;
  for (const float weight : alignment.weights) {
    if (std::isfinite(weight)) {
      largest = std::max(largest, weight);
    } else {
      any_not_finite = true;
    }
  }
  int row_width = 0;
  for (const Label& label : rows) row_width = std::max(row_width, label.columns);
  const int margin = row_width + 2;

  std::string out;
  for (std::size_t first = 0; first < columns.size();) {
    const std::size_t last = block_end(columns, first, margin, pen.width);
    if (first > 0) out += '\n';
    draw_stair(out, columns, first, last, margin, pen);
    for (std::size_t row = 0; row < rows.size(); ++row) {
      out += spaces(margin - 1 - rows[row].columns) + rows[row].text + ' ';
      for (std::size_t column = first; column < last; ++column) {
        out += cell(alignment.weights[row * columns.size() + column], largest, pen);
      }
      out += '\n';
    }
    first = last;
  }
  draw_scale(out, largest, any_not_finite, margin, pen);
  return out;
}

}  // namespace fovea::inspect
