#include "fovea/inspect/marked_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "fovea/core/error.h"
#include "fovea/inspect/colour_map.h"
#include "fovea/inspect/data.h"

namespace fovea::inspect {
namespace {

std::int64_t count(const Picture& picture, const Rgb& colour) {
  std::int64_t found = 0;
  for (std::size_t i = 0; i < picture.rgb.size(); i += 3)
    found += Rgb{picture.rgb[i], picture.rgb[i + 1], picture.rgb[i + 2]} == colour;
  return found;
}

constexpr Rgb frame_colour{213, 94, 0};

TEST(MarkedText, WordsStandOnTheColourOfTheirWeight) {
  const MarkedText text{.caption = "who", .words = {"aa", "bb", "cc"}, .weights = {0.0f, 0.3f, 0.6f}};
  const Picture picture = draw_marked_texts({text});
  const Rgb half = colour_of(0.3f / 0.6f, Ground::light), full = colour_of(1.0, Ground::light);
  EXPECT_GT(count(picture, half), 200);
  EXPECT_GT(count(picture, full), 200);
  EXPECT_EQ(count(picture, frame_colour), 0);
}

TEST(MarkedText, TheWordThatLooksIsFramed) {
  MarkedText text{.caption = {}, .words = {"aa", "bb"}, .weights = {0.5f, 0.5f}, .who = 1};
  EXPECT_GT(count(draw_marked_texts({text}), frame_colour), 100);
}

TEST(MarkedText, LinesAreBrokenAndWordsCut) {
  MarkedText text{.caption = {}, .words = {}, .weights = {}};
  const Picture none = draw_marked_texts({text}, {.title = {}, .width = 300});
  text.words.assign(30, "word");
  text.words.push_back(std::string(400, 'x'));
  text.weights.assign(31, 0.1f);
  const Picture picture = draw_marked_texts({text}, {.title = "title", .width = 300});
  EXPECT_EQ(picture.width, 300);
  EXPECT_GT(picture.height, none.height + 200);
}

TEST(MarkedText, NotFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const MarkedText text{.caption = {}, .words = {"a", "b"}, .weights = {nan, 0.2f}};
  EXPECT_GT(count(draw_marked_texts({text}), not_finite_colour), 100);
}

TEST(AttendedBy, MeanOverTheHeadsOfOneRow) {
  std::vector<float> values;
  for (int i = 0; i < 2 * 2 * 3 * 4; ++i) values.push_back(static_cast<float>(i));
  const Tensor weights = Tensor::from<float>(values, {2, 2, 3, 4});
  // Entry 1, query 2: heads at 24 + 8 and 24 + 12 + 8.
  EXPECT_EQ(attended_by(weights, 1, 2, 3), (std::vector<float>{38, 39, 40}));
  EXPECT_TRUE(attended_by(weights, 0, 0, 0).empty());
  EXPECT_THROW(attended_by(weights, 2, 0, 1), InvalidArgument);
  EXPECT_THROW(attended_by(weights, 0, 3, 1), InvalidArgument);
  EXPECT_THROW(attended_by(weights, 0, 0, 5), InvalidArgument);
  EXPECT_THROW(attended_by(weights, 0, -1, 1), InvalidArgument);
  EXPECT_THROW(attended_by(weights.reshape({4, 3, 4}), 0, 0, 1), InvalidArgument);
}

TEST(MarkedText, Door) {
  const MarkedText few{.caption = {}, .words = {"a", "b"}, .weights = {1.0f}};
  const MarkedText outside{.caption = {}, .words = {"a"}, .weights = {1.0f}, .who = 1};
  EXPECT_THROW(draw_marked_texts({few}), InvalidArgument);
  EXPECT_THROW(draw_marked_texts({outside}), InvalidArgument);
  EXPECT_THROW(draw_marked_texts({}, {.title = {}, .width = 100}), InvalidArgument);
}

}  // namespace
}  // namespace fovea::inspect
