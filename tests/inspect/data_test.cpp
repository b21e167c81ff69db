#include "fovea/inspect/data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <regex>

#include "fovea/core/error.h"
#include "fovea/inspect/colour_map.h"
#include "fovea/inspect/drawing.h"
#include "inspect/page.h"
#include "inspect/samples.h"

namespace fovea::inspect {
namespace {

// WCAG 2's relative luminance and contrast.
double luminance(Rgb c) {
  const auto linear = [](std::uint8_t value) {
    const double share = value / 255.0;
    return share <= 0.04045 ? share / 12.92 : std::pow((share + 0.055) / 1.055, 2.4);
  };
  return 0.2126 * linear(c.red) + 0.7152 * linear(c.green) + 0.0722 * linear(c.blue);
}
double contrast(Rgb a, Rgb b) {
  const double one = luminance(a), other = luminance(b);
  return (std::max(one, other) + 0.05) / (std::min(one, other) + 0.05);
}

TEST(ColourMap, LightnessIsMonotone) {
  for (const Theme theme : {Theme::light, Theme::dark}) {
    const auto table = colour_table(theme);
    for (std::size_t i = 8; i < table.size(); i += 8) {
      if (theme == Theme::light) {
        EXPECT_LT(luminance(table[i]), luminance(table[i - 8])) << i;
      } else {
        EXPECT_GT(luminance(table[i]), luminance(table[i - 8])) << i;
      }
    }
  }
  EXPECT_EQ(colour_of(-1, Theme::light), colour_of(0, Theme::light));
  EXPECT_EQ(colour_of(2, Theme::dark), colour_of(1, Theme::dark));
  EXPECT_EQ(colour_of(std::nan(""), Theme::dark), not_finite_colour);
}

TEST(ColourMap, TextIsReadableOnEveryColour) {
  for (const Theme theme : {Theme::light, Theme::dark}) {
    const Rgb paper = colour_of(Paint{Tone::paper}, theme);
    EXPECT_GE(contrast(colour_of(Paint{Tone::ink}, theme), paper), 12);
    EXPECT_GE(contrast(colour_of(Paint{Tone::quiet}, theme), paper), 4.5);
    for (int i = 0; i < kSeriesColours; ++i) EXPECT_GE(contrast(series_colour(i, theme), paper), 4.5) << i;
    EXPECT_EQ(series_colour(kSeriesColours + 1, theme), series_colour(1, theme));
    EXPECT_THROW(series_colour(-1, theme), InvalidArgument);
    for (double position = 0; position <= 1; position += 0.05) {
      const Rgb ground = colour_of(position, theme), text = colour_of(Paint{TextOnRamp{position}}, theme);
      EXPECT_GE(contrast(text, ground), 3) << position;
    }
  }
}

// The page's charts take their colours from the style sheet; its matrices and pictures take them from C++.
TEST(ColourMap, TheStyleSheetHasTheSameSeries) {
  const std::string style(kPageStyle);
  std::map<int, std::vector<std::string>> found;
  const std::regex variable("--s([0-9]+): (#[0-9a-f]{6});");
  for (std::sregex_iterator match(style.begin(), style.end(), variable), end; match != end; ++match)
    found[std::stoi((*match)[1])].push_back((*match)[2]);
  ASSERT_EQ(found.size(), static_cast<std::size_t>(kSeriesColours));
  for (const auto& [index, colours] : found) {
    const auto text = [&](Theme theme) {
      const Rgb c = series_colour(index, theme);
      char out[8];
      std::snprintf(out, sizeof out, "#%02x%02x%02x", c.red, c.green, c.blue);
      return std::string(out);
    };
    // Light, dark by the system, dark by the button.
    EXPECT_EQ(colours, (std::vector<std::string>{text(Theme::light), text(Theme::dark), text(Theme::dark)}))
        << index;
  }
}

TEST(Data, MeanAndHeads) {
  const AttentionMap map = samples::map(3, 2, 4);
  const AlignmentMatrix mean = mean_over_heads(map);
  for (std::size_t i = 0; i < mean.weights.size(); ++i) {
    double sum = 0;
    for (int head = 0; head < 3; ++head) sum += head_of(map, head).weights[i];
    EXPECT_NEAR(mean.weights[i], sum / 3, 1e-7);
  }
  EXPECT_THROW(head_of(map, 3), InvalidArgument);
  EXPECT_EQ(as_map(mean).weights, mean.weights);
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

// Two heads, two queries, three keys.
AttentionMap tokens_map() {
  return {.name = "layer \"1\"",
          .layer = 0,
          .query_tokens = {"a", "b"},
          .key_tokens = {"a", "b", "c"},
          .heads = 2,
          .weights = {0.5f, 0.25f, 0.25f, 0.0f, 1.0f, 0.0f, 0.125f, 0.125f, 0.75f, 0.1f, 0.2f, 0.7f}};
}

TEST(Tokens, WordsHaveTheSumOfTheirKeysAndTheMeanOfTheirQueries) {
  const TokenGroups queries{{0, 0}, {"ab"}}, keys{{0, 0, 1}, {"ab", "c"}};
  const AttentionMap merged = merge_tokens(tokens_map(), queries, keys);
  EXPECT_EQ(merged.query_tokens, queries.labels);
  EXPECT_EQ(merged.key_tokens, keys.labels);
  ASSERT_EQ(merged.weights.size(), 4u);
  const float expected[] = {0.875f, 0.125f, 0.275f, 0.725f};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(merged.weights[i], expected[i], 1e-6) << i;
  const TokenGroups each{{0, 1}, {"a", "b"}}, all{{0, 1, 2}, {"a", "b", "c"}};
  EXPECT_EQ(merge_tokens(tokens_map(), each, all).weights, tokens_map().weights);
}

TEST(Tokens, GroupsAreThoseOfTheTokens) {
  const TokenGroups each{{0, 1}, {"a", "b"}}, keys{{0, 0, 1}, {"ab", "c"}};
  EXPECT_THROW(merge_tokens(tokens_map(), {{0}, {"a"}}, keys), InvalidArgument);
  EXPECT_THROW(merge_tokens(tokens_map(), {{1, 2}, {"a", "b", "c"}}, keys), InvalidArgument);
  EXPECT_THROW(merge_tokens(tokens_map(), {{0, 2}, {"a", "b", "c"}}, keys), InvalidArgument);
  EXPECT_THROW(merge_tokens(tokens_map(), each, {{0, 1, 0}, {"a", "b"}}), InvalidArgument);
  EXPECT_THROW(merge_tokens(tokens_map(), each, {{0, 0, 1}, {"ab"}}), InvalidArgument);
}

TEST(Tokens, AMapIsWrittenAsJson) {
  AttentionMap map = tokens_map();
  map.weights[1] = std::nanf("");
  map.key_tokens[2] = "\xff";
  EXPECT_EQ(to_json(map),
            "{\"name\":\"layer \\\"1\\\"\",\"layer\":0,\"heads\":2,\"queries\":[\"a\",\"b\"],"
            "\"keys\":[\"a\",\"b\",\"\xef\xbf\xbd\"],\"weights\":[[[0.5,null,0.25],[0,1,0]],"
            "[[0.125,0.125,0.75],[0.1,0.2,0.7]]]}");
  map.weights.pop_back();
  EXPECT_THROW(to_json(map), InvalidArgument);
}

}  // namespace
}  // namespace fovea::inspect
