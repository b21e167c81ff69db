// Renders a drawing as PNG, SVG or PDF, in the light or the dark theme. Pango shapes the text, so every
// script for which the machine has a font is drawn: right-to-left scripts, combining marks and emoji too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fovea/inspect/drawing.h"

namespace fovea::pictures {

using inspect::Drawing;
using inspect::Theme;

enum class Format { png, svg, pdf };

struct RenderOptions {
  Theme theme = Theme::light;
  /// For PNG: pixels for each unit of the drawing, in [0.1, 16]. The default is 2, for dense screens and for
  /// pictures that a page shrinks. The scale is reduced if a side would exceed Cairo's 32,767 pixels, or the
  /// whole picture 2^28 pixels.
  double scale = 2;
};

/// The characters that no font of the machine has, each once. They are drawn as boxes that contain their
/// number.
using Uncovered = std::vector<std::string>;

struct Rendered {
  std::string bytes;
  Uncovered uncovered;
};

/// The format of the suffix: .png, .svg or .pdf, in upper or lower case. Any other suffix throws an
/// InvalidArgument that names `function`.
Format format_of(const std::string& path, const std::string& function = "format_of");

/// The file's bytes. They contain no time stamp: the same drawing gives the same bytes on the same machine.
/// Text is drawn as shapes, so that it looks the same where the fonts are missing. The text of a
/// PDF can still be searched, and the description of an SVG contains its text. Throws InvalidArgument for a
/// drawing that is empty or too large for any scale, or a scale outside its range. The same is thrown for
/// items that cannot be drawn. A grid or an image needs rows x columns colours and sides above 0, a text a
/// size in (0, 1000]. Numbers of all items are at most 10,000,000 in size, and indices of series at least 0.
Rendered render(const Drawing& drawing, Format format, const RenderOptions& options = {});

/// Writes the bytes of `render` in the format of the path's suffix. Throws FileError if the file cannot be
/// written.
Uncovered write(const std::string& path, const Drawing& drawing, const RenderOptions& options = {});

/// The pixels of the PNG.
struct Raster {
  int width = 0, height = 0;
  std::vector<std::uint8_t> rgb;  ///< [height, width, 3]
};
Raster rasterise(const Drawing& drawing, const RenderOptions& options = {});

}  // namespace fovea::pictures
