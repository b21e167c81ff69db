// The baseline: counts of which symbol follows the few before it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace generate {

/// Interpolated Kneser-Ney smoothing with three discounts for each order (Chen & Goodman 1999, "An empirical
/// study of smoothing techniques for language modeling"). The longest context uses the counts of the text. A
/// shorter one counts how many different symbols stood before the context and its symbol. The discounts'
/// probability goes to the next shorter context, and in the end to the whole alphabet equally.
class NGram {
 public:
  /// Counts `symbols`, each in [0, alphabet); one is predicted from the `context` symbols before it.
  /// Throws InvalidArgument where context + 1 symbols do not fit into 64 bits.
  NGram(std::span<const std::int32_t> symbols, std::int64_t alphabet, int context);
  /// -log2 p of every symbol but the first, given those before it.
  std::vector<double> bits(std::span<const std::int32_t> symbols) const;

 private:
  struct Context {
    std::uint64_t code = 0;
    double total = 0.0;
    std::array<double, 3> of_count{};  ///< symbols seen once, twice, more often
  };
  struct Order {
    std::vector<std::uint64_t> grams;  ///< sorted; the last symbol in the lowest bits
    std::vector<std::uint32_t> counts;
    std::vector<Context> contexts;  ///< sorted
    std::array<double, 3> discounts{};
  };
  Order count(std::vector<std::uint64_t> codes) const;
  std::uint64_t last(std::uint64_t code, std::size_t symbols) const;
  double probability(std::span<const std::int32_t> before, std::int32_t next) const;

  std::int64_t alphabet_;
  int width_;                  // bits a symbol
  std::vector<Order> orders_;  // [n]: after n symbols
};

}  // namespace generate
