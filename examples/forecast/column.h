// The column of a CSV file that is forecast.
#pragma once

#include <string>
#include <vector>

namespace forecast {

struct Column {
  std::string name;
  std::vector<float> values;
};

/// The last column that holds a number in the first line below the header: of the many files that give a
/// time first and several quantities, the one to forecast stands last. Throws fovea::FileError: what
/// text::CsvReader refuses, no number in that line or no such line, and, with line and column, a cell of the
/// column that is no finite number.
Column read_column(const std::string& file);

}  // namespace forecast
