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

/// Calls body(begin, end) for pieces of [0, count). The pieces depend on count alone and are small enough to
/// stay in L2.
template <class Body>
void for_pieces(std::int64_t count, Body&& body) {
  constexpr std::int64_t piece = 1 << 15;
  const std::int64_t units = (count + piece - 1) / piece;
  default_executor().parallel_for(
      units, [&](std::int64_t unit, int) { body(unit * piece, std::min(count, (unit + 1) * piece)); });
}

inline void expect_same_shape(const char* function, const Var& a, const Var& b) {
  if (!(a.shape() == b.shape()))
    throw InvalidArgument(function, "b", to_string(a.shape()), to_string(b.shape()));
}

}  // namespace fovea::autograd
