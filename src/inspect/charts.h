// The layout of a chart. Private to inspect and pictures: pages print the drawing as SVG, and
// pictures::draw_chart draws it with Cairo.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "fovea/inspect/drawing.h"
#include "fovea/inspect/report.h"

namespace fovea::inspect {

/// Gives every name of a report one colour (0 ... 11, then from 0 again), in the order of the first requests.
class Palette {
 public:
  int index(const std::string& name) {
    const int next = static_cast<int>(indices_.size()) % kSeriesColours;
    return indices_.emplace(name, next).first->second;
  }

 private:
  std::map<std::string, int> indices_;
};

/// About `count` round numbers that cover [low, high], in steps of 1, 2 or 5 times a power of ten.
std::vector<double> nice_ticks(double low, double high, int count);

/// The width of a text in units of a drawing.
using Measure = std::function<double(const std::string& text, double size, Weight weight)>;

/// An estimate without a font: 0.58 em for an average letter of a sans-serif.
double rough_width(const std::string& text, double size, Weight weight);

/// The chart without its title.
Drawing lay_out(const LineChart& chart, Palette& palette, const Measure& measure);

/// Throws InvalidArgument, in the name of `function`, if a series does not have one value for each bucket.
Drawing lay_out(const BarChart& chart, Palette& palette, const Measure& measure, const std::string& function);

/// The drawing as an <svg> element of a page, whose style sheet has the colours. It holds rectangles, paths
/// and texts only.
std::string svg_element(const Drawing& drawing);

}  // namespace fovea::inspect
