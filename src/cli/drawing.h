// Pictures of the command. A module of its own, fovea-drawing.so, draws them by fovea::pictures. It is loaded
// when the first one is drawn, because Cairo, Pango and the 20 libraries behind them take 4 ms and 5 MB of a
// process.
#pragma once

#include <string>
#include <vector>

#include "fovea/inspect/report.h"
#include "fovea/pictures/graph.h"
#include "fovea/pictures/render.h"

namespace fovea::cli {

/// Functions of fovea::pictures by the same names.
struct Drawing {
  const char* version;  ///< of the build: that of the command
  pictures::Format (*format_of)(const std::string& path, const std::string& function);
  pictures::Uncovered (*write)(const std::string& path, const inspect::Drawing& drawing,
                               const pictures::RenderOptions& options);
  inspect::Drawing (*draw_page)(const inspect::InspectPage& page);
  inspect::Drawing (*draw_alignment)(const inspect::AlignmentMatrix& alignment);
  inspect::Drawing (*draw_graph)(const std::vector<inspect::AttentionMap>& maps,
                                 const pictures::GraphOptions& options);
  inspect::Drawing (*draw_bars)(const inspect::BarChart& chart);
};

/// The functions of the module, which lies beside the command or in the folder lib/fovea of its installation.
/// Throws FileError, which names both places, where it is missing, cannot be loaded or belongs to another
/// version.
const Drawing& drawing();

}  // namespace fovea::cli
