// From a drawing to PNG, SVG or PDF: one description, every format, light or dark. Text is shaped by Pango:
// any script that a font of this machine has, right-to-left, marks, emoji.
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
  /// PNG: pixels a unit of the drawing, in [0.1, 16]. A picture is looked at on a dense screen or shrunk on a
  /// page, so 2. Made smaller where a side would be longer than Cairo's 32,767 pixels or the whole larger
  /// than 2^28.
  double scale = 2;
};

/// Characters that no font of this machine has, each once: they are drawn as boxes with their number in them.
using Uncovered = std::vector<std::string>;

struct Rendered {
  std::string bytes;
  Uncovered uncovered;
};

/// By the suffix: .png, .svg or .pdf, in either case. Throws InvalidArgument, in the name of `function`, for
/// another one.
Format format_of(const std::string& path, const std::string& function = "format_of");

/// The file's bytes: the same for the same drawing on the same machine, with no time stamp in them. Text is
/// drawn as shapes, so that it looks the same where the fonts are missing; in a PDF it can be searched all
/// the same, and an SVG has it in its description. Throws InvalidArgument for a drawing that is empty or too
/// large for any scale, or a scale outside its range.
Rendered render(const Drawing& drawing, Format format, const RenderOptions& options = {});

/// Writes render's bytes, format_of(path). Throws FileError if the file cannot be written.
Uncovered write(const std::string& path, const Drawing& drawing, const RenderOptions& options = {});

/// The pixels of the PNG.
struct Raster {
  int width = 0, height = 0;
  std::vector<std::uint8_t> rgb;  ///< [height, width, 3]
};
Raster rasterise(const Drawing& drawing, const RenderOptions& options = {});

}  // namespace fovea::pictures
