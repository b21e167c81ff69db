// An alignment matrix as text for a terminal.
#pragma once

#include <string>

#include "fovea/inspect/data.h"

namespace fovea::inspect {

enum class Colour { automatic, always, never };
enum class ColourDepth { automatic, colours256, true_colour };
enum class Charset { automatic, unicode, ascii };

/// `automatic` follows the environment: colour if standard output is a terminal, without NO_COLOR or
/// TERM=dumb; true colour if COLORTERM says so; Unicode if the locale is UTF-8.
struct TerminalStyle {
  Colour colour = Colour::automatic;
  ColourDepth depth = ColourDepth::automatic;
  Charset charset = Charset::automatic;
  int width = 0;  ///< columns of text; 0 asks the terminal, else $COLUMNS, else 80; never below 40
};

/// Draws the matrix with each column's label above it, written from left to right. Columns that do not fit
/// the width follow in further blocks, so that every line fits. Widths count wide and combining characters as
/// terminals do. Control characters, escape sequences and bidirectional controls in tokens are replaced by
/// visible symbols. Throws InvalidArgument if the matrix is not rows * columns.
std::string draw_terminal(const AlignmentMatrix& alignment, const TerminalStyle& style = {});

}  // namespace fovea::inspect
