#include "fovea/pictures/chart.h"

#include "inspect/charts.h"
#include "pictures/parts.h"
#include "pictures/text.h"

namespace fovea::pictures {
namespace {

using inspect::Drawing;
using inspect::Item;

struct Shift {
  double x, y;
  void operator()(inspect::Rectangle& r) const { r.x += x, r.y += y; }
  void operator()(inspect::Text& text) const { text.x += x, text.y += y; }
  void operator()(inspect::Grid& grid) const { grid.x += x, grid.y += y; }
  void operator()(inspect::Image& image) const { image.x += x, image.y += y; }
  void operator()(inspect::Path& path) const {
    for (inspect::Step& step : path.steps) {
      for (inspect::Point* point : {&step.to, &step.first, &step.second}) point->x += x, point->y += y;
    }
  }
};

Drawing under_title(Drawing chart) {
  Drawing drawing{.width = chart.width + 2 * kMargin, .height = 0};
  const double y = put_title(drawing, chart.title);
  drawing.height = y + chart.height + kMargin;
  for (Item& item : chart.items) {
    std::visit(Shift{kMargin, y}, item);
    drawing.items.push_back(std::move(item));
  }
  return drawing;
}

}  // namespace

Drawing draw_chart(const inspect::LineChart& chart) {
  inspect::Palette palette;
  return under_title(inspect::lay_out(chart, palette, text_width));
}

Drawing draw_chart(const inspect::BarChart& chart) {
  inspect::Palette palette;
  return under_title(inspect::lay_out(chart, palette, text_width, "draw_chart"));
}

}  // namespace fovea::pictures
