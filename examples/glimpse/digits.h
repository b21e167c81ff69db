// Images of handwritten digits, 8 x 8.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace glimpse {

inline constexpr int digit_side = 8;

struct Digit {
  std::array<float, digit_side * digit_side> pixels{};  ///< in [0, 1], row by row
  std::int32_t label = 0;
};

/// Every image belongs to one part, by a hash of its number: 70, 10 and 20 per cent. Settings were chosen on
/// `validation`.
struct Digits {
  std::vector<Digit> train, validation, held_out;
};

/// scikit-learn's digits.csv: one image on each line, 64 numbers from 0 to 16 and the label. Throws
/// FileError, with the line number if a line is different.
Digits read_digits(const std::string& path);

/// Digits drawn with a trembling pen, in the same format, for use without the file.
Digits draw_digits();

}  // namespace glimpse
