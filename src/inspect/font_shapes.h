// The shapes behind font.h as drawings: '#' is ink. Private to font.cpp.
#pragma once

#include <string_view>

namespace fovea::inspect {

/// Drawn glyphs in bands: kShapeRows rows of 5 pixels, one space between glyphs; rows 0-6 stand on the base
/// line, rows 7-8 hang below it. `characters` names a band's glyphs from left to right.
inline constexpr int kShapeRows = 9;
struct ShapeBand {
  std::u32string_view characters;
  std::string_view rows[kShapeRows];
};

extern const ShapeBand kShapeBands[];
extern const int kShapeBandCount;

}  // namespace fovea::inspect
