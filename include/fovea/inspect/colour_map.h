// From a weight to a colour. Both ramps have lightness linear in OKLab, so that equal steps of weight look
// equal, also in grey print and to the colour-blind; zero sinks into the ground, because most attention
// weights are almost zero.
#pragma once

#include <array>
#include <cstdint>

namespace fovea::inspect {

struct Rgb {
  std::uint8_t red = 0, green = 0, blue = 0;
  friend bool operator==(const Rgb&, const Rgb&) = default;
};

/// The two grounds that everything is drawn on.
enum class Theme { light, dark };

/// The colour of `position` in [0, 1] (clamped; NaN gives not_finite_colour): from the ground's own tone,
/// through green, teal and blue, to deep indigo on a light ground and bright yellow on a dark one.
Rgb colour_of(double position, Theme theme);

/// The colour of curve, bar series or head `index` >= 0: Okabe and Ito's palette and six more hues, darkened
/// on a light ground and lightened on a dark one until text in the colour stays readable (contrast 4.5 and
/// more on the paper). From the thirteenth on they repeat.
Rgb series_colour(int index, Theme theme);
inline constexpr int kSeriesColours = 12;

/// 256 equal steps of colour_of.
std::array<Rgb, 256> colour_table(Theme theme);

/// What NaN and infinity are painted with; on neither ramp.
inline constexpr Rgb not_finite_colour{213, 94, 0};

}  // namespace fovea::inspect
