#include "inspect/canvas.h"

#include <algorithm>
#include <string>

#include "fovea/core/error.h"
#include "inspect/font.h"
#include "inspect/unicode.h"

namespace fovea::inspect {
namespace {

void set(Picture& picture, int x, int y, Rgb colour) {
  if (x < 0 || y < 0 || x >= picture.width || y >= picture.height) return;
  const std::size_t at = 3 * (static_cast<std::size_t>(y) * static_cast<std::size_t>(picture.width) +
                              static_cast<std::size_t>(x));
  picture.rgb[at] = colour.red;
  picture.rgb[at + 1] = colour.green;
  picture.rgb[at + 2] = colour.blue;
}

}  // namespace

Picture blank_picture(long width, long height, Rgb colour) {
  constexpr long kMaxPixels = 1L << 28;
  if (width > kMaxPixels || height > kMaxPixels || width * height > kMaxPixels) {
    throw InvalidArgument("draw_picture", "page", "at most 2^28 pixels",
                          std::to_string(width) + " x " + std::to_string(height));
  }
  Picture picture{
      .width = static_cast<int>(width), .height = static_cast<int>(height), .rgb = {}, .panels = {}};
  picture.rgb.resize(3 * static_cast<std::size_t>(width * height));
  fill(picture, 0, 0, picture.width, picture.height, colour);
  return picture;
}

void fill(Picture& picture, int x, int y, int width, int height, Rgb colour) {
  for (int row = y; row < y + height; ++row) {
    for (int column = x; column < x + width; ++column) set(picture, column, row, colour);
  }
}

int text_length(std::string_view text, int scale) {
  return static_cast<int>(glyphs_of(text).size()) * kGlyphColumns * scale;
}

int text_height(int scale) {
  return kGlyphRows * scale;
}

void draw_text(Picture& picture, const TextPlace& place, std::string_view text) {
  const std::vector<Glyph> glyphs = glyphs_of(text);
  const int length = static_cast<int>(glyphs.size()) * kGlyphColumns;
  for (int along = 0; along < length; ++along) {
    const Glyph& glyph = glyphs[static_cast<std::size_t>(along / kGlyphColumns)];
    for (int across = 0; across < kGlyphRows; ++across) {
      if (((glyph[static_cast<std::size_t>(across)] >> (along % kGlyphColumns)) & 1) == 0) continue;
      const bool right = place.direction == Direction::right;
      const int x = place.x + place.scale * (right ? along : across);
      const int y = place.y + place.scale * (right ? across : length - 1 - along);
      fill(picture, x, y, place.scale, place.scale, place.colour);
    }
  }
}

std::string fit_text(std::string_view text, int length, int scale) {
  if (text_length(text, scale) <= length) return std::string(text);
  std::string fitted;
  int room = length / (kGlyphColumns * scale) - 1;
  for (const char32_t code : visible(text)) {
    if (width_of(code) > 0 && room-- <= 0) break;
    append_utf8(fitted, code);
  }
  return fitted + "…";
}

}  // namespace fovea::inspect
