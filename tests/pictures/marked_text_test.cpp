#include "fovea/pictures/marked_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "fovea/core/error.h"
#include "fovea/inspect/colour_map.h"
#include "pictures/raster.h"

namespace fovea::pictures {
namespace {

using inspect::colour_of;
using inspect::Rgb;

std::int64_t count(const Drawing& drawing, const Rgb& colour, Theme theme = Theme::light) {
  return samples::count(rasterise(drawing, {.theme = theme}), colour);
}

constexpr Rgb frame_colour{213, 94, 0};

TEST(MarkedText, TheBackgroundOfAWordIsTheColourOfItsWeight) {
  const MarkedText text{.caption = "who", .words = {"aa", "bb", "cc"}, .weights = {0.0f, 0.3f, 0.6f}};
  const Drawing picture = draw_marked_texts({text});
  const Rgb half = colour_of(0.3f / 0.6f, Theme::light), full = colour_of(1.0, Theme::light);
  EXPECT_GT(count(picture, half), 200);
  EXPECT_GT(count(picture, full), 200);
  EXPECT_EQ(count(picture, frame_colour), 0);
  EXPECT_GT(count(picture, colour_of(1.0, Theme::dark), Theme::dark), 200);
}

TEST(MarkedText, TheQueryWordIsFramed) {
  MarkedText text{.caption = {}, .words = {"aa", "bb"}, .weights = {0.5f, 0.5f}, .who = 1};
  EXPECT_GT(count(draw_marked_texts({text}), frame_colour), 100);
}

TEST(MarkedText, LinesAreBrokenAndWordsCut) {
  MarkedText text{.caption = {}, .words = {}, .weights = {}};
  const Drawing none = draw_marked_texts({text}, {.title = {}, .width = 300});
  text.words.assign(30, "word");
  text.words.push_back(std::string(400, 'x'));
  text.weights.assign(31, 0.1f);
  const Drawing picture = draw_marked_texts({text}, {.title = "title", .width = 300});
  EXPECT_EQ(picture.width, 300);
  EXPECT_GT(picture.height, none.height + 200);
}

TEST(MarkedText, NotFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const MarkedText text{.caption = {}, .words = {"a", "b"}, .weights = {nan, 0.2f}};
  EXPECT_GT(count(draw_marked_texts({text}), inspect::not_finite_colour), 100);
}

TEST(MarkedText, RefusesWrongArguments) {
  const MarkedText few{.caption = {}, .words = {"a", "b"}, .weights = {1.0f}};
  const MarkedText outside{.caption = {}, .words = {"a"}, .weights = {1.0f}, .who = 1};
  EXPECT_THROW(draw_marked_texts({few}), InvalidArgument);
  EXPECT_THROW(draw_marked_texts({outside}), InvalidArgument);
  EXPECT_THROW(draw_marked_texts({}, {.title = {}, .width = 99}), InvalidArgument);
}

}  // namespace
}  // namespace fovea::pictures
