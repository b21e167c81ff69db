#include "fovea/inspect/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "fovea/inspect/colour_map.h"
#include "inspect/unicode.h"

namespace fovea::inspect {
namespace {

constexpr int kCell = 2;  // two columns by one line is about square in every terminal font
constexpr int kMinWidth = 40;

struct Pen {
  bool colour, true_colour, unicode;
  int width, max_label;
};

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

bool utf8_locale() {
  for (const char* name :
       {"LC_ALL", "LC_CTYPE", "LANG"}) {  // the first one that is set decides, as in setlocale
    const std::string_view value = environment(name);
    if (value.empty()) continue;
    for (const std::string_view form : {"UTF-8", "utf-8", "UTF8", "utf8"}) {
      if (value.find(form) != std::string_view::npos) return true;
    }
    return false;
  }
  return false;
}

int terminal_width() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const int columns = std::atoi(std::string(environment("COLUMNS")).c_str());
  return columns > 0 ? std::min(columns, 1000) : 80;
}

Pen resolve(const TerminalStyle& style) {
  Pen pen{};
  pen.colour =
      style.colour == Colour::always || (style.colour == Colour::automatic && isatty(STDOUT_FILENO) == 1 &&
                                         environment("NO_COLOR").empty() && environment("TERM") != "dumb");
  const std::string_view depth = environment("COLORTERM");
  pen.true_colour = style.depth == ColourDepth::true_colour ||
                    (style.depth == ColourDepth::automatic && (depth == "truecolor" || depth == "24bit"));
  pen.unicode = style.charset == Charset::unicode || (style.charset == Charset::automatic && utf8_locale());
  pen.width = std::max(kMinWidth, style.width > 0 ? style.width : terminal_width());
  // A row label, the gap and a stair label at the first column must fit together.
  pen.max_label = std::min(24, pen.width / 3);
  return pen;
}

// A token made safe and cut to the label width; `columns` is what it takes in the terminal.
struct Label {
  std::string text;
  int columns = 0;
};

Label make_label(std::string_view token, const Pen& pen) {
  std::vector<char32_t> codes;
  for (const char32_t code : visible(token)) {
    if (pen.unicode) {
      codes.push_back(code);
    } else {
      const std::string plain = to_ascii(code);
      codes.insert(codes.end(), plain.begin(), plain.end());
    }
  }
  int total = 0;
  for (const char32_t code : codes) total += width_of(code);
  const bool cut = total > pen.max_label;
  const std::string_view ellipsis = pen.unicode ? "…" : "~";
  Label label;
  for (const char32_t code : codes) {
    const int columns = width_of(code);
    if (cut && label.columns + columns > pen.max_label - 1) break;
    append_utf8(label.text, code);
    label.columns += columns;
  }
  if (cut) {
    label.text += ellipsis;
    ++label.columns;
  }
  return label;
}

std::vector<Label> make_labels(const std::vector<std::string>& tokens, const Pen& pen) {
  std::vector<Label> labels;
  labels.reserve(tokens.size());
  for (const std::string& token : tokens) labels.push_back(make_label(token, pen));
  return labels;
}

int cube_level(std::uint8_t value) {
  return value < 48 ? 0 : value < 115 ? 1 : (value - 35) / 40;
}

std::string background(Rgb colour, const Pen& pen) {
  char code[32];
  if (pen.true_colour) {
    std::snprintf(code, sizeof code, "\x1b[48;2;%d;%d;%dm", colour.red, colour.green, colour.blue);
  } else {
    // The 6x6x6 cube of the 256-colour palette, whose levels are 0, 95, 135, 175, 215, 255.
    std::snprintf(code, sizeof code, "\x1b[48;5;%dm",
                  16 + 36 * cube_level(colour.red) + 6 * cube_level(colour.green) + cube_level(colour.blue));
  }
  return code;
}

// One cell, two columns. Without colour the shade carries the weight, and a faint dot keeps the empty grid
// readable.
std::string cell(float weight, float largest, const Pen& pen) {
  if (!std::isfinite(weight)) return pen.colour ? background(not_finite_colour, pen) + "??\x1b[0m" : "??";
  const double position = largest > 0 ? std::clamp<double>(weight / largest, 0, 1) : 0;
  if (pen.colour) return background(colour_of(position, Ground::dark), pen) + "  \x1b[0m";
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

std::string spaces(int count) {
  return std::string(static_cast<std::size_t>(std::max(0, count)), ' ');
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
