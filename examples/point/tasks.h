// The tasks: sets of points with their convex hull, or of numbers with their order.
#pragma once

#include <cstdint>
#include <vector>

#include "fovea/core/philox.h"
#include "fovea/core/tensor.h"

namespace point {

enum class Task : std::uint8_t { hull, sorting };

/// One input: a point, or a number x with y = 0.
struct Place {
  float x = 0, y = 0;
};

/// The answer for one set, as indices of inputs. Hull: its corners counter-clockwise, from the leftmost one.
/// A network that does not know the order of its inputs can find the leftmost corner, but not the corner that
/// comes first among the inputs. Sorting: all indices, from the smallest number to the largest.
std::vector<std::int32_t> answer_of(Task task, const std::vector<Place>& places);

/// Sets with equal numbers of inputs, as a network reads them. Row 0 of a set stands for "the end", row i for
/// input i - 1.
struct Sets {
  std::int64_t size = 0, points = 0, steps = 0;
  std::vector<std::vector<Place>> places = {};
  fovea::Tensor features = {};             ///< [size, points + 1, 3]: x, y, and 1 for the end's row
  std::vector<std::int32_t> targets = {};  ///< [size, steps]: the row to point at; after the final 0 only -1
};

/// Draws `size` sets of `points` inputs each. The inputs are uniform: points in the unit square for the hull,
/// numbers in [0, 1) for sorting.
Sets draw_sets(Task task, std::int64_t size, std::int64_t points, fovea::PhiloxStream& random);

/// Whether `rows` is the answer for set `entry`; a polygon may begin at any of its corners.
bool is_exact(Task task, const Sets& sets, std::int64_t entry, const std::vector<std::int32_t>& rows);

}  // namespace point
