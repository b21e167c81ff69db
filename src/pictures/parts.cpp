#include "pictures/parts.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "pictures/text.h"

namespace fovea::pictures {

using inspect::Text;
using inspect::Weight;

Scale scale_of(const std::vector<float>& weights) {
  Scale scale;
  for (const float weight : weights) {
    if (std::isfinite(weight)) {
      scale.largest = std::max<double>(scale.largest, weight);
    } else {
      scale.any_not_finite = true;
    }
  }
  return scale;
}

double position_of(float weight, const Scale& scale) {
  if (!std::isfinite(weight)) return std::numeric_limits<double>::quiet_NaN();
  return scale.largest > 0 ? weight / scale.largest : 0;
}

double put_title(inspect::Drawing& drawing, const std::string& title) {
  drawing.title = title;
  if (title.empty()) return kMargin;
  drawing.items.push_back(Text{.x = kMargin,
                               .y = kMargin + kTitleSize * 0.9,
                               .text = title,
                               .size = kTitleSize,
                               .paint = {inspect::Tone::ink},
                               .weight = Weight::bold,
                               .limit = drawing.width - 2 * kMargin});
  return kMargin + kTitleHeight;
}

double base_line(double center, double size) {
  return center + 0.36 * size;
}

double longest(const std::vector<std::string>& texts, double size, double limit) {
  double width = 0;
  for (const std::string& text : texts) width = std::max(width, text_width(text, size));
  return std::ceil(std::min(width, limit));
}

}  // namespace fovea::pictures
