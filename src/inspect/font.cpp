#include "inspect/font.h"

#include <cstddef>
#include <map>

#include "inspect/font_shapes.h"
#include "inspect/unicode.h"

namespace fovea::inspect {
namespace {

// Where a drawn glyph sits in its cell: three rows above the capitals' tops for their accents (two of mark,
// one of air), one row of air below the descenders.
constexpr int kTop = 3;
constexpr int kXHeightTop = kTop + 2;
constexpr int kBaseLine = kTop + 6;

constexpr Glyph kBox{0, 0, 0, 0x1F, 0x11, 0x11, 0x11, 0x11, 0x11, 0x1F, 0, 0, 0};

// Bits of five columns, drawn as they are read: "#.#" has bit 0 on the left.
constexpr std::uint8_t bits(std::string_view row) {
  std::uint8_t mask = 0;
  for (std::size_t i = 0; i < row.size(); ++i) mask |= static_cast<std::uint8_t>((row[i] == '#') << i);
  return mask;
}

const std::map<char32_t, Glyph>& shapes() {
  static const std::map<char32_t, Glyph> all = [] {
    std::map<char32_t, Glyph> glyphs;
    for (int band = 0; band < kShapeBandCount; ++band) {
      const ShapeBand& drawn = kShapeBands[band];
      for (std::size_t i = 0; i < drawn.characters.size(); ++i) {
        Glyph glyph{};
        for (std::size_t row = 0; row < kShapeRows; ++row)
          glyph[kTop + row] = bits(drawn.rows[row].substr(6 * i, 5));
        glyphs[drawn.characters[i]] = glyph;
      }
    }
    glyphs[U' '] = {};
    return glyphs;
  }();
  return all;
}

bool tall(char base) {
  return (base >= 'A' && base <= 'Z') || std::string_view("bdfhklt").find(base) != std::string_view::npos;
}

struct MarkShape {
  std::string_view upper, lower;  // two rows of five
};

MarkShape above(Mark mark) {
  switch (mark) {
    case Mark::grave:
      return {" #   ", "  #  "};
    case Mark::acute:
      return {"   # ", "  #  "};
    case Mark::circumflex:
      return {"  #  ", " # # "};
    case Mark::tilde:
      return {" ## #", "#  # "};
    case Mark::macron:
      return {"     ", " ### "};
    case Mark::breve:
      return {"#   #", " ### "};
    case Mark::dot:
      return {"     ", "  #  "};
    case Mark::diaeresis:
      return {"     ", " # # "};
    case Mark::ring:
      return {" ### ", " ### "};
    case Mark::double_acute:
      return {"  # #", " # # "};
    case Mark::caron:
      return {" # # ", "  #  "};
    default:
      return {};
  }
}

void draw_stroke(Glyph& glyph, char base) {
  if (base == 'O' || base == 'o') {  // a slash through the bowl
    const int top = base == 'O' ? kTop : kXHeightTop;
    for (int row = top; row <= kBaseLine; ++row) {
      glyph[static_cast<std::size_t>(row)] |=
          static_cast<std::uint8_t>(1U << (4 - 4 * (row - top) / (kBaseLine - top)));
    }
  } else if (base == 'L' || base == 'l') {
    glyph[kTop + 2] |= bits(base == 'L' ? "  #  " : "   # ");
    glyph[kTop + 3] |= bits(base == 'L' ? "##   " : " ##  ");
  } else {
    const bool capital = base >= 'A' && base <= 'Z';
    glyph[capital ? kTop + 3 : kTop + 1] |= bits(base == 'D' ? "###  " : base == 'd' ? "  ###" : " ### ");
  }
}

void draw_mark(Glyph& glyph, char base, Mark mark) {
  switch (mark) {
    case Mark::none:
      return;
    case Mark::stroke:
      draw_stroke(glyph, base);
      return;
    case Mark::cedilla:
    case Mark::comma:
      glyph[kBaseLine + 1] |= bits("  #  ");
      glyph[kBaseLine + 2] |= bits(mark == Mark::comma ? " #   " : " ##  ");
      return;
    case Mark::ogonek:
      glyph[kBaseLine + 1] |= bits("   # ");
      glyph[kBaseLine + 2] |= bits("   ##");
      return;
    default:
      break;
  }
  const std::size_t top = tall(base) ? 0 : 2;
  const MarkShape shape = above(mark);
  if (base == 'i' || base == 'j') glyph[kTop] = 0;  // the accent takes the dot's place
  glyph[top] |= bits(shape.upper);
  glyph[top + 1] |= bits(shape.lower);
}

Glyph glyph_of(char32_t code) {
  const auto found = shapes().find(code);
  if (found != shapes().end()) return found->second;
  if (code == 0xA0 || code == 0x202F) return {};
  const Letter letter = take_apart(code);
  if (letter.base == 0) return kBox;
  Glyph glyph = shapes().at(static_cast<unsigned char>(letter.base));
  draw_mark(glyph, letter.base, letter.mark);
  return glyph;
}

}  // namespace

std::vector<Glyph> glyphs_of(std::string_view text) {
  std::vector<Glyph> glyphs;
  char32_t base = 0;
  for (const char32_t code : visible(text)) {
    if (width_of(code) > 0 || glyphs.empty()) {
      base = code;
      glyphs.push_back(glyph_of(code));
    } else if (base < 0x80) {
      draw_mark(glyphs.back(), static_cast<char>(base), combining_mark(code));
    }
  }
  return glyphs;
}

}  // namespace fovea::inspect
