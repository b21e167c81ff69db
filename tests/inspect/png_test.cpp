#include "fovea/inspect/png.h"

#include <gtest/gtest.h>
#include <png.h>

#include <filesystem>

#include "fovea/core/error.h"
#include "fovea/inspect/colour_map.h"
#include "inspect/samples.h"

namespace fovea::inspect {
namespace {

struct Decoded {
  int width = 0, height = 0;
  std::vector<std::uint8_t> rgb;
};

Decoded read_png(const std::string& path) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  EXPECT_NE(png_image_begin_read_from_file(&image, path.c_str()), 0) << image.message;
  image.format = PNG_FORMAT_RGB;
  Decoded decoded{static_cast<int>(image.width), static_cast<int>(image.height), {}};
  decoded.rgb.resize(PNG_IMAGE_SIZE(image));
  EXPECT_NE(png_image_finish_read(&image, nullptr, decoded.rgb.data(), 0, nullptr), 0) << image.message;
  return decoded;
}

Rgb pixel(const std::vector<std::uint8_t>& rgb, int width, int x, int y) {
  const std::size_t at =
      3 * (static_cast<std::size_t>(y) * static_cast<std::size_t>(width) + static_cast<std::size_t>(x));
  return {rgb[at], rgb[at + 1], rgb[at + 2]};
}

class Png : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              (std::string("fovea_png_") + testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const char* name) const { return (folder_ / name).string(); }

 private:
  std::filesystem::path folder_;
};

TEST_F(Png, DecodesToTheCellsColours) {
  const AlignmentMatrix alignment = samples::alignment(7, 5);
  float largest = 0;
  for (const float weight : alignment.weights) largest = std::max(largest, weight);
  const Picture picture = draw_picture(alignment);
  write_png(path("a.png"), alignment);
  const Decoded decoded = read_png(path("a.png"));
  ASSERT_EQ(decoded.width, picture.width);
  ASSERT_EQ(decoded.height, picture.height);
  EXPECT_EQ(decoded.rgb, picture.rgb);
  ASSERT_EQ(picture.panels.size(), 1U);
  const Panel& panel = picture.panels[0];
  for (int row = 0; row < 7; ++row) {
    for (int column = 0; column < 5; ++column) {
      const float weight = alignment.weights[static_cast<std::size_t>(row * 5 + column)];
      EXPECT_EQ(pixel(decoded.rgb, decoded.width, panel.x + column * panel.cell + panel.cell / 2,
                      panel.y + row * panel.cell + panel.cell / 2),
                colour_of(weight / largest, Ground::light));
    }
  }
}

TEST_F(Png, EveryHeadOfEveryMapHasItsPanelInsideThePicture) {
  InspectPage page{.title = "été ⟨unknown⟩",
                   .maps = {samples::map(8, 9, 4), samples::map(3, 1, 30), samples::map(1, 200, 300)}};
  page.maps[0].weights[5] = std::nanf("");
  const Picture picture = draw_picture(page);
  ASSERT_EQ(picture.panels.size(), 12U);
  for (const Panel& panel : picture.panels) {
    const AttentionMap& map = page.maps[panel.map];
    EXPECT_GE(panel.x, 0);
    EXPECT_GE(panel.y, 0);
    EXPECT_LE(panel.x + panel.cell * static_cast<int>(map.columns()), picture.width);
    EXPECT_LE(panel.y + panel.cell * static_cast<int>(map.rows()), picture.height);
  }
  const Panel& first = picture.panels[0];
  EXPECT_EQ(pixel(picture.rgb, picture.width, first.x + first.cell + first.cell / 2,
                  first.y + first.cell + first.cell / 2),
            not_finite_colour);
}

TEST_F(Png, EmptyMatricesAreDrawn) {
  write_png(path("e.png"), AlignmentMatrix{});
  EXPECT_GT(read_png(path("e.png")).width, 0);
  write_png(path("p.png"), InspectPage{});
  EXPECT_GT(read_png(path("p.png")).width, 0);
}

TEST_F(Png, RefusesWhatItCannotWrite) {
  EXPECT_THROW(write_png(path("missing/a.png"), samples::alignment(2, 2)), FileError);
  EXPECT_THROW(write_png("/dev/full", samples::alignment(2, 2)), FileError);
  AttentionMap wrong = samples::map(2, 3, 3);
  wrong.weights.pop_back();
  EXPECT_THROW(draw_picture(InspectPage{.maps = {wrong}}), InvalidArgument);
}

TEST(ColourMap, LightnessIsMonotone) {
  const auto luminance = [](Rgb c) { return 0.2126 * c.red + 0.7152 * c.green + 0.0722 * c.blue; };
  for (const Ground ground : {Ground::light, Ground::dark}) {
    const auto table = colour_table(ground);
    for (std::size_t i = 8; i < table.size(); i += 8) {
      if (ground == Ground::light) {
        EXPECT_LT(luminance(table[i]), luminance(table[i - 8])) << i;
      } else {
        EXPECT_GT(luminance(table[i]), luminance(table[i - 8])) << i;
      }
    }
  }
  EXPECT_EQ(colour_of(-1, Ground::light), colour_of(0, Ground::light));
  EXPECT_EQ(colour_of(2, Ground::dark), colour_of(1, Ground::dark));
  EXPECT_EQ(colour_of(std::nan(""), Ground::dark), not_finite_colour);
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

}  // namespace
}  // namespace fovea::inspect
