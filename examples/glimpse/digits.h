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

/// Every image belongs to one part, by a hash of its number: 70, 10 and 20 of a hundred. Settings were chosen
/// on `validation`.
struct Digits {
  std::vector<Digit> train, validation, held_out;
};

/// scikit-learn's digits.csv: a line an image, 64 numbers from 0 to 16 and the label. Throws FileError,
/// with the line where one is another.
Digits read_digits(const std::string& path);

/// Digits drawn with a pen that trembles: the same form where there is no file.
Digits draw_digits();

}  // namespace glimpse
