#include "fovea/inspect/colour_map.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "fovea/core/error.h"

namespace fovea::inspect {
namespace {

// Hue (degrees) and chroma at a position; lightness is linear and has no anchors. The chromas are as high as
// sRGB allows at that lightness without clipping a channel hard, found by looking at the ramp.
struct ColourAt {
  double position, hue, chroma;
};

constexpr std::array<ColourAt, 7> kLight{{{0.00, 110, 0.004},
                                          {0.12, 125, 0.070},
                                          {0.30, 165, 0.105},
                                          {0.50, 205, 0.100},
                                          {0.68, 245, 0.125},
                                          {0.85, 270, 0.160},
                                          {1.00, 285, 0.130}}};
constexpr std::array<ColourAt, 7> kDark{{{0.00, 285, 0.025},
                                         {0.15, 280, 0.110},
                                         {0.32, 262, 0.140},
                                         {0.50, 225, 0.105},
                                         {0.70, 170, 0.125},
                                         {0.87, 130, 0.165},
                                         {1.00, 105, 0.150}}};

// src/inspect/page/style.css has the same as --s0 ...; a test compares them.
constexpr std::array<Rgb, kSeriesColours> kLightSeries{{{0xb4, 0x50, 0x0a},
                                                        {0x0a, 0x7a, 0x5a},
                                                        {0x1f, 0x4f, 0xb0},
                                                        {0x9c, 0x3d, 0x7c},
                                                        {0x86, 0x68, 0x1a},
                                                        {0x1f, 0x76, 0xa0},
                                                        {0x7a, 0x3f, 0xbf},
                                                        {0x4a, 0x7a, 0x12},
                                                        {0xc0, 0x2a, 0x45},
                                                        {0x00, 0x75, 0x7f},
                                                        {0x7b, 0x54, 0x40},
                                                        {0x59, 0x62, 0x73}}};
constexpr std::array<Rgb, kSeriesColours> kDarkSeries{{{0xf0, 0xa0, 0x4b},
                                                       {0x4c, 0xc9, 0xa0},
                                                       {0x7f, 0xa8, 0xff},
                                                       {0xe0, 0x8c, 0xc0},
                                                       {0xe3, 0xcf, 0x5a},
                                                       {0x6c, 0xc5, 0xea},
                                                       {0xbd, 0x9b, 0xff},
                                                       {0xa4, 0xcf, 0x62},
                                                       {0xff, 0x86, 0x99},
                                                       {0x5f, 0xd4, 0xd6},
                                                       {0xd0, 0xa5, 0x8c},
                                                       {0xaa, 0xb3, 0xc5}}};

std::uint8_t channel(double linear) {
  const double clamped = std::clamp(linear, 0.0, 1.0);
  const double gamma = clamped <= 0.0031308 ? 12.92 * clamped : 1.055 * std::pow(clamped, 1 / 2.4) - 0.055;
  return static_cast<std::uint8_t>(std::lround(255 * gamma));
}

// OKLab to sRGB: Ottosson, "A perceptual color space for image processing" (2020).
Rgb from_oklch(double lightness, double chroma, double hue) {
  const double angle = hue * std::numbers::pi / 180;
  const double a = chroma * std::cos(angle), b = chroma * std::sin(angle);
  const double l = std::pow(lightness + 0.3963377774 * a + 0.2158037573 * b, 3);
  const double m = std::pow(lightness - 0.1055613458 * a - 0.0638541728 * b, 3);
  const double s = std::pow(lightness - 0.0894841775 * a - 1.2914855480 * b, 3);
  return {channel(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
          channel(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
          channel(-0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s)};
}

}  // namespace

Rgb colour_of(double position, Theme theme) {
  if (std::isnan(position)) return not_finite_colour;
  const double t = std::clamp(position, 0.0, 1.0);
  const auto& anchors = theme == Theme::light ? kLight : kDark;
  std::size_t next = 1;
  while (next + 1 < anchors.size() && anchors[next].position < t) ++next;
  const ColourAt &from = anchors[next - 1], &to = anchors[next];
  const double share = (t - from.position) / (to.position - from.position);
  const double lightness = theme == Theme::light ? 0.975 - 0.695 * t : 0.235 + 0.700 * t;
  return from_oklch(lightness, std::lerp(from.chroma, to.chroma, share), std::lerp(from.hue, to.hue, share));
}

Rgb series_colour(int index, Theme theme) {
  if (index < 0) throw InvalidArgument("series_colour", "index", "at least 0", std::to_string(index));
  const auto place = static_cast<std::size_t>(index % kSeriesColours);
  return (theme == Theme::light ? kLightSeries : kDarkSeries)[place];
}

std::array<Rgb, 256> colour_table(Theme theme) {
  std::array<Rgb, 256> table;
  for (int i = 0; i < 256; ++i) table[static_cast<std::size_t>(i)] = colour_of(i / 255.0, theme);
  return table;
}

}  // namespace fovea::inspect
