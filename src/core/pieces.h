// Loops over many elements on the default executor, cut by the number of elements alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fovea/core/executor.h"

namespace fovea {

/// Elements that are small enough to stay in L2. Work of no more elements runs on the calling thread.
constexpr std::int64_t elements_of_piece = 1 << 15;

/// Calls body(begin, end) for pieces of [0, count), which depend on count alone. `cost` is the number of
/// elements that one of them stands for.
template <class Body>
void for_pieces(std::int64_t count, Body&& body, std::int64_t cost = 1) {
  const std::int64_t piece = std::max<std::int64_t>(elements_of_piece / std::max<std::int64_t>(cost, 1), 1);
  const std::int64_t units = (count + piece - 1) / piece;
  default_executor().parallel_for(
      units, [&](std::int64_t unit, int) { body(unit * piece, std::min(count, (unit + 1) * piece)); });
}

/// Rows of `width` elements stand one behind the other. Calls body(row, begin, end) in order for the elements
/// [begin, end) of each row that lie in [first, last) of all.
template <class Body>
void for_row_parts(std::int64_t first, std::int64_t last, std::int64_t width, Body&& body) {
  if (first >= last) return;
  std::int64_t row = first / width, begin = first % width;
  while (first < last) {
    const std::int64_t end = std::min(width, begin + last - first);
    body(row++, begin, end);
    first += end - begin;
    begin = 0;
  }
}

/// The same for all elements of `rows` rows, in the pieces of for_pieces. A row may be cut.
template <class Body>
void for_pieces_of_rows(std::int64_t rows, std::int64_t width, Body&& body) {
  for_pieces(rows * width,
             [&](std::int64_t first, std::int64_t last) { for_row_parts(first, last, width, body); });
}

}  // namespace fovea
