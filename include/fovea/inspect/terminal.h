// An alignment matrix as text for a terminal.
#pragma once

#include <string>

#include "fovea/inspect/data.h"

namespace fovea::inspect {

enum class Colour { automatic, always, never };
enum class ColourDepth { automatic, colours256, true_colour };
enum class Charset { automatic, unicode, ascii };

/// `automatic` asks the environment: colour if standard output is a terminal and neither NO_COLOR nor
/// TERM=dumb says otherwise; true colour if COLORTERM says so; Unicode if the locale is UTF-8.
struct TerminalStyle {
  Colour colour = Colour::automatic;
  ColourDepth depth = ColourDepth::automatic;
  Charset charset = Charset::automatic;
  int width = 0;  ///< columns of text; 0 asks the terminal, else $COLUMNS, else 80; never below 40
};

/// Draws rows against columns, each column's label reading left to right above it; columns that do not fit
/// the width follow in further blocks. Every line fits the width; widths count wide and combining characters
/// as terminals do. Control characters, escape sequences and bidirectional controls in tokens come out as
/// visible pictures. Throws InvalidArgument if the matrix is not rows * columns.
std::string draw_terminal(const AlignmentMatrix& alignment, const TerminalStyle& style = {});

}  // namespace fovea::inspect
