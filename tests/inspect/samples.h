// Matrices that the tests of this directory draw.
#pragma once

#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "fovea/inspect/data.h"

namespace fovea::inspect::samples {

inline std::vector<std::string> words(int count, const std::string& stem) {
  std::vector<std::string> all;
  for (int i = 0; i < count; ++i) all.push_back(stem + std::to_string(i));
  return all;
}

/// Weights in [0, 1), none equal to its neighbours, from the fractional parts of multiples of the golden
/// ratio.
inline std::vector<float> weights(std::size_t count) {
  std::vector<float> all(count);
  for (std::size_t i = 0; i < count; ++i) {
    const double multiple = static_cast<double>(i + 1) * 0.6180339887498949;
    all[i] = static_cast<float>(multiple - std::floor(multiple));
  }
  return all;
}

inline AlignmentMatrix alignment(int rows, int columns) {
  return {words(rows, "t"), words(columns, "s"), weights(static_cast<std::size_t>(rows * columns))};
}

inline AttentionMap map(int heads, int rows, int columns) {
  return {.name = "decoder.cross layer 1",
          .layer = 0,
          .query_tokens = words(rows, "q"),
          .key_tokens = words(columns, "k"),
          .heads = heads,
          .weights = weights(static_cast<std::size_t>(heads * rows * columns))};
}

/// Hostile texts: they end a script or an attribute, start an element, or contain control sequences for a
/// terminal.
inline const std::vector<std::string> hostile = {"</script><script>alert(1)</script>",
                                                 "<img src=x onerror=alert(1)>",
                                                 "\" onmouseover=\"alert(1)",
                                                 "' & ]]> <!-- --",
                                                 "\x1b[2J\x1b]0;owned\x07",
                                                 "\xc2\x9b"
                                                 "31m",
                                                 "line\nbreak\ttab\r",
                                                 "\xe2\x80\xa8sep\xe2\x80\xae"
                                                 "txt",
                                                 "broken \xff\xc3 utf-8 \xed\xa0\x80",
                                                 ""};

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace fovea::inspect::samples
