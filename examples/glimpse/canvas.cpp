#include "canvas.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "fovea/core/philox.h"

namespace glimpse {
namespace {

using fovea::DType;
using fovea::PhiloxStream;
using fovea::Tensor;

constexpr int kFarthestDigit = 31;  // the last position at which a window holds the whole digit

void lighten(float* canvas, int row, int column, float value) {
  if (row < 0 || column < 0 || row >= canvas_side || column >= canvas_side) return;
  float& at = canvas[row * canvas_side + column];
  at = std::max(at, value);
}

int below(PhiloxStream& random, int bound) {
  return static_cast<int>(random.next_below(static_cast<std::uint32_t>(bound)));
}

const Digit& any(const std::vector<Digit>& digits, PhiloxStream& random) {
  return digits[random.next_below(static_cast<std::uint32_t>(digits.size()))];
}

void draw_piece(float* canvas, const Digit& digit, PhiloxStream& random) {
  const int side = 4 + below(random, 2);
  const Corner from{below(random, digit_side - side + 1), below(random, digit_side - side + 1)};
  const Corner to{below(random, canvas_side - side + 1), below(random, canvas_side - side + 1)};
  for (int row = 0; row < side; ++row) {
    for (int column = 0; column < side; ++column) {
      const int pixel = (from.row + row) * digit_side + from.column + column;
      lighten(canvas, to.row + row, to.column + column, digit.pixels[static_cast<std::size_t>(pixel)]);
    }
  }
}

void draw_stroke(float* canvas, PhiloxStream& random) {
  const Corner from{below(random, canvas_side), below(random, canvas_side)};
  const float angle = 2 * std::numbers::pi_v<float> * random.next_uniform();
  const float light = 0.5f + 0.5f * random.next_uniform();
  const int length = 4 + below(random, 4);
  for (int i = 0; i < length; ++i) {
    lighten(canvas, from.row + static_cast<int>(std::lround(static_cast<float>(i) * std::sin(angle))),
            from.column + static_cast<int>(std::lround(static_cast<float>(i) * std::cos(angle))), light);
  }
}

void copy_window(const float* canvas, Corner corner, float* window) {
  for (int row = 0; row < window_side; ++row)
    std::copy_n(canvas + (corner.row + row) * canvas_side + corner.column, window_side,
                window + row * window_side);
}

// The overview, interpolated between its values; outside of the canvas it is 0 (dark).
float between(const float* overview, float row, float column) {
  const float y = (row - 0.5f * (blur - 1)) / blur, x = (column - 0.5f * (blur - 1)) / blur;
  const int top = static_cast<int>(std::floor(y)), left = static_cast<int>(std::floor(x));
  float sum = 0;
  for (int i = std::max(0, top); i <= std::min(overview_side - 1, top + 1); ++i) {
    for (int j = std::max(0, left); j <= std::min(overview_side - 1, left + 1); ++j) {
      sum += (1 - std::abs(y - static_cast<float>(i))) * (1 - std::abs(x - static_cast<float>(j))) *
             overview[i * overview_side + j];
    }
  }
  return sum;
}

// Sines and cosines of a distance along both axes, in steps of the grid; the longest wave is 72 pixels.
void write_where(int rows, int columns, float* values) {
  for (int wave = 0; wave < 4; ++wave) {
    const float turn = 2 * std::numbers::pi_v<float> * static_cast<float>((1 << wave) * place_step) / 72;
    for (const int steps : {rows, columns}) {
      *values++ = std::cos(turn * static_cast<float>(steps));
      *values++ = std::sin(turn * static_cast<float>(steps));
    }
  }
}

}  // namespace

Canvases draw_canvases(const std::vector<Digit>& digits, std::int64_t count, int pieces, std::uint64_t seed) {
  PhiloxStream random(seed);
  Canvases canvases{.size = count, .pixels = {}, .labels = {}, .digits = {}};
  canvases.pixels.assign(static_cast<std::size_t>(count * canvas_pixels), 0.0f);
  for (std::int64_t b = 0; b < count; ++b) {
    float* canvas = canvases.pixels.data() + b * canvas_pixels;
    for (int i = 0; i < canvas_pixels; ++i) canvas[i] = 0.1f * random.next_uniform();
    for (int i = 0; i < pieces; ++i) draw_piece(canvas, any(digits, random), random);
    for (int i = 0; i < pieces / 2; ++i) draw_stroke(canvas, random);
    const Digit& digit = any(digits, random);
    const Corner corner{below(random, kFarthestDigit + 1), below(random, kFarthestDigit + 1)};
    for (int pixel = 0; pixel < digit_side * digit_side; ++pixel) {
      float& at =
          canvas[(corner.row + pixel / digit_side) * canvas_side + corner.column + pixel % digit_side];
      at = std::max(digit.pixels[static_cast<std::size_t>(pixel)], 0.1f * random.next_uniform());
    }
    canvases.labels.push_back(digit.label);
    canvases.digits.push_back(corner);
  }
  return canvases;
}

Canvases part_of(const Canvases& canvases, std::int64_t first, std::int64_t count) {
  const std::int64_t end = std::min(canvases.size, first + count);
  return {.size = end - first,
          .pixels = {canvases.pixels.begin() + first * canvas_pixels,
                     canvases.pixels.begin() + end * canvas_pixels},
          .labels = {canvases.labels.begin() + first, canvases.labels.begin() + end},
          .digits = {canvases.digits.begin() + first, canvases.digits.begin() + end}};
}

Tensor overview(const Canvases& canvases) {
  Tensor result = Tensor::zeros(DType::f32, {canvases.size, overview_values});
  for (std::int64_t b = 0; b < canvases.size; ++b) {
    const float* canvas = canvases.pixels.data() + b * canvas_pixels;
    float* values = result.data<float>() + b * overview_values;
    for (int i = 0; i < canvas_pixels; ++i) {
      const int row = i / canvas_side / blur, column = i % canvas_side / blur;
      values[row * overview_side + column] += canvas[i] / (blur * blur);
    }
  }
  return result;
}

Tensor surroundings(const Tensor& overview) {
  // The values around all places lie on one grid with a step of one place. The grid reaches over the
  // canvas's edges.
  constexpr int kFirst = window_side / 2 - 2 * place_step, kSide = grid_side + 4;
  Tensor result(DType::f32, {overview.size(0), places, surrounding_values});
  float* values = result.data<float>();
  for (std::int64_t b = 0; b < overview.size(0); ++b) {
    std::array<float, kSide * kSide> grid;
    for (int i = 0; i < kSide * kSide; ++i) {
      grid[static_cast<std::size_t>(i)] = between(overview.data<float>() + b * overview_values,
                                                  static_cast<float>(kFirst + i / kSide * place_step),
                                                  static_cast<float>(kFirst + i % kSide * place_step));
    }
    for (int place = 0; place < places; ++place) {
      for (int i = 0; i < surrounding_values; ++i) {
        const int row = place / grid_side + i / 5, column = place % grid_side + i % 5;
        *values++ = 4 * grid[static_cast<std::size_t>(row * kSide + column)];
      }
    }
  }
  return result;
}

Tensor windows(const Canvases& canvases, std::span<const std::int32_t> places) {
  Tensor result(DType::f32, {canvases.size, window_pixels});
  for (std::int64_t b = 0; b < canvases.size; ++b) {
    copy_window(canvases.pixels.data() + b * canvas_pixels, corner_of(places[static_cast<std::size_t>(b)]),
                result.data<float>() + b * window_pixels);
  }
  return result;
}

Tensor all_windows(const Canvases& canvases) {
  Tensor result(DType::f32, {canvases.size, places, window_pixels});
  for (std::int64_t i = 0; i < canvases.size * places; ++i) {
    copy_window(canvases.pixels.data() + i / places * canvas_pixels,
                corner_of(static_cast<std::int32_t>(i % places)), result.data<float>() + i * window_pixels);
  }
  return result;
}

Tensor where(std::span<const std::int32_t> places) {
  Tensor result(DType::f32, {static_cast<std::int64_t>(places.size()), where_values});
  float* values = result.data<float>();
  for (const std::int32_t place : places) {
    write_where(place / grid_side, place % grid_side, values);
    values += where_values;
  }
  return result;
}

Tensor from_here(std::span<const std::vector<std::int32_t>> past) {
  Tensor result(DType::f32, {static_cast<std::int64_t>(past.size()), places, from_here_values});
  constexpr int kSpan = 2 * grid_side - 1;
  static const std::vector<float> waves = [] {
    std::vector<float> table(static_cast<std::size_t>(kSpan * kSpan * where_values));
    for (int i = 0; i < kSpan * kSpan; ++i)
      write_where(i / kSpan - grid_side + 1, i % kSpan - grid_side + 1, table.data() + i * where_values);
    return table;
  }();
  float* values = result.data<float>();
  for (const std::vector<std::int32_t>& seen : past) {
    const int row = seen.empty() ? grid_side / 2 : seen.back() / grid_side;
    const int column = seen.empty() ? grid_side / 2 : seen.back() % grid_side;
    for (int place = 0; place < places; ++place) {
      const int rows = place / grid_side - row, columns = place % grid_side - column;
      const int entry = (rows + grid_side - 1) * kSpan + columns + grid_side - 1;
      std::copy_n(waves.data() + entry * where_values, where_values, values);
      float looked_at = 0;
      for (const std::int32_t other : seen) {
        const int down = std::abs(place / grid_side - other / grid_side) * place_step;
        const int across = std::abs(place % grid_side - other % grid_side) * place_step;
        looked_at += static_cast<float>(std::max(0, window_side - down) * std::max(0, window_side - across));
      }
      values[where_values] = looked_at / window_pixels;
      values += from_here_values;
    }
  }
  return result;
}

}  // namespace glimpse
