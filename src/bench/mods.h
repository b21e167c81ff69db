// The cost of mods and normalisers, compared with plain attention; and of built-in mods, compared with a
// lambda of the user's.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "fovea/core/dtype.h"

namespace fovea::bench {

struct ModsBench {
  std::int64_t length = 2048, heads = 4, head_dim = 64;
  std::int64_t repeat = 5;   ///< turns, whose medians count
  DType dtype = DType::f32;  ///< of queries, keys, values and results; f32 or bf16
  std::string kernel;        ///< a kernel to force; empty: the best
  std::string only;          ///< text in the names of rows
};

/// Times include the gradients of arguments. Ratios are to plain softmax, which takes turns with each row.
struct ModsRow {
  std::string name;
  double forward_seconds = 0.0, forward_ratio = 0.0, backward_seconds = 0.0, backward_ratio = 0.0;
};

/// Calls `tell` as soon as a row is measured. Throws InvalidArgument if `only` is in no name.
void measure_mods(const ModsBench& bench, const std::function<void(const ModsRow&)>& tell);

}  // namespace fovea::bench
