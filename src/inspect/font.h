// A small bitmap font, drawn for Fovea, so that a picture's labels need no font file.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace fovea::inspect {

/// A character cell: kGlyphRows rows of kGlyphColumns pixels; bit c of a row is the pixel in column c. Wide
/// characters and those the font lacks are a box.
inline constexpr int kGlyphColumns = 6;
inline constexpr int kGlyphRows = 13;
using Glyph = std::array<std::uint8_t, kGlyphRows>;

/// The glyphs of a token made visible; combining marks are drawn onto the letter before them.
std::vector<Glyph> glyphs_of(std::string_view text);

}  // namespace fovea::inspect
