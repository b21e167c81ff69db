// Helpers that several pictures share. Private to this directory.
#pragma once

#include <string>
#include <vector>

#include "fovea/inspect/drawing.h"

namespace fovea::pictures {

inline constexpr double kMargin = 16, kTitleSize = 19, kTitleHeight = 34;

/// The largest finite weight, and whether all are finite.
struct Scale {
  double largest = 0;
  bool any_not_finite = false;
};
Scale scale_of(const std::vector<float>& weights);

/// The position of a weight on the colour ramp of its scale; NaN for a weight that is not finite.
double position_of(float weight, const Scale& scale);

/// Adds the title, if there is one, at the upper left corner inside the margins. Returns the y below it.
double put_title(inspect::Drawing& drawing, const std::string& title);

/// The base line of text of `size` that is vertically centered on `center`.
double base_line(double center, double size);

/// The width of the widest of these texts, at most `limit`.
double longest(const std::vector<std::string>& texts, double size, double limit);

}  // namespace fovea::pictures
