#include "column.h"

#include <fmt/format.h>

#include <cstddef>
#include <optional>

#include "fovea/text/csv.h"

namespace forecast {

using fovea::text::finite_number;

Column read_column(const std::string& file) {
  fovea::text::CsvReader lines(file);
  lines.next();
  const std::vector<std::string> header = lines.cells();
  Column column;
  std::optional<std::size_t> which;
  while (lines.next()) {
    const std::vector<std::string>& cells = lines.cells();
    for (std::size_t i = cells.size(); !which && i-- > 0;) {
      if (finite_number(cells[i])) which = i;
    }
    if (!which) lines.refuse("no cell of the first line below the header is a number");
    const std::optional<float> value = finite_number(cells[*which]);
    if (!value) {
      lines.refuse(fmt::format("column {} ('{}'): '{}' is no finite number", *which + 1, header[*which],
                               cells[*which].substr(0, 40)));
    }
    column.values.push_back(*value);
  }
  if (!which) lines.refuse("no line under the header");
  column.name = header[*which];
  return column;
}

}  // namespace forecast
