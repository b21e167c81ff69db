#include "shapes.h"

#include <algorithm>
#include <cmath>

namespace gallery {
namespace {

using Colour = std::array<double, 3>;
constexpr std::array<Colour, kColours.size()> kPaint{{{1.00, 0.35, 0.35},
                                                      {0.35, 0.85, 0.40},
                                                      {0.40, 0.45, 1.00},
                                                      {0.95, 0.95, 0.40},
                                                      {0.80, 0.40, 0.95},
                                                      {0.35, 0.95, 0.95},
                                                      {0.95, 0.95, 0.95},
                                                      {0.55, 0.55, 0.55},
                                                      {1.00, 0.65, 0.20},
                                                      {0.60, 0.38, 0.20},
                                                      {1.00, 0.65, 0.75}}};

// Whether (u, v), in units of the radius from the center, v downwards, lies on the shape.
bool covers(int shape, double u, double v) {
  const double from_center = std::sqrt(u * u + v * v);
  switch (shape) {
    case 0:
      return from_center <= 1.0;
    case 1:
      return std::max(std::abs(u), std::abs(v)) <= 0.88;
    case 2:
      return v <= 0.9 && v >= -1.0 && std::abs(u) <= (v + 1.0) / 1.9;
    case 3:
      return from_center <= 1.0 && from_center >= 0.55;
    default:
      return std::min(std::abs(u), std::abs(v)) <= 0.32 && std::max(std::abs(u), std::abs(v)) <= 1.0;
  }
}

// The share of the pixel's area that the sprite covers.
double coverage(const Sprite& sprite, int column, int row) {
  int inside = 0;
  for (int sample = 0; sample < 4; ++sample) {
    const double x = column + (sample % 2 + 0.5) / 2.0, y = row + (sample / 2 + 0.5) / 2.0;
    inside += covers(sprite.shape, (x - sprite.x) / sprite.radius, (y - sprite.y) / sprite.radius);
  }
  return inside / 4.0;
}

}  // namespace

Image draw(int side, const std::vector<Sprite>& sprites, const Light& light, fovea::PhiloxStream& random) {
  Image image{.side = side, .pixels = {}};
  const auto ground = static_cast<float>(0.15 * random.next_uniform());
  image.pixels.assign(static_cast<std::size_t>(side) * side * 3, ground);
  for (const Sprite& sprite : sprites) {
    Colour colour = kPaint[static_cast<std::size_t>(sprite.colour)];
    for (double& channel : colour) channel += light.vary * (2.0 * random.next_uniform() - 1.0);
    const auto first = [&](double center) { return std::max(0, static_cast<int>(center - sprite.radius)); };
    const auto last = [&](double center) {
      return std::min(side - 1, static_cast<int>(center + sprite.radius));
    };
    for (int row = first(sprite.y); row <= last(sprite.y); ++row) {
      for (int column = first(sprite.x); column <= last(sprite.x); ++column) {
        const double share = coverage(sprite, column, row);
        float* pixel = image.pixels.data() + (row * side + column) * 3;
        for (std::size_t c = 0; c < 3; ++c)
          pixel[c] = static_cast<float>(share * colour[c] + (1.0 - share) * pixel[c]);
      }
    }
  }
  for (float& value : image.pixels) {
    const double change = light.noise * (2.0 * random.next_uniform() - 1.0);
    value = std::clamp(value + static_cast<float>(change), 0.0f, 1.0f);
  }
  return image;
}

fovea::Tensor stack(const std::vector<Image>& images) {
  const auto count = static_cast<std::int64_t>(images.size());
  const std::int64_t side = images.at(0).side;
  fovea::Tensor result(fovea::DType::f32, {count, side, side, 3});
  float* to = result.data<float>();
  for (const Image& image : images) to = std::copy(image.pixels.begin(), image.pixels.end(), to);
  return result;
}

}  // namespace gallery
