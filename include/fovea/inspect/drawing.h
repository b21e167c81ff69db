// A picture as plain data: items, their places, and colours that a theme decides. The same drawing becomes
// PNG, SVG or PDF (fovea/pictures/render.h), light or dark. A chart also becomes SVG inside a page.
#pragma once

#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include "fovea/inspect/colour_map.h"

namespace fovea::inspect {

/// A point of a drawing, in units of 1/96 inch from the upper left corner, y downwards; or one value of a
/// curve.
struct Point {
  double x = 0, y = 0;
};

/// What a colour is used for; each theme has its own colour for it.
enum class Tone { paper, ink, quiet, line, accent };

/// colour_of(position, theme): the colour of a weight.
struct OnRamp {
  double position = 0;
};

/// White or ink, whichever reads better on the ramp's colour of `position`.
struct TextOnRamp {
  double position = 0;
};

/// The colour of curve, bar series or head `index`.
struct Series {
  int index = 0;
};

struct Paint {
  std::variant<Tone, OnRamp, TextOnRamp, Series, Rgb> colour = Tone::ink;
  double opacity = 1;
};

/// The colour of a paint in a theme; its opacity is not in it.
Rgb colour_of(const Paint& paint, Theme theme);

/// A filled rectangle; with `radius`, round corners (half of the side: a disc).
struct Rectangle {
  double x = 0, y = 0, width = 0, height = 0;
  Paint fill;
  double radius = 0;
  std::string note = {};  ///< what a page shows when the pointer rests on it
};

/// A line: from the point before to `to`, straight or as a cubic Bézier curve by `first` and `second`.
struct Step {
  enum class Kind { move, line, curve };
  Kind kind = Kind::line;
  Point to, first = {}, second = {};
};
struct Path {
  std::vector<Step> steps;
  Paint stroke;
  double width = 1;
};

enum class Anchor { start, middle, end };
enum class Direction { right, up };
enum class Weight { normal, bold };
enum class Overflow { ellipsis, wrap };

/// Text in any script. (x, y) is the start, middle or end of its base line, by `anchor`. A text whose
/// `direction` is up is rotated by 90 degrees around that point.
struct Text {
  double x = 0, y = 0;
  std::string text;
  double size = 13;
  Paint paint;
  Anchor anchor = Anchor::start;
  Direction direction = Direction::right;
  Weight weight = Weight::normal;
  double limit = 0;  ///< the longest it may be, 0: no limit
  Overflow overflow = Overflow::ellipsis;
};

/// A matrix of weights as square cells of side `cell`. A cell's colour is the ramp's at `positions[row *
/// columns + column]` (NaN: not_finite_colour). `gap` of each cell's side is left empty.
struct Grid {
  double x = 0, y = 0, cell = 1, gap = 0;
  int rows = 0, columns = 0;
  std::vector<float> positions;
};

/// Pixels, drawn with sharp edges.
struct Image {
  double x = 0, y = 0, width = 0, height = 0;
  int rows = 0, columns = 0;
  std::vector<Rgb> pixels;  ///< [rows, columns]
};

using Item = std::variant<Rectangle, Path, Text, Grid, Image>;

/// Where one matrix or image lies in a drawing: the cell of (row, column) is the square of side `cell` whose
/// upper left corner is (x + column * cell, y + row * cell).
struct Panel {
  std::size_t map = 0, head = 0;
  double x = 0, y = 0, cell = 0;
};

struct Drawing {
  double width = 0, height = 0;  ///< the paper
  std::string title = {};        ///< read aloud by screen readers
  std::vector<Item> items = {};  ///< in order: a later one covers an earlier one
  std::vector<Panel> panels = {};
};

}  // namespace fovea::inspect
