// Helpers for drawing in a terminal: what the terminal can show, and tokens made safe for it. Private to the
// room.
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

/// The escape sequence that sets the background; "\x1b[0m" ends it.
std::string background(Rgb colour, const Pen& pen);

/// `count` spaces, none for a negative count.
std::string spaces(int count);

}  // namespace fovea::inspect
