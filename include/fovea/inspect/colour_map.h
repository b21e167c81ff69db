// Here are matrices and graphs of attention weights, for terminals and HTML pages, and drawings as plain
// data. PNG, SVG and PDF are in pictures/; no header here knows a model. Open data.h first.
//
// This header maps a weight to a colour. The lightness of both colour ramps is linear in OKLab. Equal steps
// of weight therefore look equal, also in grey print and to the colour-blind. Zero has the background's
// colour, because most attention weights are almost zero.
#pragma once

#include <array>
#include <cstdint>

namespace fovea::inspect {

struct Rgb {
  std::uint8_t red = 0, green = 0, blue = 0;
  friend bool operator==(const Rgb&, const Rgb&) = default;
};

/// The background: everything can be drawn on either.
enum class Theme { light, dark };

/// The colour of `position` in [0, 1] (clamped; NaN gives not_finite_colour). The ramp goes from the
/// background's colour through green, teal and blue, to deep indigo on light and to bright yellow on dark.
Rgb colour_of(double position, Theme theme);

/// The colour of curve, bar series or head `index` >= 0: Okabe and Ito's palette and six more hues. They are
/// darkened on light and lightened on dark until text in the colour is readable (contrast of at least 4.5
/// with the background). From the thirteenth on they repeat. Throws InvalidArgument for an index below 0.
Rgb series_colour(int index, Theme theme);
inline constexpr int kSeriesColours = 12;

/// 256 equal steps of colour_of.
std::array<Rgb, 256> colour_table(Theme theme);

/// The colour of NaN and infinity; it is on neither ramp.
inline constexpr Rgb not_finite_colour{213, 94, 0};

}  // namespace fovea::inspect
