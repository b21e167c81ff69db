#include "fovea/inspect/drawing_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "fovea/core/error.h"
#include "fovea/files/bytes.h"

namespace fovea::inspect {
namespace {

class DrawingFile : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  Drawing loaded(const std::string& text) {
    files::write_file(path_, text);
    return load_drawing(path_);
  }
  std::string saved(const Drawing& drawing) {
    save_drawing(path_, drawing);
    return files::read_file(path_, 1 << 20);
  }
  std::filesystem::path path_ = std::filesystem::path(testing::TempDir()) /
                                (std::string("fovea_drawing_") +
                                 testing::UnitTest::GetInstance()->current_test_info()->name() + ".json");
};

// A drawing in which every member of every item has a value of its own.
Drawing everything() {
  Drawing drawing{.width = 300.5, .height = 40, .title = "a \"title\", 猫"};
  drawing.items = {
      Rectangle{1, 2, 3, 4, {Tone::accent, 0.25}, 5, "note"},
      Path{{{.kind = Step::Kind::move, .to = {1, 2}},
            {.kind = Step::Kind::line, .to = {3, 4}},
            {.kind = Step::Kind::curve, .to = {5, 6}, .first = {7, 8}, .second = {9, 10}}},
           {Series{3}},
           2.5},
      Text{
          1, 2, "القطة", 9, {TextOnRamp{0.75}}, Anchor::end, Direction::up, Weight::bold, 77, Overflow::wrap},
      Grid{1, 2, 3, 0.5, 1, 3, {0.5F, std::nanf(""), 1}},
      Image{1, 2, 3, 4, 1, 2, {{0, 128, 255}, {1, 2, 3}}},
      Rectangle{.fill = {OnRamp{0.125}}},
      Rectangle{.fill = {Rgb{9, 8, 7}}}};
  return drawing;
}

TEST_F(DrawingFile, EveryMemberComesBack) {
  const std::string text = saved(everything());
  const Drawing back = loaded(text);
  EXPECT_EQ(back.width, 300.5);
  EXPECT_EQ(back.title, "a \"title\", 猫");
  const auto& rectangle = std::get<Rectangle>(back.items.at(0));
  EXPECT_EQ(rectangle.height, 4);
  EXPECT_EQ(rectangle.radius, 5);
  EXPECT_EQ(rectangle.note, "note");
  EXPECT_EQ(std::get<Tone>(rectangle.fill.colour), Tone::accent);
  EXPECT_EQ(rectangle.fill.opacity, 0.25);
  const auto& path = std::get<Path>(back.items.at(1));
  EXPECT_EQ(path.steps.at(2).second.y, 10);
  EXPECT_EQ(path.steps.at(0).kind, Step::Kind::move);
  EXPECT_EQ(std::get<Series>(path.stroke.colour).index, 3);
  EXPECT_EQ(path.width, 2.5);
  const auto& words = std::get<Text>(back.items.at(2));
  EXPECT_EQ(words.text, "القطة");
  EXPECT_EQ(words.y, 2);
  EXPECT_EQ(words.overflow, Overflow::wrap);
  EXPECT_EQ(words.limit, 77);
  const auto& grid = std::get<Grid>(back.items.at(3));
  EXPECT_EQ(grid.positions.at(0), 0.5F);
  EXPECT_TRUE(std::isnan(grid.positions.at(1)));
  EXPECT_EQ(std::get<Image>(back.items.at(4)).pixels.at(1), (Rgb{1, 2, 3}));
  EXPECT_EQ(std::get<OnRamp>(std::get<Rectangle>(back.items.at(5)).fill.colour).position, 0.125);
  EXPECT_EQ(std::get<Rgb>(std::get<Rectangle>(back.items.at(6)).fill.colour), (Rgb{9, 8, 7}));
  EXPECT_EQ(saved(back), text) << "and what is not named above";
}

TEST_F(DrawingFile, IllFormedTextBecomesValid) {
  Drawing drawing{.width = 1, .height = 1, .title = "\xff"};
  EXPECT_EQ(loaded(saved(drawing)).title, "\ufffd");
}

TEST_F(DrawingFile, WhatIsNoDrawingIsRefused) {
  const std::string whole = saved(everything());
  for (const auto& [from, to] :
       std::initializer_list<std::pair<const char*, const char*>>{{"\"items\"", "\"item\""},
                                                                  {"[\"tone\",4", "[\"tone\",5"},
                                                                  {"[\"tone\",4", "[\"hue\",4"},
                                                                  {"\"rows\":1", "\"rows\":2"},
                                                                  {"\"rows\":1", "\"rows\":-1"},
                                                                  {"\"rows\":1", "\"rows\":1e300"},
                                                                  {"\"rows\":1", "\"rows\":1.0"},
                                                                  {"0080ff", "0080f"},
                                                                  {"0080ff", "0080fg"},
                                                                  {"\"anchor\":2", "\"anchor\":3"},
                                                                  {"\"width\":2.5", "\"width\":\"2.5\""},
                                                                  {"]}\n", "]"}}) {
    std::string text = whole;
    ASSERT_NE(text.find(from), std::string::npos) << from;
    text.replace(text.find(from), std::string(from).size(), to);
    EXPECT_THROW(loaded(text), FileError) << to;
  }
  std::filesystem::remove(path_);
  EXPECT_THROW(load_drawing(path_), FileError);
}

}  // namespace
}  // namespace fovea::inspect
