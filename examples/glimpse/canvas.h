// A canvas is an image of one digit among clutter. A canvas can be read in three ways: the whole canvas
// blurred, one window with all its pixels, or all windows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "digits.h"
#include "fovea/core/tensor.h"

namespace glimpse {

inline constexpr int canvas_side = 40;
inline constexpr int canvas_pixels = canvas_side * canvas_side;
/// The blurred overview: means of 5 x 5 pixels.
inline constexpr int blur = 5, overview_side = canvas_side / blur, overview_values = 64;
/// A window is 9 x 9 pixels. Its upper left corner lies on a grid of 11 x 11 places, three pixels apart. For
/// every digit some window misses at most one row and one column.
inline constexpr int window_side = 9, window_pixels = 81, place_step = 3, grid_side = 11, places = 121;

struct Corner {
  int row = 0, column = 0;
};
inline Corner corner_of(std::int32_t place) {
  return {place / grid_side * place_step, place % grid_side * place_step};
}

struct Canvases {
  std::int64_t size = 0;
  std::vector<float> pixels;         ///< [size, 40, 40], in [0, 1]
  std::vector<std::int32_t> labels;  ///< [size]
  std::vector<Corner> digits;        ///< [size], the upper left corner of each digit
};

/// `count` canvases that follow from `seed`. Clutter: `pieces` squares of 4 x 4 or 5 x 5 cut from other
/// digits, half as many short strokes, and a little noise everywhere.
Canvases draw_canvases(const std::vector<Digit>& digits, std::int64_t count, int pieces, std::uint64_t seed);
/// Canvases [first, first + count).
Canvases part_of(const Canvases& canvases, std::int64_t first, std::int64_t count);

/// [size, 64].
fovea::Tensor overview(const Canvases& canvases);
/// The overview [size, 64] around each place: [size, 121, 25]. Each place has 5 x 5 points, three pixels
/// apart, around the center of its window. The overview is interpolated at these points and multiplied by 4.
inline constexpr int surrounding_values = 25;
fovea::Tensor surroundings(const fovea::Tensor& overview);
/// The window at places[b] of canvas b: [size, 81].
fovea::Tensor windows(const Canvases& canvases, std::span<const std::int32_t> places);
/// All windows: [size, 121, 81].
fovea::Tensor all_windows(const Canvases& canvases);

/// The position of a place: sines and cosines of its row and its column, [places.size(), 16].
inline constexpr int where_values = 16;
fovea::Tensor where(std::span<const std::int32_t> places);
/// The position of every place relative to past[b].back(), and how much of the place's window has been seen:
/// [past.size(), 121, 17]. If past[b] is empty, positions are relative to the middle place.
inline constexpr int from_here_values = where_values + 1;
fovea::Tensor from_here(std::span<const std::vector<std::int32_t>> past);

}  // namespace glimpse
