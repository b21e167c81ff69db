// What the products of a training multiply.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fovea::autograd {

/// The operands of the products of a recorded op: `linear`, the cells of RNNs, `inner_products`, `mix_rows`
/// and the output layer inside its loss, forward and backward. Recurrences (linear attention, state-space
/// models) multiply f32. Parameters, gradients, sums and the state of the optimiser are f32, and so are
/// activations, but for those of attention, as below.
enum class Operands : std::uint8_t {
  f32,
  /// Both operands are rounded to bf16 (to nearest even) where they meet; their products are exact and are
  /// added up in f32. So an element Σ a·b is off by at most 2^-7·Σ|a·b|, besides the rounding of its sum: an
  /// operand is off by 2^-8 of itself or less. Below 2^-126 it may count as 0, and above 3.39e38 it is
  /// infinite. Fast on CPUs with AVX512_BF16; elsewhere the rounded numbers are multiplied in f32.
  ///
  /// Attention rounds operands, weights and results too, and keeps them in bf16 for its gradients. It does
  /// so if the longest text of the call has 128 keys or more, and the CPU has kernels of bf16 both ways. It
  /// stays f32 if a layer names a kernel or a Precision other than full. So does a spec that the kernels of
  /// bf16 refuse, such as one with another normaliser than softmax.
  bf16,
};

/// "f32", "bf16".
std::string_view to_string(Operands operands);
/// Throws InvalidArgument for another text.
Operands parse_operands(const std::string& text);

}  // namespace fovea::autograd
