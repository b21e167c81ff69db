// Pixels of the pictures that the tests of this directory draw.
#pragma once

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "fovea/pictures/render.h"

namespace fovea::pictures::samples {

inline inspect::Rgb pixel(const Raster& raster, int x, int y) {
  const std::size_t at = 3 * (static_cast<std::size_t>(y) * static_cast<std::size_t>(raster.width) +
                              static_cast<std::size_t>(x));
  return {raster.rgb.at(at), raster.rgb.at(at + 1), raster.rgb.at(at + 2)};
}

/// The pixel at a position in units of the drawing; `raster` has two pixels a unit.
inline inspect::Rgb at(const Raster& raster, double x, double y) {
  return pixel(raster, static_cast<int>(std::floor(2 * x)), static_cast<int>(std::floor(2 * y)));
}

inline long count(const Raster& raster, inspect::Rgb colour) {
  long found = 0;
  for (int y = 0; y < raster.height; ++y) {
    for (int x = 0; x < raster.width; ++x) found += pixel(raster, x, y) == colour;
  }
  return found;
}

inline std::vector<std::string> texts_of(const Drawing& drawing) {
  std::vector<std::string> texts;
  for (const inspect::Item& item : drawing.items) {
    if (const auto* text = std::get_if<inspect::Text>(&item)) texts.push_back(text->text);
  }
  return texts;
}

template <typename Kind>
std::vector<Kind> items_of(const Drawing& drawing) {
  std::vector<Kind> items;
  for (const inspect::Item& item : drawing.items) {
    if (const auto* one = std::get_if<Kind>(&item)) items.push_back(*one);
  }
  return items;
}

/// A character that no font may have: the last but two of the second private plane.
inline const std::string kNoFontHasIt = "\xf4\x8f\xbf\xbb";

/// Whether some font of this machine has every character.
inline bool covered(const std::string& text) {
  Drawing drawing{.width = 400, .height = 40};
  drawing.items.push_back(inspect::Text{.x = 10, .y = 30, .text = text, .paint = {}});
  return render(drawing, Format::png).uncovered.empty();
}

}  // namespace fovea::pictures::samples
