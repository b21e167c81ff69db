#include "fovea/pictures/graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "fovea/core/error.h"
#include "inspect/samples.h"
#include "pictures/raster.h"

namespace fovea::pictures {
namespace {

using inspect::AttentionMap;
using inspect::Path;
using inspect::PickedWord;
using inspect::Series;
using inspect::Side;

// Rows that sum to 1 in every head.
AttentionMap distribution(int heads, int rows, int columns) {
  AttentionMap map = inspect::samples::map(heads, rows, columns);
  for (std::size_t row = 0; row < static_cast<std::size_t>(heads * rows); ++row) {
    float sum = 0;
    for (int c = 0; c < columns; ++c) sum += map.weights[row * map.columns() + static_cast<std::size_t>(c)];
    for (int c = 0; c < columns; ++c) map.weights[row * map.columns() + static_cast<std::size_t>(c)] /= sum;
  }
  return map;
}

TEST(Graph, AnArcForEachWeightInTheColourOfItsHead) {
  const AttentionMap map = distribution(3, 5, 4);
  const Drawing drawing = draw_graph({map});
  const std::vector<inspect::Arc> arcs = arcs_of(map, {}, nullptr);
  const std::vector<Path> paths = samples::items_of<Path>(drawing);
  ASSERT_EQ(paths.size(), arcs.size());
  ASSERT_GT(paths.size(), 30U);
  for (std::size_t i = 0; i < paths.size(); ++i) {
    EXPECT_EQ(std::get<Series>(paths[i].stroke.colour).index, arcs[i].head);
    if (i > 0) {
      EXPECT_GE(paths[i].width, paths[i - 1].width) << "the strong ones lie on top";
    }
    // Both ends are at their words: lines are as far apart as rows and columns.
    const double begin = paths[i].steps.at(0).to.y, end = paths[i].steps.at(1).to.y;
    EXPECT_NEAR(begin - end,
                24.0 * (static_cast<double>(arcs[i].query) - (static_cast<double>(arcs[i].key) + 0.5)), 1e-9);
  }
}

TEST(Graph, WidthGrowsWithTheWeight) {
  AttentionMap map = inspect::samples::map(1, 1, 3);
  map.weights = {0.9F, 0.3F, 0.01F};
  const std::vector<Path> paths = samples::items_of<Path>(draw_graph({map}));
  ASSERT_EQ(paths.size(), 2U) << "a hundredth is not drawn";
  EXPECT_NEAR(paths[1].width - paths[0].width, 7.6 * 0.6, 1e-5);
}

TEST(Graph, APickedWordShowsOnlyItsOwnArcs) {
  const AttentionMap map = distribution(2, 6, 6);
  for (const Side side : {Side::query, Side::key}) {
    const PickedWord word{side, 2};
    const Drawing drawing = draw_graph({map}, {.words = {word}});
    const std::vector<inspect::Arc> arcs = arcs_of(map, {}, &word);
    EXPECT_EQ(samples::items_of<Path>(drawing).size(), arcs.size());
    for (const inspect::Arc& arc : arcs) EXPECT_EQ(side == Side::query ? arc.query : arc.key, 2U);
    // The background of each word of the other side is the colour of its mean weight.
    const std::vector<float> shares = shares_of(map, {}, word);
    std::vector<double> grounds;
    for (const auto& rectangle : samples::items_of<inspect::Rectangle>(drawing)) {
      if (const auto* ramp = std::get_if<inspect::OnRamp>(&rectangle.fill.colour))
        grounds.push_back(ramp->position);
    }
    ASSERT_EQ(grounds.size(), 6U);
    for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(grounds[i], (shares[i] + shares[6 + i]) / 2, 1e-6);
  }
}

TEST(Graph, PanelsAndHeadsFollowTheOptions) {
  const AttentionMap map = distribution(8, 6, 6);
  const std::vector<PickedWord> words{
      {Side::query, 0}, {Side::query, 3}, {Side::key, 1, 2}, {Side::query, 5}};
  const Drawing drawing = draw_graph({map, map}, {.title = "t", .heads = {1, 6}, .words = words});
  ASSERT_EQ(drawing.panels.size(), 8U);
  for (const Path& path : samples::items_of<Path>(drawing)) {
    const int head = std::get<Series>(path.stroke.colour).index;
    EXPECT_TRUE(head == 1 || head == 6) << head;
    for (const inspect::Step& step : path.steps) {
      EXPECT_GT(step.to.x, 0);
      EXPECT_LT(step.to.x, drawing.width);
      EXPECT_LT(step.to.y, drawing.height);
    }
  }
  const std::vector<std::string> texts = samples::texts_of(drawing);
  EXPECT_EQ(std::count(texts.begin(), texts.end(), "head 7"), 2);
  EXPECT_EQ(std::count(texts.begin(), texts.end(), "head 1"), 0);
  EXPECT_EQ(std::count(texts.begin(), texts.end(), "what “q3” attends to"), 2);
  EXPECT_EQ(std::count(texts.begin(), texts.end(), "what attends to “k1k2”"), 2);
  EXPECT_LT(drawing.width, 1200) << "panels go on in a new line";
}

TEST(Graph, LongInputsAndOddWeightsAreDrawn) {
  AttentionMap map = distribution(4, 300, 512);
  for (float& weight : map.weights) weight *= 100;  // all strong enough to be drawn
  EXPECT_EQ(samples::items_of<Path>(draw_graph({map})).size(), 4000U);
  AttentionMap odd = inspect::samples::map(2, 2, 2);
  odd.weights = {std::nanf(""), std::numeric_limits<float>::infinity(), -1, 0, 0.5F, 0.5F, 7, 1};
  EXPECT_GT(rasterise(draw_graph({odd}, {.words = {{Side::query, 0}}})).width, 0);
  EXPECT_GT(rasterise(draw_graph({inspect::samples::map(1, 0, 0)})).width, 0);
}

TEST(Graph, RefusesUnknownWordsAndHeads) {
  const AttentionMap map = distribution(2, 3, 4);
  EXPECT_THROW(draw_graph({}), InvalidArgument);
  EXPECT_THROW(draw_graph({map}, {.heads = {2}}), InvalidArgument);
  EXPECT_THROW(draw_graph({map}, {.heads = {-1}}), InvalidArgument);
  EXPECT_THROW(draw_graph({map}, {.words = {{Side::query, 3}}}), InvalidArgument);
  EXPECT_THROW(draw_graph({map}, {.words = {{Side::key, 3, 2}}}), InvalidArgument);
  EXPECT_NO_THROW(draw_graph({map}, {.words = {{Side::key, 3}}}));
  AttentionMap wrong = map;
  wrong.weights.pop_back();
  EXPECT_THROW(draw_graph({wrong}), InvalidArgument);
}

}  // namespace
}  // namespace fovea::pictures
