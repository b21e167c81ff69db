// A column of a CSV file.
#pragma once

#include <string>
#include <vector>

namespace forecast {

struct Column {
  std::string name;
  std::vector<float> values;
};

/// The last column that holds a number in the first line below the header: of the many files that give a
/// time first and several quantities, the one to forecast stands last. Cells are separated by commas and
/// may be quoted. Throws fovea::FileError, with line and column, for a file above 256 MiB or above 4096
/// columns, without a header or a number, for a line of another number of cells, and for a cell of that
/// column that is no finite number.
Column read_column(const std::string& file);

}  // namespace forecast
