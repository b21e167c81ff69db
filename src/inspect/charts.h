// Charts as SVG text. Private to the room.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "fovea/inspect/report.h"

namespace fovea::inspect {

/// Gives every name one colour class (0..5, then from the start again), in the order of asking, for a whole
/// report.
class Palette {
 public:
  int index(const std::string& name) {
    const int next = static_cast<int>(indices_.size()) % 6;
    return indices_.emplace(name, next).first->second;
  }

 private:
  std::map<std::string, int> indices_;
};

/// Round numbers from at or below `low` to at or above `high`: steps of 1, 2 or 5 times a power of ten, about
/// `count`.
std::vector<double> nice_ticks(double low, double high, int count);

/// A <figure> with its caption.
std::string draw_chart(const LineChart& chart, Palette& palette);

/// Throws InvalidArgument if a series has not one value a bucket.
std::string draw_chart(const BarChart& chart, Palette& palette);

}  // namespace fovea::inspect
