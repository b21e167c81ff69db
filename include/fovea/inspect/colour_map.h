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

enum class Ground { light, dark };

/// The colour of `position` in [0, 1] (clamped; NaN gives not_finite_colour): from the ground's own tone,
/// through green, teal and blue, to deep indigo on a light ground and bright yellow on a dark one.
Rgb colour_of(double position, Ground ground);

/// 256 equal steps of colour_of.
std::array<Rgb, 256> colour_table(Ground ground);

/// What NaN and infinity are painted with; on neither ramp.
inline constexpr Rgb not_finite_colour{213, 94, 0};

}  // namespace fovea::inspect
