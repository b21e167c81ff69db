#include "fovea/pictures/maps.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "fovea/core/error.h"
#include "fovea/pictures/render.h"
#include "inspect/samples.h"
#include "pictures/raster.h"

namespace fovea::pictures {
namespace {

namespace maps = inspect::samples;
using inspect::AlignmentMatrix;
using inspect::AttentionMap;
using inspect::InspectPage;
using inspect::Panel;

TEST(Maps, CellsHaveTheColourOfTheirWeightInBothThemes) {
  const AlignmentMatrix alignment = maps::alignment(7, 5);
  const float largest = *std::max_element(alignment.weights.begin(), alignment.weights.end());
  const Drawing drawing = draw_picture(alignment);
  ASSERT_EQ(drawing.panels.size(), 1U);
  const Panel& panel = drawing.panels[0];
  for (const Theme theme : {Theme::light, Theme::dark}) {
    const Raster raster = rasterise(drawing, {.theme = theme});
    for (int row = 0; row < 7; ++row) {
      for (int column = 0; column < 5; ++column) {
        const float weight = alignment.weights[static_cast<std::size_t>(row * 5 + column)];
        EXPECT_EQ(
            samples::at(raster, panel.x + (column + 0.5) * panel.cell, panel.y + (row + 0.5) * panel.cell),
            inspect::colour_of(weight / largest, theme));
      }
    }
  }
}

// Small cells are drawn as one image, by other code than large cells.
TEST(Maps, CellsOfALongInputHaveTheirColours) {
  const AlignmentMatrix alignment = maps::alignment(300, 512);
  const float largest = *std::max_element(alignment.weights.begin(), alignment.weights.end());
  const Drawing drawing = draw_picture(alignment);
  const Panel& panel = drawing.panels.at(0);
  ASSERT_LT(panel.cell, 4);
  const Raster raster = rasterise(drawing);
  for (int row = 0; row < 300; row += 7) {
    for (int column = 0; column < 512; column += 7) {
      const float weight = alignment.weights[static_cast<std::size_t>(row * 512 + column)];
      ASSERT_EQ(
          samples::at(raster, panel.x + (column + 0.5) * panel.cell, panel.y + (row + 0.5) * panel.cell),
          inspect::colour_of(weight / largest, Theme::light))
          << row << ", " << column;
    }
  }
}

TEST(Maps, EveryHeadOfEveryMapHasItsPanelInsideThePicture) {
  InspectPage page{.title = "été ⟨unknown⟩",
                   .maps = {maps::map(8, 9, 4), maps::map(3, 1, 30), maps::map(1, 200, 300)}};
  page.maps[0].weights[5] = std::nanf("");
  const Drawing drawing = draw_picture(page);
  ASSERT_EQ(drawing.panels.size(), 12U);
  for (const Panel& panel : drawing.panels) {
    const AttentionMap& map = page.maps[panel.map];
    EXPECT_GE(panel.x, 0);
    EXPECT_GE(panel.y, 0);
    EXPECT_LE(panel.x + panel.cell * static_cast<double>(map.columns()), drawing.width);
    EXPECT_LE(panel.y + panel.cell * static_cast<double>(map.rows()), drawing.height);
  }
  const Panel& first = drawing.panels[0];
  EXPECT_EQ(samples::at(rasterise(drawing), first.x + 1.5 * first.cell, first.y + 1.5 * first.cell),
            inspect::not_finite_colour);
}

// A coloured pixel on the border would be a label that was cut off.
TEST(Maps, LabelsStayInsideThePicture) {
  InspectPage page{.title = std::string(200, 'W'), .maps = {maps::map(2, 3, 3), maps::map(1, 3, 3)}};
  for (AttentionMap& map : page.maps) {
    map.name = std::string(300, 'M');
    map.query_tokens = {std::string(100, 'W'), "a",
                        "語語語語語語語語語語語語語語語語語語語語語語語語語語語語語語"};
    map.key_tokens = {std::string(100, 'W'), "ÀÉ", "بببببببببببببببببببببببببببببببببببببببببببببببببببببب"};
  }
  const Raster raster = rasterise(draw_picture(page));
  const inspect::Rgb paper{255, 255, 255};
  for (int x = 0; x < raster.width; ++x) {
    for (const int y : {0, 4, raster.height - 5, raster.height - 1})
      ASSERT_EQ(samples::pixel(raster, x, y), paper) << x << ", " << y;
  }
  for (int y = 0; y < raster.height; ++y) {
    for (const int x : {0, 4, raster.width - 5, raster.width - 1})
      ASSERT_EQ(samples::pixel(raster, x, y), paper) << x << ", " << y;
  }
}

TEST(Maps, EmptyMatricesAreDrawn) {
  EXPECT_GT(rasterise(draw_picture(AlignmentMatrix{})).width, 0);
  EXPECT_GT(rasterise(draw_picture(InspectPage{})).width, 0);
}

TEST(Maps, RefusesSizesThatDisagree) {
  AttentionMap wrong = maps::map(2, 3, 3);
  wrong.weights.pop_back();
  EXPECT_THROW(draw_picture(InspectPage{.maps = {wrong}}), InvalidArgument);
  AlignmentMatrix short_one = maps::alignment(2, 2);
  short_one.weights.pop_back();
  EXPECT_THROW(draw_picture(short_one), InvalidArgument);
}

}  // namespace
}  // namespace fovea::pictures
