// How exact products of f32 operands are to be.
#pragma once

#include <cstdint>
#include <string_view>

namespace fovea {

/// Of products of f32 operands; sums are f32 always. On a CPU with bf16 tiles (AMX) the lower ones split each
/// operand into bf16 terms and sum the products of terms, which is several times faster; any other computes
/// more exactly than asked. Finite operands alone can be split, as f16 is there too: what meets an infinite
/// one may become NaN. Operands of 16 bits are multiplied exactly (but weights are rounded like them), and
/// f64 ones in f64, whatever this says.
enum class Precision : std::uint8_t {
  full,    ///< f32 multiply-adds
  higher,  ///< three terms, six products: as exact as `full`
  high,    ///< two terms, three products: a relative error of about 2^-16 of the largest term
  medium,  ///< operands rounded to bf16: 2^-8
};

/// "full", "higher", "high", "medium".
constexpr std::string_view to_string(Precision precision) noexcept {
  constexpr std::string_view names[] = {"full", "higher", "high", "medium"};
  return names[static_cast<int>(precision)];
}

/// The reverse. Throws InvalidArgument.
Precision parse_precision(std::string_view text);

}  // namespace fovea
