// Helpers for every op's file: finding the tape, recording, and loops over large tensors.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <span>
#include <utility>

#include "fovea/autograd/var.h"
#include "fovea/core/executor.h"

namespace fovea::autograd {

/// The tape of the first recorded input; null: nothing is recorded.
inline Tape* tape_of(std::initializer_list<const Var*> inputs) {
  for (const Var* input : inputs) {
    if (input->recorded()) return input->node()->tape;
  }
  return nullptr;
}

/// The operands of an op's products: those of its tape, and f32 without one.
inline Operands operands_of(const Tape* tape) {
  return tape ? tape->operands() : Operands::f32;
}

/// The op's result: recorded with `backward` if there is a tape, a plain value if not.
template <class Backward>
Var result_of(Tape* tape, Tensor value, Backward&& backward) {
  if (!tape) return value;
  return {std::move(value), tape->record(std::forward<Backward>(backward))};
}

/// Elements that are small enough to stay in L2. Work of no more elements runs on the calling thread.
constexpr std::int64_t elements_of_piece = 1 << 15;

/// Calls body(begin, end) for pieces of [0, count), which depend on count alone.
template <class Body>
void for_pieces(std::int64_t count, Body&& body) {
  constexpr std::int64_t piece = elements_of_piece;
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

/// For profiles: the bytes of inputs that are read whole, and of so many more numbers that are written.
inline ProfileWork moved(std::initializer_list<const Var*> read, std::int64_t written = 0) {
  auto count = static_cast<double>(written);
  for (const Var* x : read) count += static_cast<double>(x->value().count());
  return {.bytes = 4.0 * count};
}

/// Refuses a tensor without elements: an empty one, or the value of a matrix that was read packed.
inline void expect_elements(const char* function, const char* argument, const Tensor& x) {
  if (x.empty()) throw InvalidArgument(function, argument, "a tensor with elements", "an empty one");
}

inline void expect_same_shape(const char* function, const Var& a, const Var& b) {
  expect_elements(function, "a", a.value());
  expect_elements(function, "b", b.value());
  if (!(a.shape() == b.shape()))
    throw InvalidArgument(function, "b", to_string(a.shape()), to_string(b.shape()));
}

}  // namespace fovea::autograd
