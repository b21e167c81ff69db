// Helpers for drawing in a terminal: what the terminal can show, and tokens made safe for it. Private to the
// library.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fovea/inspect/colour_map.h"
#include "fovea/inspect/terminal.h"

namespace fovea::inspect {

struct Pen {
  bool colour, true_colour, unicode;
  int width, max_label;
};

Pen resolve(const TerminalStyle& style);

/// A token made safe and cut to the label width. `columns` is its width in the terminal.
struct Label {
  std::string text;
  int columns = 0;
};
Label make_label(std::string_view token, const Pen& pen);
std::vector<Label> make_labels(const std::vector<std::string>& tokens, const Pen& pen);

/// The escape sequences that set the colour of the characters, or of the ground behind them. "\x1b[0m" ends
/// both.
std::string foreground(Rgb colour, const Pen& pen);
std::string background(Rgb colour, const Pen& pen);

/// The colour of head `index` on a ground that may be light or dark: half-way between those of the themes.
Rgb series_on_any_ground(int index);

/// `count` spaces, none for a negative count.
std::string spaces(int count);

}  // namespace fovea::inspect
