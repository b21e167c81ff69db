// What the products of a training multiply.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fovea::autograd {

/// The operands of the products of a recorded op: linear layers, recurrent cells and the output layer inside
/// its loss, forward and backward. All that is kept is f32: parameters, activations, gradients, sums, and the
/// state of the optimiser.
enum class Operands : std::uint8_t {
  f32,
  /// Both operands are rounded to bf16 (to nearest even) where they meet; their products are exact and are
  /// added up in f32. So an element Σ a·b is off by at most 2^-7·Σ|a·b|, besides the rounding of its sum: an
  /// operand is off by 2^-8 of itself or less. Fast on CPUs with AVX512_BF16. Elsewhere the rounded numbers
  /// are multiplied in f32, a little slower than `f32`. Attention over 128 keys or more rounds its operands,
  /// weights and results too, if the CPU has kernels of bf16 for it forward and backward.
  bf16,
};

/// "f32", "bf16".
std::string_view to_string(Operands operands);
/// Throws InvalidArgument for another text.
Operands parse_operands(const std::string& text);

}  // namespace fovea::autograd
