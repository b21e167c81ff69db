// Matrices as a picture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fovea/inspect/data.h"

namespace fovea::inspect {

/// Where one matrix lies in a picture, in pixels: the cell of (row, column) is the square of side `cell`
/// whose upper left corner is (x + column * cell, y + row * cell).
struct Panel {
  std::size_t map = 0, head = 0;
  int x = 0, y = 0, cell = 0;
};

struct Picture {
  int width = 0, height = 0;
  std::vector<std::uint8_t> rgb;  ///< [height, width, 3]
  std::vector<Panel> panels;
};

/// One matrix with its labels and the colour scale. Throws InvalidArgument if it is not rows * columns.
Picture draw_picture(const AlignmentMatrix& alignment);

/// Every map a band, every head a panel; labels where the cells are large enough to carry them. Throws
/// InvalidArgument if a map's sizes disagree or the picture would have more than 2^28 pixels.
Picture draw_picture(const InspectPage& page);

/// Writes an 8-bit RGB PNG. Throws FileError if the file cannot be written.
void write_png(const std::string& path, const Picture& picture);
void write_png(const std::string& path, const AlignmentMatrix& alignment);
void write_png(const std::string& path, const InspectPage& page);

}  // namespace fovea::inspect
