// Helpers for every op's file: finding the tape, recording, and loops over large tensors (core/pieces.h).
#pragma once

#include <initializer_list>
#include <span>
#include <utility>

#include "core/pieces.h"
#include "fovea/autograd/var.h"

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
