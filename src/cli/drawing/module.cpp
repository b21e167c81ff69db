// The module fovea-drawing.so: see cli/drawing.h.
#include "cli/drawing.h"
#include "fovea/pictures/chart.h"
#include "fovea/pictures/maps.h"

namespace fovea::cli {
namespace {

constexpr Drawing functions{
    .version = FOVEA_VERSION,
    .format_of = pictures::format_of,
    .write = pictures::write,
    .draw_page = [](const inspect::InspectPage& page) { return pictures::draw_picture(page); },
    .draw_alignment = [](const inspect::AlignmentMatrix& map) { return pictures::draw_picture(map); },
    .draw_graph = pictures::draw_graph,
    .draw_bars = [](const inspect::BarChart& chart) { return pictures::draw_chart(chart); },
};

}  // namespace
}  // namespace fovea::cli

extern "C" __attribute__((visibility("default"))) const fovea::cli::Drawing* fovea_drawing() {
  return &fovea::cli::functions;
}
