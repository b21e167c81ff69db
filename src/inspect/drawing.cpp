#include "fovea/inspect/drawing.h"

namespace fovea::inspect {
namespace {

Rgb tone_of(Tone tone, Theme theme) {
  const bool light = theme == Theme::light;
  switch (tone) {
    case Tone::paper:
      return light ? Rgb{255, 255, 255} : Rgb{0x18, 0x1b, 0x25};
    case Tone::quiet:
      return light ? Rgb{0x5f, 0x66, 0x78} : Rgb{0x9a, 0xa2, 0xb5};
    case Tone::line:
      return light ? Rgb{0xce, 0xd2, 0xda} : Rgb{0x3a, 0x41, 0x54};
    case Tone::accent:
      return light ? Rgb{0xd5, 0x5e, 0x00} : Rgb{0xff, 0x9a, 0x4d};
    case Tone::ink:
      break;
  }
  return light ? Rgb{0x1b, 0x1e, 0x2b} : Rgb{0xe8, 0xea, 0xf2};
}

// Rec. 709 luma, in 0 ... 255.
double luma(Rgb colour) {
  return 0.2126 * colour.red + 0.7152 * colour.green + 0.0722 * colour.blue;
}

struct Resolve {
  Theme theme;
  Rgb operator()(Tone tone) const { return tone_of(tone, theme); }
  Rgb operator()(OnRamp at) const { return colour_of(at.position, theme); }
  Rgb operator()(TextOnRamp at) const {
    return luma(colour_of(at.position, theme)) > 128 ? Rgb{0x1b, 0x1e, 0x2b} : Rgb{255, 255, 255};
  }
  Rgb operator()(Series series) const { return series_colour(series.index, theme); }
  Rgb operator()(Rgb fixed) const { return fixed; }
};

}  // namespace

Rgb colour_of(const Paint& paint, Theme theme) {
  return std::visit(Resolve{theme}, paint.colour);
}

}  // namespace fovea::inspect
