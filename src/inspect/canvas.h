// The raster that pictures are drawn on. Private to the room.
#pragma once

#include <string_view>

#include "fovea/inspect/colour_map.h"
#include "fovea/inspect/png.h"

namespace fovea::inspect {

enum class Direction { right, up };

/// Where a label goes: (x, y) is the upper left corner of the area that the text covers.
struct TextPlace {
  int x = 0, y = 0;
  int scale = 1;  ///< pixels a font pixel
  Direction direction = Direction::right;
  Rgb colour{};
};

/// An empty picture. Throws InvalidArgument beyond 2^28 pixels, which is 768 MB.
Picture blank_picture(long width, long height, Rgb colour);

void fill(Picture& picture, int x, int y, int width, int height, Rgb colour);

/// The pixels that `text` takes along its direction.
int text_length(std::string_view text, int scale);
/// The pixels across.
int text_height(int scale);

void draw_text(Picture& picture, const TextPlace& place, std::string_view text);

/// `text` cut to at most `length` pixels, its end then an ellipsis.
std::string fit_text(std::string_view text, int length, int scale);

}  // namespace fovea::inspect
