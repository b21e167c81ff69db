// What several pictures have in common. Private to the room.
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

/// Where a weight stands on the ramp of its scale; NaN for one that is not finite.
double position_of(float weight, const Scale& scale);

/// The title, if there is one, at the upper left corner inside the margins; gives the y below it.
double put_title(inspect::Drawing& drawing, const std::string& title);

/// The base line of text of `size` whose letters are in the middle of a line around `centre`.
double base_line(double centre, double size);

/// The width of the widest of these texts, at most `limit`.
double longest(const std::vector<std::string>& texts, double size, double limit);

}  // namespace fovea::pictures
