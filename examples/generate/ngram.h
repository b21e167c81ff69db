// The baseline: the distribution of a character after the few before it, counted.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace generate {

/// Interpolated Kneser-Ney smoothing with three discounts an order (Chen & Goodman 1999, "An empirical study
/// of smoothing techniques for language modeling"): the longest context has the counts of the text, every
/// shorter one counts in how many different places a character stood, and what the discounts take is given
/// to the next shorter context, in the end to all 256 bytes alike.
class NGram {
 public:
  /// Counts `text`; a character is predicted from `context` characters before it, 0 to 7.
  NGram(std::string_view text, int context);
  /// Multiplies each order's discounts by what gives `valid` the fewest bits.
  void tune(std::string_view valid);
  /// Of every character but the first, given those before it; the mean, in bits.
  double bits_per_character(std::string_view text) const;
  /// Different (context, character) pairs of the longest order.
  std::size_t size() const { return orders_.back().grams.size(); }

 private:
  struct Context {
    std::uint64_t code = 0;
    double total = 0.0;
    std::array<double, 3> of_count{};  ///< characters seen once, twice, more often
  };
  struct Order {
    std::vector<std::uint64_t> grams;  ///< sorted; the last character in the lowest byte
    std::vector<std::uint32_t> counts;
    std::vector<Context> contexts;  ///< sorted
    std::array<double, 3> discounts{};
    double factor = 1.0;
  };
  static Order count(std::vector<std::uint64_t> codes);
  double probability(std::string_view before, unsigned char next) const;
  std::vector<Order> orders_;  ///< [n]: after n characters
};

}  // namespace generate
