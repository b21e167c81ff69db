#include "inspect/pen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "inspect/unicode.h"

namespace fovea::inspect {
namespace {

constexpr int kMinWidth = 40;

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

int cube_level(std::uint8_t value) {
  return value < 48 ? 0 : value < 115 ? 1 : (value - 35) / 40;
}

// `layer`: 38 for the characters, 48 for the ground.
std::string escape(int layer, Rgb colour, const Pen& pen) {
  char code[32];
  if (pen.true_colour) {
    std::snprintf(code, sizeof code, "\x1b[%d;2;%d;%d;%dm", layer, colour.red, colour.green, colour.blue);
  } else {
    // The 6x6x6 cube of the 256-colour palette, whose levels are 0, 95, 135, 175, 215, 255.
    std::snprintf(code, sizeof code, "\x1b[%d;5;%dm", layer,
                  16 + 36 * cube_level(colour.red) + 6 * cube_level(colour.green) + cube_level(colour.blue));
  }
  return code;
}

}  // namespace

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
  // A terminal that reorders right-to-left text would draw the number behind such a word in front of it. A
  // left-to-right mark ends the reordering.
  if (pen.unicode && std::any_of(codes.begin(), codes.end(), is_right_to_left))
    append_utf8(label.text, 0x200E);
  return label;
}

std::vector<Label> make_labels(const std::vector<std::string>& tokens, const Pen& pen) {
  std::vector<Label> labels;
  labels.reserve(tokens.size());
  for (const std::string& token : tokens) labels.push_back(make_label(token, pen));
  return labels;
}

std::string foreground(Rgb colour, const Pen& pen) {
  return escape(38, colour, pen);
}

std::string background(Rgb colour, const Pen& pen) {
  return escape(48, colour, pen);
}

Rgb series_on_any_ground(int index) {
  const Rgb light = series_colour(index, Theme::light), dark = series_colour(index, Theme::dark);
  return {static_cast<std::uint8_t>((light.red + dark.red) / 2),
          static_cast<std::uint8_t>((light.green + dark.green) / 2),
          static_cast<std::uint8_t>((light.blue + dark.blue) / 2)};
}

std::string spaces(int count) {
  return std::string(static_cast<std::size_t>(std::max(0, count)), ' ');
}

}  // namespace fovea::inspect
