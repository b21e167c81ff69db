// The column of a CSV file that is forecast.
#pragma once

#include <string>
#include <vector>

namespace forecast {

struct Column {
  std::string name;
  std::vector<float> values;
};

/// The last column that holds a number in the first line below the header. Many files give a time first and
/// then several quantities, of which the last is the one to forecast. Throws fovea::FileError for what
/// text::CsvReader refuses, and if that line is missing or has no number. Throws it with line and column for
/// a cell of the column that is not a finite number.
Column read_column(const std::string& file);

}  // namespace forecast
