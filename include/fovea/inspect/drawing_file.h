// A drawing as a file of JSON. A program that trains for minutes keeps its drawing in such a file, so that
// the picture can be rendered again, in either theme, without the training.
#pragma once

#include <filesystem>

#include "fovea/inspect/drawing.h"

namespace fovea::inspect {

/// Writes the whole drawing but its panels. Positions on the ramp, in grids and paints, are rounded to
/// 1/10,000; a colour has 256 steps. Throws FileError if the file cannot be written.
void save_drawing(const std::filesystem::path& path, const Drawing& drawing);

/// The drawing of such a file of at most 64 MiB; it has no panels. Throws FileError if the file cannot be
/// read, is no JSON, or lacks a part.
Drawing load_drawing(const std::filesystem::path& path);

}  // namespace fovea::inspect
