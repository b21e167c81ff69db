#include "fovea/pictures/scene.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "fovea/core/error.h"
#include "pictures/raster.h"

namespace fovea::pictures {
namespace {

constexpr Rgb kPaper{255, 255, 255};

using inspect::not_finite_colour;
using inspect::Panel;

// A drawing with its pixels, two for each unit.
struct Picture {
  Drawing drawing;
  Raster raster;
};

Picture draw(const std::vector<Scene>& scenes, const SceneOptions& options = {}) {
  Drawing drawing = draw_scenes(scenes, options);
  Raster raster = rasterise(drawing);
  return {std::move(drawing), std::move(raster)};
}

// The colour at (x, y) of the image of scene `index`. x and y count the pixels of that image.
Rgb inside(const Picture& picture, std::size_t index, double x, double y) {
  const Panel& panel = picture.drawing.panels.at(index);
  return samples::at(picture.raster, panel.x + x * panel.cell, panel.y + y * panel.cell);
}

Scene plain(int width, int height, float grey) {
  return {.width = width,
          .height = height,
          .pixels = std::vector<float>(static_cast<std::size_t>(width * height), grey)};
}

struct Count {
  int within = 0, outside = 0;
};
// Counts the pixels of exactly this colour, those within the image of scene `index` and those outside it.
Count count(const Picture& picture, const Scene& scene, std::size_t index, Rgb colour) {
  const Panel& panel = picture.drawing.panels.at(index);
  Count found;
  for (int y = 0; y < picture.raster.height; ++y) {
    for (int x = 0; x < picture.raster.width; ++x) {
      if (!(samples::pixel(picture.raster, x, y) == colour)) continue;
      const bool within = x >= 2 * panel.x && y >= 2 * panel.y &&
                          x < 2 * (panel.x + scene.width * panel.cell) &&
                          y < 2 * (panel.y + scene.height * panel.cell);
      ++(within ? found.within : found.outside);
    }
  }
  return found;
}

TEST(Scene, PixelsKeepTheirColours) {
  Scene grey = plain(3, 2, 0.0f);
  grey.pixels = {0.0f, 0.5f, 1.0f, -4.0f, 7.0f, std::nanf("")};
  const Scene colour{.width = 2, .height = 1, .pixels = {1, 0, 0, 0.2f, 0.4f, 0.6f}};
  const Picture picture = draw({grey, colour}, {.zoom = 2.5});
  ASSERT_EQ(picture.drawing.panels.size(), 2U);
  EXPECT_EQ(inside(picture, 0, 0.5, 0.5), (Rgb{0, 0, 0}));
  EXPECT_EQ(inside(picture, 0, 1.9, 0.9), (Rgb{128, 128, 128}));
  EXPECT_EQ(inside(picture, 0, 2, 0), (Rgb{255, 255, 255}));
  EXPECT_EQ(inside(picture, 0, 0, 1), (Rgb{0, 0, 0}));
  EXPECT_EQ(inside(picture, 0, 1, 1), (Rgb{255, 255, 255}));
  EXPECT_EQ(inside(picture, 0, 2, 1), not_finite_colour);
  EXPECT_EQ(inside(picture, 1, 0, 0), (Rgb{255, 0, 0}));
  EXPECT_EQ(inside(picture, 1, 1, 0), (Rgb{51, 102, 153}));
}

TEST(Scene, AreArrangedInLines) {
  const std::vector<Scene> scenes(5, plain(40, 30, 0.0f));
  const Drawing drawing = draw_scenes(scenes, {.columns = 2});
  ASSERT_EQ(drawing.panels.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) {
    const Panel& panel = drawing.panels[i];
    EXPECT_EQ(panel.map, i);
    EXPECT_EQ(panel.cell, 3) << "120 wide";
    EXPECT_EQ(panel.x, drawing.panels[i % 2].x);
    EXPECT_EQ(panel.y, drawing.panels[i / 2 * 2].y);
    EXPECT_GE(panel.x, 0);
    EXPECT_LT(panel.x + 120, drawing.width);
    EXPECT_LT(panel.y + 90, drawing.height);
  }
  EXPECT_GE(drawing.panels[1].x, drawing.panels[0].x + 120);
  EXPECT_GE(drawing.panels[2].y, drawing.panels[0].y + 90);
}

TEST(Scene, TheLargestWeightIsOpaqueTo70Percent) {
  Scene scene = plain(4, 4, 1.0f);
  scene.rows = 2, scene.columns = 2;
  scene.weights = {0.0f, 0.1f, 0.2f, std::numeric_limits<float>::quiet_NaN()};
  const Picture picture = draw({scene}, {.zoom = 5});
  EXPECT_EQ(inside(picture, 0, 1.9, 1.9), (Rgb{255, 255, 255}));
  const Rgb half = inside(picture, 0, 2, 0), full = inside(picture, 0, 1, 3);
  EXPECT_NEAR(full.green, 77, 1) << "0.3 of the white under it";
  EXPECT_NEAR(half.green, 166, 1);
  EXPECT_NEAR(255 - half.red, (255 - full.red) / 2.0, 1);
  EXPECT_NEAR(255 - half.blue, (255 - full.blue) / 2.0, 1);
  const Rgb bad = inside(picture, 0, 3, 3);
  EXPECT_NEAR(bad.green, 0.3 * 255 + 0.7 * not_finite_colour.green, 1);
  // Weights of 0 change nothing.
  scene.weights = {0, 0, 0, 0};
  EXPECT_EQ(draw({scene}).raster.rgb, draw({plain(4, 4, 1.0f)}).raster.rgb);
}

TEST(Scene, ABoxIsAnOutline) {
  Scene scene = plain(20, 20, 0.0f);
  const Rgb colour{0, 114, 178};
  scene.boxes = {{.x = 5, .y = 8, .width = 10, .height = 4, .label = "", .colour = colour}};
  const Picture picture = draw({scene}, {.zoom = 5});
  EXPECT_EQ(inside(picture, 0, 5, 10), colour);
  EXPECT_EQ(inside(picture, 0, 14.9, 10), colour);
  EXPECT_EQ(inside(picture, 0, 10, 8), colour);
  EXPECT_EQ(inside(picture, 0, 10, 11.9), colour);
  EXPECT_EQ(inside(picture, 0, 10, 10), (Rgb{0, 0, 0}));
  EXPECT_EQ(inside(picture, 0, 4.9, 10), (Rgb{0, 0, 0}));
  EXPECT_EQ(inside(picture, 0, 10, 12), (Rgb{0, 0, 0}));
}

TEST(Scene, LabelsAndOutlinesStayInsideTheImage) {
  const Rgb colour{0, 114, 178};
  for (const double x : {-30.0, 0.0, 7.0, 35.0, 1e12}) {
    for (const double y : {-30.0, 0.0, 7.0, 35.0, 1e12}) {
      for (const char* label : {"1", "a long label that does not fit"}) {
        Scene scene = plain(40, 40, 0.0f);
        scene.boxes = {{.x = x, .y = y, .width = 10, .height = 10, .label = label, .colour = colour}};
        const Picture picture = draw({scene});
        EXPECT_GT(count(picture, scene, 0, colour).within, 100) << x << ", " << y;
        EXPECT_EQ(count(picture, scene, 0, colour).outside, 0) << x << ", " << y;
        EXPECT_GT(count(picture, scene, 0, kPaper).within, 4) << "the letters";
      }
    }
  }
}

TEST(Scene, LabelsDoNotCoverEachOther) {
  // Of four boxes at one position, each label shows as many pixels of its colour as if it were alone.
  const Rgb colours[] = {{200, 1, 1}, {1, 120, 1}, {1, 1, 200}, {120, 1, 120}};
  Scene together = plain(40, 40, 0.0f);
  for (int i = 0; i < 4; ++i)
    together.boxes.push_back(
        {.x = 15, .y = 15, .width = 0, .height = 0, .label = std::to_string(i + 1), .colour = colours[i]});
  for (int i = 0; i < 4; ++i) {
    Scene alone = plain(40, 40, 0.0f);
    alone.boxes = {together.boxes[static_cast<std::size_t>(i)]};
    EXPECT_EQ(count(draw({together}), together, 0, colours[i]).within,
              count(draw({alone}), alone, 0, colours[i]).within)
        << i;
  }
}

TEST(Scene, CaptionsAreWrapped) {
  Scene scene = plain(40, 40, 0.5f);
  const double bare = draw_scenes({scene}).height;
  scene.caption = "one line";
  const double one = draw_scenes({scene}).height, line = 17;
  EXPECT_EQ(one, bare + 4 + line);
  scene.caption = "two\nlines";
  EXPECT_EQ(draw_scenes({scene}).height, one + line);
  scene.caption = "a caption that is certainly longer than the image is wide";
  const Drawing wrapped = draw_scenes({scene});
  EXPECT_GE(wrapped.height, one + 2 * line) << "three lines at 20 letters a line";
  EXPECT_EQ(wrapped.width, draw_scenes({plain(40, 40, 0.5f)}).width);
  EXPECT_GT(draw_scenes({scene}, {.title = "Title"}).height, wrapped.height);
  // Text without spaces, in a script that has none, is broken into lines as well.
  scene.caption = "一只猫坐在垫子上一只猫坐在垫子上一只猫坐在垫子上";
  EXPECT_GE(draw_scenes({scene}).height, one + line);
}

TEST(Scene, NoScenesGiveAnEmptyDrawing) {
  EXPECT_GT(rasterise(draw_scenes({})).width, 0);
  EXPECT_TRUE(draw_scenes({}, {.title = "empty"}).panels.empty());
}

TEST(Scene, RefusesSizesThatDisagree) {
  const Scene good = plain(4, 3, 0.0f);
  EXPECT_NO_THROW(draw_scenes({good}));
  const auto refused = [&](auto&& change, const char* argument) {
    Scene bad = good;
    change(bad);
    try {
      draw_scenes({good, bad});
      ADD_FAILURE() << "accepted, " << argument;
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find(argument), std::string::npos) << error.what();
    }
  };
  refused([](Scene& s) { s.pixels.pop_back(); }, "scenes[1].pixels");
  refused([](Scene& s) { s.pixels.resize(24); }, "scenes[1].pixels");
  refused([](Scene& s) { s.width = 0, s.pixels.clear(); }, "scenes[1].width");
  refused([](Scene& s) { s.width = -4, s.height = -3; }, "scenes[1].width");
  refused([](Scene& s) { s.weights = {1, 2}; }, "scenes[1].weights");
  refused([](Scene& s) { s.rows = 2, s.columns = 2; }, "scenes[1].weights");
  refused([](Scene& s) { s.boxes = {{.x = std::nan("")}}; }, "scenes[1].boxes");
  refused([](Scene& s) { s.boxes = {{.width = -1}}; }, "scenes[1].boxes");
  EXPECT_THROW(draw_scenes({good}, {.columns = 0}), InvalidArgument);
  EXPECT_THROW(draw_scenes({good}, {.zoom = -1}), InvalidArgument);
  EXPECT_THROW(draw_scenes({good}, {.zoom = 1 << 20}), InvalidArgument);
}

}  // namespace
}  // namespace fovea::pictures
