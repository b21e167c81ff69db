// Where everything of a chart stands. Private to the rooms that draw: pages print the drawing as SVG,
// pictures::draw_chart gives it to cairo.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "fovea/inspect/drawing.h"
#include "fovea/inspect/report.h"

namespace fovea::inspect {

/// Gives every name one colour (0 ... 11, then from the start again), in the order of asking, for a whole
/// report.
class Palette {
 public:
  int index(const std::string& name) {
    const int next = static_cast<int>(indices_.size()) % kSeriesColours;
    return indices_.emplace(name, next).first->second;
  }

 private:
  std::map<std::string, int> indices_;
};

/// Round numbers from at or below `low` to at or above `high`: steps of 1, 2 or 5 times a power of ten, about
/// `count`.
std::vector<double> nice_ticks(double low, double high, int count);

/// The width of a text in units of a drawing.
using Measure = std::function<double(const std::string& text, double size, Weight weight)>;

/// Without a font at hand: 0.58 em an average letter of a sans-serif.
double rough_width(const std::string& text, double size, Weight weight);

/// The chart without its title.
Drawing lay_out(const LineChart& chart, Palette& palette, const Measure& measure);

/// Throws InvalidArgument, in the name of `function`, if a series has not one value a bucket.
Drawing lay_out(const BarChart& chart, Palette& palette, const Measure& measure, const std::string& function);

/// The drawing as an <svg> element of a page, whose style sheet has the colours. It holds rectangles, paths
/// and texts only.
std::string svg_element(const Drawing& drawing);

}  // namespace fovea::inspect
