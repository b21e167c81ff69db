#include "inspect/dot_canvas.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "inspect/unicode.h"

namespace fovea::inspect {
namespace {

constexpr Pen kBraille{.colour = false, .true_colour = true, .unicode = true, .width = 80, .max_label = 24};
constexpr Pen kAscii{.colour = false, .true_colour = true, .unicode = false, .width = 80, .max_label = 24};

// The dots of a line, read back from its braille patterns as Unicode numbers them.
std::vector<std::string> dots_of(const DotCanvas& canvas, int lines) {
  constexpr int kBit[4][2] = {{0, 3}, {1, 4}, {2, 5}, {6, 7}};
  std::vector<std::string> rows;
  for (int line = 0; line < lines; ++line) {
    for (const auto& bits : kBit) {
      std::string row;
      for (const char32_t code : decode_utf8(canvas.line(line, kBraille))) {
        EXPECT_TRUE(code >= 0x2800 && code < 0x2900);
        for (const int bit : bits) row += (code >> bit & 1) != 0 ? '#' : '.';
      }
      rows.push_back(row);
    }
  }
  return rows;
}

using Rows = std::vector<std::string>;

TEST(DotCanvas, AStrokeLeadsFromEdgeToEdge) {
  DotCanvas canvas(3, 2);
  canvas.draw({.from = 0, .to = 1});
  EXPECT_EQ(dots_of(canvas, 2),
            (Rows{"......", "......", "##....", "..#...", "...#..", "....#.", ".....#", "......"}));
  DotCanvas up(3, 2);
  up.draw({.from = 1, .to = 0});
  EXPECT_EQ(dots_of(up, 2),
            (Rows{"......", "......", "....##", "...#..", "..#...", ".#....", "#.....", "......"}));
}

TEST(DotCanvas, WidthIsInDotsAndTheWidestFillsALine) {
  for (const int dots : {1, 2, 3, 4}) {
    DotCanvas canvas(4, 3);
    canvas.draw({.from = 1, .to = 1, .dots = dots});
    const Rows rows = dots_of(canvas, 3);
    EXPECT_EQ(std::count(rows.begin() + 4, rows.begin() + 8, "########"), dots);
    EXPECT_EQ(std::count(rows.begin(), rows.end(), "........"), 12 - dots);
  }
}

TEST(DotCanvas, ASteepStrokeIsWideAcrossAndHasNoGaps) {
  DotCanvas canvas(4, 10);
  canvas.draw({.from = 0, .to = 9, .dots = 3});
  const Rows rows = dots_of(canvas, 10);
  for (std::size_t row = 2; row < 38; ++row) {
    const auto count = std::count(rows[row].begin(), rows[row].end(), '#');
    EXPECT_TRUE(count == 3 || ((row < 8 || row > 31) && count >= 1)) << row << ' ' << rows[row];
  }
}

TEST(DotCanvas, ADottedStrokeHasGaps) {
  DotCanvas canvas(4, 1);
  canvas.draw({.dotted = true});
  EXPECT_EQ(dots_of(canvas, 1)[2], "##..##..");
}

TEST(DotCanvas, ALaterStrokeColoursTheCharactersThatItShares) {
  DotCanvas canvas(2, 1);
  canvas.draw({.series = 0});
  Pen pen = kBraille;
  pen.colour = true;
  const std::string first = foreground(series_on_any_ground(0), pen);
  EXPECT_EQ(canvas.line(0, pen), first + "⠤⠤\x1b[0m");
  canvas.draw({.series = 1});
  EXPECT_EQ(canvas.line(0, pen), foreground(series_on_any_ground(1), pen) + "⠤⠤\x1b[0m");
  EXPECT_EQ(DotCanvas(2, 1).line(0, pen), "⠀⠀") << "no stroke, no colour";
}

TEST(DotCanvas, WithoutUnicodeASlopeKeepsItsDirection) {
  const auto drawn = [](const Stroke& stroke) {
    DotCanvas canvas(4, 3);
    canvas.draw(stroke);
    return canvas.line(0, kAscii) + '|' + canvas.line(1, kAscii) + '|' + canvas.line(2, kAscii);
  };
  EXPECT_EQ(drawn({.from = 1, .to = 1}), "    |----|    ");
  EXPECT_EQ(drawn({.from = 1, .to = 1, .dots = 2}), "    |====|    ");
  EXPECT_EQ(drawn({.from = 1, .to = 1, .dots = 4}), "    |####|    ");
  EXPECT_EQ(drawn({.from = 0, .to = 2}).find('/'), std::string::npos);
  EXPECT_NE(drawn({.from = 0, .to = 2}).find('\\'), std::string::npos);
  EXPECT_EQ(drawn({.from = 2, .to = 0}).find('\\'), std::string::npos);
  EXPECT_NE(drawn({.from = 2, .to = 0}).find('/'), std::string::npos);
}

}  // namespace
}  // namespace fovea::inspect
