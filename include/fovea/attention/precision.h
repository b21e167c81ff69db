// The precision of products of f32 operands.
#pragma once

#include <cstdint>
#include <string_view>

namespace fovea {

/// The precision of products of f32 operands; sums are always f32. On a CPU with bf16 tile instructions
/// (AMX), the lower levels split each operand into bf16 terms and sum the products of the terms. This is
/// several times faster. Other CPUs compute more exactly than requested.
///
/// Only finite operands can be split; on such a CPU f16 operands are split too. A product with an infinite
/// operand may become NaN. 16-bit operands are multiplied exactly (but weights are rounded to their type),
/// and f64 operands in f64, whatever the level.
enum class Precision : std::uint8_t {
  full,    ///< multiply-adds in f32
  higher,  ///< three terms, six products: as exact as `full`
  high,    ///< two terms, three products: a relative error of about 2^-16 of the largest term
  medium,  ///< operands rounded to bf16: 2^-8
};

/// "full", "higher", "high", "medium".
constexpr std::string_view to_string(Precision precision) noexcept {
  constexpr std::string_view names[] = {"full", "higher", "high", "medium"};
  return names[static_cast<int>(precision)];
}

/// The reverse of to_string. Throws InvalidArgument.
Precision parse_precision(std::string_view text);

}  // namespace fovea
