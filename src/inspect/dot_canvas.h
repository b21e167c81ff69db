// Strokes in a terminal, made of the dots of braille patterns: a character has two columns and four rows of
// dots. Private to the library.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "inspect/pen.h"

namespace fovea::inspect {

struct Stroke {
  double from = 0,
         to = 0;  ///< the lines at whose middles it begins, at the left edge, and ends, at the right
  int dots = 1;   ///< its width, 1 to 4; 4 is the height of a line
  bool dotted = false;
  int series = 0;  ///< the index of its colour
};

class DotCanvas {
 public:
  static constexpr int kColumns = 2, kRows = 4;  ///< dots of a character

  /// Both sizes are in characters.
  DotCanvas(int columns, int lines);

  /// A later stroke has its colour in every character that it shares with an earlier one.
  void draw(const Stroke& stroke);

  /// The characters of one line. An empty character is the empty braille pattern and not a space, for two
  /// reasons. It has the width of the other patterns in every font. It also separates right-to-left words on
  /// its two sides, which a space does not. Without Unicode the nearest ASCII character stands for a pattern.
  std::string line(int line, const Pen& pen) const;

 private:
  struct Cell {
    std::uint8_t dots = 0;  // bit kColumns * row + column
    int series = 0;
  };
  void set(int x, int y, int series);

  int columns_, lines_;
  std::vector<Cell> cells_;
};

}  // namespace fovea::inspect
