#include "digits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "fovea/core/error.h"
#include "fovea/core/philox.h"
#include "fovea/text/csv.h"

namespace glimpse {
namespace {

constexpr int kPixels = digit_side * digit_side;

Digits split(const std::vector<Digit>& all) {
  constexpr std::uint64_t kKey = 0x474C494D50534500;  // any: the parts are the same in every run
  Digits digits;
  for (std::uint32_t i = 0; i < all.size(); ++i) {
    const std::uint32_t tenth = fovea::PhiloxStream(kKey, 4 * std::uint64_t{i}).next_below(10);
    (tenth < 7 ? digits.train : tenth < 8 ? digits.validation : digits.held_out).push_back(all[i]);
  }
  return digits;
}

struct Stroke {
  float x = 0, y = 0;
};
using Path = std::vector<Stroke>;

// An arc around (x, y) from angle `from` to `to`, in turns; 0 is to the right and a quarter below.
Path arc(float x, float y, float width, float height, float from, float to) {
  Path path;
  for (int i = 0; i <= 12; ++i) {
    const float angle = 2 * std::numbers::pi_v<float> * std::lerp(from, to, static_cast<float>(i) / 12);
    path.push_back({x + width * std::cos(angle), y + height * std::sin(angle)});
  }
  return path;
}

// How each digit is written, in a square from -1 to 1 with y downwards.
std::vector<Path> strokes_of(int label) {
  switch (label) {
    case 0:
      return {arc(0, 0, 0.55f, 0.85f, 0, 1)};
    case 1:
      return {{{-0.35f, -0.5f}, {0.05f, -0.85f}, {0.05f, 0.85f}}};
    case 2:
      return {arc(0, -0.4f, 0.5f, 0.45f, -0.5f, 0.1f), {{0.4f, -0.15f}, {-0.5f, 0.85f}, {0.55f, 0.85f}}};
    case 3:
      return {arc(-0.05f, -0.42f, 0.5f, 0.43f, -0.45f, 0.25f),
              arc(-0.05f, 0.42f, 0.55f, 0.43f, -0.25f, 0.45f)};
    case 4:
      return {{{0.1f, -0.85f}, {-0.55f, 0.25f}, {0.6f, 0.25f}}, {{0.25f, -0.25f}, {0.25f, 0.85f}}};
    case 5:
      return {{{0.5f, -0.85f}, {-0.4f, -0.85f}, {-0.45f, -0.1f}},
              arc(-0.05f, 0.35f, 0.5f, 0.5f, -0.37f, 0.4f)};
    case 6:
      return {arc(0.35f, 0.1f, 0.85f, 0.95f, 0.5f, 0.75f), arc(0, 0.4f, 0.5f, 0.45f, 0, 1)};
    case 7:
      return {{{-0.55f, -0.85f}, {0.5f, -0.85f}, {-0.15f, 0.85f}}, {{-0.25f, 0}, {0.4f, 0}}};
    case 8:
      return {arc(0, -0.43f, 0.42f, 0.42f, 0, 1), arc(0, 0.43f, 0.5f, 0.42f, 0, 1)};
    default:
      return {arc(0, -0.4f, 0.5f, 0.45f, 0, 1), {{0.5f, -0.4f}, {0.4f, 0.3f}, {0.1f, 0.85f}}};
  }
}

float distance(Stroke point, Stroke from, Stroke to) {
  const float x = to.x - from.x, y = to.y - from.y;
  const float along = ((point.x - from.x) * x + (point.y - from.y) * y) / std::max(1e-6f, x * x + y * y);
  const float at = std::clamp(along, 0.0f, 1.0f);
  return std::hypot(point.x - from.x - at * x, point.y - from.y - at * y);
}

Digit draw_digit(int label, fovea::PhiloxStream& random) {
  const auto about = [&](float middle, float spread) {
    return middle + spread * (2 * random.next_uniform() - 1);
  };
  const float width = about(3.0f, 0.6f), height = about(3.5f, 0.4f), slant = about(0, 0.3f),
              turn = about(0, 0.2f), pen = about(0.75f, 0.25f), x = about(3.5f, 0.4f), y = about(3.5f, 0.3f);
  std::vector<Path> paths = strokes_of(label);
  for (Path& path : paths) {
    for (Stroke& at : path) {
      at.x += about(0, 0.05f), at.y += about(0, 0.05f);
      const float across = width * (at.x - slant * at.y), down = height * at.y;
      at = {x + across * std::cos(turn) - down * std::sin(turn),
            y + across * std::sin(turn) + down * std::cos(turn)};
    }
  }
  Digit digit{.label = label};
  for (int pixel = 0; pixel < kPixels; ++pixel) {
    float nearest = 100;
    const Stroke center{static_cast<float>(pixel % digit_side), static_cast<float>(pixel / digit_side)};
    for (const Path& path : paths) {
      for (std::size_t i = 1; i < path.size(); ++i)
        nearest = std::min(nearest, distance(center, path[i - 1], path[i]));
    }
    digit.pixels[static_cast<std::size_t>(pixel)] = std::clamp(pen + 0.5f - nearest, 0.0f, 1.0f);
  }
  return digit;
}

// The numbers of a line: pixels from 0 to 16, and the label.
Digit digit_of(const fovea::text::CsvReader& line) {
  if (line.cells().size() != kPixels + 1)
    line.refuse(fmt::format("expected {} numbers and the label, with commas", kPixels));
  const auto number = [&](std::size_t cell, float largest) {
    const std::optional<float> value = fovea::text::finite_number(line.cells()[cell]);
    if (!value || *value < 0 || *value > largest || *value != std::floor(*value))
      line.refuse(fmt::format("column {}: expected a whole number from 0 to {}", cell + 1, largest));
    return *value;
  };
  Digit digit;
  for (std::size_t pixel = 0; pixel < kPixels; ++pixel) digit.pixels[pixel] = number(pixel, 16) / 16;
  digit.label = static_cast<std::int32_t>(number(kPixels, 9));
  return digit;
}

}  // namespace

Digits read_digits(const std::string& path) {
  fovea::text::CsvReader lines(path);
  std::vector<Digit> all;
  while (lines.next()) all.push_back(digit_of(lines));
  Digits digits = split(all);
  if (digits.train.empty() || digits.validation.empty() || digits.held_out.empty())
    throw fovea::FileError(path, -1, "too few digits");
  return digits;
}

Digits draw_digits() {
  std::vector<Digit> all;
  fovea::PhiloxStream random(8);
  for (int i = 0; i < 1800; ++i) all.push_back(draw_digit(i % 10, random));
  return split(all);
}

}  // namespace glimpse
