// Text by Pango: how wide it is, and drawing it. Private to this directory.
#pragma once

#include <cairo.h>

#include <set>
#include <string>

#include "fovea/inspect/drawing.h"

namespace fovea::pictures {

/// How far letters reach above and below the base line, as a share of the size.
inline constexpr double kAscent = 0.95, kDescent = 0.30;

/// The width of a line of text; inspect::Measure.
double text_width(const std::string& text, double size, inspect::Weight weight = inspect::Weight::normal);

/// The lines that a text with Overflow::wrap takes in `limit` units.
int line_count(const std::string& text, double size, double limit);
double line_height(double size);

/// Draws into `cairo`, whose source must already be the colour. Adds characters that no font has to
/// `uncovered`.
void draw_text(cairo_t* cairo, const inspect::Text& text, std::set<char32_t>& uncovered);

}  // namespace fovea::pictures
