// Here are drawings of weights, graphs of words, charts and images, and their rendering as PNG, SVG and PDF.
// Terminal output, HTML pages and the data of a drawing are in inspect/. Open render.h first.
//
// This header draws the charts of a report as pictures of their own.
#pragma once

#include "fovea/inspect/drawing.h"
#include "fovea/inspect/report.h"

namespace fovea::pictures {

/// The chart under its title, as a page shows it.
inspect::Drawing draw_chart(const inspect::LineChart& chart);

/// Throws InvalidArgument if a series does not have one value for each bucket.
inspect::Drawing draw_chart(const inspect::BarChart& chart);

}  // namespace fovea::pictures
