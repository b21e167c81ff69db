// Images of coloured shapes, for examples that look at something.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "fovea/core/philox.h"
#include "fovea/core/tensor.h"

namespace gallery {

inline constexpr std::array<std::string_view, 5> kShapes{"circle", "square", "triangle", "ring", "cross"};
inline constexpr std::array<std::string_view, 11> kColours{
    "red", "green", "blue", "yellow", "purple", "cyan", "white", "grey", "orange", "brown", "pink"};

/// A shape on an image: inside the square [x - radius, x + radius] × [y - radius, y + radius], in pixels from
/// the upper left corner.
struct Sprite {
  int shape = 0, colour = 0;  ///< into kShapes, kColours
  double x = 0, y = 0, radius = 0;
};

/// A square colour image in [0, 1].
struct Image {
  int side = 0;
  std::vector<float> pixels;  ///< [side, side, 3]
};

/// `sprites` on a dark background, edges smoothed by 4 samples per pixel. Each colour varies by up to ±`vary`
/// in each channel, and each channel of each pixel by up to ±`noise`. Both, and the background, are drawn
/// from `random`.
struct Light {
  double vary = 0.08, noise = 0.08;
};
Image draw(int side, const std::vector<Sprite>& sprites, const Light& light, fovea::PhiloxStream& random);

/// Images of one size side by side: [images.size(), side, side, 3].
fovea::Tensor stack(const std::vector<Image>& images);

}  // namespace gallery
