// Matrices as a picture.
#pragma once

#include "fovea/inspect/data.h"
#include "fovea/inspect/drawing.h"

namespace fovea::pictures {

/// One matrix with its labels and the colour scale, as one panel. Throws InvalidArgument unless the matrix
/// has rows * columns weights.
inspect::Drawing draw_picture(const inspect::AlignmentMatrix& alignment);

/// Each map is one band, each head one panel. Rows and columns have labels if the cells are large enough for
/// text. Throws InvalidArgument unless each map has heads * rows * columns weights.
inspect::Drawing draw_picture(const inspect::InspectPage& page);

}  // namespace fovea::pictures
