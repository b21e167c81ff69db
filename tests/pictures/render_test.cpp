#include "fovea/pictures/render.h"

#include <cairo.h>
#include <gtest/gtest.h>
#include <pango/pangocairo.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "fovea/core/error.h"
#include "fovea/pictures/chart.h"
#include "fovea/pictures/graph.h"
#include "fovea/pictures/maps.h"
#include "inspect/samples.h"
#include "inspect/unicode.h"
#include "pictures/raster.h"
#include "pictures/text.h"

namespace fovea::pictures {
namespace {

using inspect::Text;

class Files : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              (std::string("fovea_render_") + testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const char* name) const { return (folder_ / name).string(); }
  static std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::filesystem::path folder_;
};

inspect::InspectPage sentence() {
  inspect::InspectPage page{.title = "The cat", .maps = {inspect::samples::map(4, 6, 6)}};
  page.maps[0].query_tokens = page.maps[0].key_tokens = {"The", "cat", "sat", "on", "the", "mat"};
  return page;
}

Drawing one_text(const std::string& text) {
  Drawing drawing{.width = 300, .height = 40};
  drawing.items.push_back(Text{.x = 10, .y = 28, .text = text, .size = 20, .paint = {}});
  return drawing;
}

struct Reader {
  const std::string* bytes;
  std::size_t at = 0;
};
cairo_status_t read_some(void* from, unsigned char* to, unsigned int count) {
  auto* reader = static_cast<Reader*>(from);
  if (reader->bytes->size() - reader->at < count) return CAIRO_STATUS_READ_ERROR;
  std::memcpy(to, reader->bytes->data() + reader->at, count);
  reader->at += count;
  return CAIRO_STATUS_SUCCESS;
}

TEST(Render, APngDecodesToTheRaster) {
  for (const Theme theme : {Theme::light, Theme::dark}) {
    for (const double scale : {0.5, 1.0, 2.0}) {
      const Drawing drawing = draw_picture(sentence());
      const Raster raster = rasterise(drawing, {.theme = theme, .scale = scale});
      EXPECT_EQ(raster.width, static_cast<int>(drawing.width * scale));
      EXPECT_EQ(raster.height, static_cast<int>(drawing.height * scale));
      EXPECT_EQ(samples::pixel(raster, 1, 1), inspect::colour_of({inspect::Tone::paper}, theme));
      const std::string bytes = render(drawing, Format::png, {.theme = theme, .scale = scale}).bytes;
      Reader reader{&bytes};
      cairo_surface_t* surface = cairo_image_surface_create_from_png_stream(read_some, &reader);
      ASSERT_EQ(cairo_surface_status(surface), CAIRO_STATUS_SUCCESS);
      ASSERT_EQ(cairo_image_surface_get_width(surface), raster.width);
      ASSERT_EQ(cairo_image_surface_get_height(surface), raster.height);
      const unsigned char* pixels = cairo_image_surface_get_data(surface);
      long differ = 0;
      for (int y = 0; y < raster.height; ++y) {
        for (int x = 0; x < raster.width; ++x) {
          std::uint32_t value = 0;
          std::memcpy(&value, pixels + y * cairo_image_surface_get_stride(surface) + 4 * x, 4);
          const inspect::Rgb colour = samples::pixel(raster, x, y);
          differ += (value & 0xFFFFFFU) != (static_cast<std::uint32_t>(colour.red) << 16 |
                                            static_cast<std::uint32_t>(colour.green) << 8 | colour.blue);
        }
      }
      EXPECT_EQ(differ, 0);
      cairo_surface_destroy(surface);
    }
  }
}

TEST(Render, EveryFormatIsTheSameBytesEachTime) {
  const std::vector<Drawing> drawings = {draw_picture(sentence()), draw_graph(sentence().maps),
                                         draw_picture(inspect::samples::alignment(200, 200))};
  for (const Drawing& drawing : drawings) {
    for (const Format format : {Format::png, Format::svg, Format::pdf}) {
      for (const Theme theme : {Theme::light, Theme::dark})
        EXPECT_EQ(render(drawing, format, {.theme = theme}).bytes,
                  render(drawing, format, {.theme = theme}).bytes);
      EXPECT_NE(render(drawing, format).bytes, render(drawing, format, {.theme = Theme::dark}).bytes);
    }
  }
}

// Glib's parser takes well-formed XML only.
void expect_well_formed(const std::string& svg) {
  const GMarkupParser nothing{};
  GError* error = nullptr;
  GMarkupParseContext* context = g_markup_parse_context_new(&nothing, GMarkupParseFlags(0), nullptr, nullptr);
  EXPECT_TRUE(g_markup_parse_context_parse(context, svg.data(), static_cast<gssize>(svg.size()), &error) &&
              g_markup_parse_context_end_parse(context, &error))
      << (error ? error->message : "");
  if (error != nullptr) g_error_free(error);
  g_markup_parse_context_free(context);
}

TEST(Render, AnSvgHasTheTextAsShapesAndInItsDescription) {
  const Drawing drawing = draw_picture(sentence());
  const std::string svg = render(drawing, Format::svg).bytes;
  expect_well_formed(svg);
  EXPECT_NE(svg.find("width=\"" + std::to_string(static_cast<int>(drawing.width)) + "px\""),
            std::string::npos);
  EXPECT_EQ(svg.find("<text"), std::string::npos) << "would need the fonts";
  EXPECT_NE(svg.find("<title>The cat</title>"), std::string::npos);
  const std::string said = svg.substr(svg.find("<desc>"), svg.find("</desc>") - svg.find("<desc>"));
  for (const std::string& text : samples::texts_of(drawing))
    EXPECT_NE(said.find(text), std::string::npos) << text;
}

TEST(Render, HostileTextStaysText) {
  inspect::InspectPage page = sentence();
  page.title = "</title><script>alert(1)</script>";
  page.maps[0] = inspect::samples::map(2, static_cast<int>(inspect::samples::hostile.size()), 1);
  page.maps[0].query_tokens = inspect::samples::hostile;
  for (const Drawing& drawing : {draw_picture(page), draw_graph(page.maps)}) {
    const std::string svg = render(drawing, Format::svg).bytes;
    expect_well_formed(svg);
    EXPECT_EQ(svg.find("<script"), std::string::npos);
    EXPECT_EQ(svg.find("<img"), std::string::npos);
    EXPECT_EQ(inspect::valid_utf8(svg), svg);
    EXPECT_EQ(svg.find('\x1b'), std::string::npos);
    EXPECT_TRUE(render(drawing, Format::pdf).bytes.starts_with("%PDF"));
  }
}

TEST_F(Files, TheTextOfAPdfCanBeRead) {
  write(path("a.pdf"), draw_picture(sentence()));
  const std::string pdf = read(path("a.pdf"));
  EXPECT_TRUE(pdf.starts_with("%PDF-"));
  EXPECT_NE(pdf.find("%%EOF"), std::string::npos);
  if (std::system("command -v pdftotext >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "pdftotext (poppler-utils) is not installed: the words were not read back";
  ASSERT_EQ(std::system(("pdftotext '" + path("a.pdf") + "' '" + path("a.txt") + "'").c_str()), 0);
  const std::string text = read(path("a.txt"));
  ASSERT_EQ(std::system(("pdfinfo '" + path("a.pdf") + "' >'" + path("info.txt") + "'").c_str()), 0);
  const std::string info = read(path("info.txt"));
  EXPECT_NE(info.find(" 2000"), std::string::npos) << "a time stamp:\n" << info;
  EXPECT_NE(info.find("The cat"), std::string::npos);
  for (const char* word : {"The cat", "head 4", "sat", "mat", "decoder.cross layer 1"})
    EXPECT_NE(text.find(word), std::string::npos) << word << " in\n" << text;
}

TEST_F(Files, TheSuffixDecidesTheFormat) {
  const Drawing drawing = one_text("a");
  for (const auto& [name, begin] :
       {std::pair("a.png", "\x89PNG"), std::pair("b.SVG", "<?xml"), std::pair("c.c.pdf", "%PDF")}) {
    EXPECT_TRUE(write(path(name), drawing).empty());
    EXPECT_TRUE(read(path(name)).starts_with(begin)) << name;
  }
  for (const char* name : {"a.jpg", "png", ".d/png", "a.png/b", ""}) {
    try {
      write(path(name), drawing);
      ADD_FAILURE() << name;
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find(".png, .svg or .pdf"), std::string::npos);
    }
  }
  EXPECT_THROW(write(path("missing/a.png"), drawing), FileError);
  std::filesystem::create_symlink("/dev/full", path("full.png"));
  EXPECT_THROW(write(path("full.png"), drawing), FileError);
}

// The columns' names of a matrix run upward. A Chinese character among them stays upright and in its place:
// the one stroke of U+4E00 is wide, not high, and lies between the line's beginning and its end.
TEST(Render, ChineseStaysUprightInALineThatRunsUpward) {
  Drawing drawing{.width = 60, .height = 100};
  drawing.items.push_back(
      Text{.x = 40, .y = 80, .text = "\u4e00", .size = 20, .paint = {}, .direction = inspect::Direction::up});
  if (!render(drawing, Format::png).uncovered.empty()) GTEST_SKIP() << "no font has the character";
  const Raster raster = rasterise(drawing, {.scale = 1});
  int left = raster.width, right = -1, top = raster.height, bottom = -1;
  for (int y = 0; y < raster.height; ++y) {
    for (int x = 0; x < raster.width; ++x) {
      if (raster.rgb[static_cast<std::size_t>(3 * (y * raster.width + x))] > 200) continue;
      left = std::min(left, x);
      right = std::max(right, x);
      top = std::min(top, y);
      bottom = std::max(bottom, y);
    }
  }
  EXPECT_GT(right - left, 4 * (bottom - top));
  EXPECT_GE(top, 58);
  EXPECT_LE(bottom, 80);
}

TEST(Render, RefusesImpossibleSizes) {
  const Drawing wide{.width = 40000, .height = 100};
  const Raster raster = rasterise(wide);
  EXPECT_LE(raster.width, 32767);
  EXPECT_GT(raster.width, 32000);
  EXPECT_GT(raster.height, 70);
  EXPECT_TRUE(render(wide, Format::pdf).bytes.starts_with("%PDF"));
  for (const Drawing& bad : {Drawing{}, Drawing{.width = 10}, Drawing{.width = std::nan(""), .height = 1},
                             Drawing{.width = 1e9, .height = 1}, Drawing{.width = -5, .height = 5}}) {
    for (const Format format : {Format::png, Format::svg, Format::pdf})
      EXPECT_THROW(render(bad, format), InvalidArgument);
    EXPECT_THROW(rasterise(bad), InvalidArgument);
  }
  EXPECT_THROW(rasterise(Drawing{.width = 9e6, .height = 10}), InvalidArgument);
  EXPECT_THROW(rasterise(one_text("a"), {.scale = 0}), InvalidArgument);
  EXPECT_THROW(rasterise(one_text("a"), {.scale = std::nan("")}), InvalidArgument);
}

TEST(Render, RefusesItemsThatCannotBeDrawn) {
  const double nan = std::nan("");
  const auto text = [](double size, double x = 0) {
    return Text{.x = x, .y = 20, .text = "a", .size = size, .paint = {}};
  };
  const auto drawing = [](const inspect::Item& item) {
    Drawing one{.width = 50, .height = 50};
    one.items = {inspect::Rectangle{}, item};
    return one;
  };
  const std::vector<inspect::Item> bad{
      text(nan),
      text(0),
      text(-1),
      text(1e6),
      text(13, nan),
      inspect::Grid{.rows = 2, .columns = 2, .positions = {0, 1, 0}},
      inspect::Grid{.gap = 0.1, .rows = 2, .columns = 2, .positions = {}},
      inspect::Grid{.rows = -1, .columns = -1, .positions = {0}},
      inspect::Grid{.cell = nan, .rows = 1, .columns = 1, .positions = {0}},
      inspect::Image{.width = 4, .height = 4, .rows = 2, .columns = 2, .pixels = {{}, {}}},
      inspect::Image{.width = 4, .height = 4, .rows = -2, .columns = 2, .pixels = {}},
      inspect::Image{.width = 1e300, .height = 4, .rows = 1, .columns = 1, .pixels = {{}}},
      inspect::Image{.width = 0, .height = 4, .rows = 1, .columns = 1, .pixels = {{}}},
      inspect::Grid{.cell = 0, .rows = 1, .columns = 1, .positions = {0}},
      inspect::Rectangle{.x = nan, .width = 4, .height = 4, .fill = {}},
      inspect::Rectangle{.width = 4, .height = 1e300, .fill = {}},
      inspect::Rectangle{.width = 4, .height = 4, .fill = {inspect::Series{-1}}},
      inspect::Rectangle{.width = 4, .height = 4, .fill = {inspect::Tone::ink, nan}},
      inspect::Path{.steps = {{.to = {1, nan}}}, .stroke = {}},
      inspect::Path{.steps = {{.to = {1, 1}}}, .stroke = {}, .width = nan}};
  for (std::size_t n = 0; n < bad.size(); ++n) {
    for (const Format format : {Format::png, Format::svg, Format::pdf}) {
      try {
        render(drawing(bad[n]), format);
        ADD_FAILURE() << "drawn: " << n;
      } catch (const InvalidArgument& error) {
        EXPECT_EQ(error.argument(), "drawing.items[1]") << n;
      }
    }
    EXPECT_THROW(rasterise(drawing(bad[n])), InvalidArgument) << n;
  }
  Text wide = text(13);
  wide.limit = 1e300;
  EXPECT_NO_THROW(rasterise(drawing(wide)));
}

TEST(Shaping, ACharacterWithoutAFontIsReportedOnce) {
  const Rendered rendered =
      render(one_text("a" + samples::kNoFontHasIt + samples::kNoFontHasIt), Format::svg);
  EXPECT_EQ(rendered.uncovered, Uncovered{samples::kNoFontHasIt});
}

// The width reserved for a label is the width that it takes, in every format.
TEST(Shaping, TextIsAsWideAsItIsMeasured) {
  if (!samples::covered("Wij ágy")) GTEST_SKIP() << "no font with Latin letters (fonts-dejavu-core)";
  for (const char* text : {"Wij ágy", "illness", "WWWW"}) {
    for (const double size : {11.0, 20.0}) {
      Drawing drawing = one_text(text);
      std::get<Text>(drawing.items[0]).size = size;
      const Raster raster = rasterise(drawing);
      int first = raster.width, last = 0;
      for (int y = 0; y < raster.height; ++y) {
        for (int x = 0; x < raster.width; ++x) {
          if (samples::pixel(raster, x, y) == inspect::Rgb{255, 255, 255}) continue;
          first = std::min(first, x);
          last = std::max(last, x);
        }
      }
      // Letters have empty space of up to a tenth of their size on either side.
      EXPECT_NEAR((last - first) / 2.0, text_width(text, size), 0.25 * size) << text << " at " << size;
      EXPECT_NEAR(first / 2.0, 10, 0.15 * size);
    }
  }
}

TEST(Shaping, AccentsAreComposed) {
  if (!samples::covered("éÀ")) GTEST_SKIP() << "no font with accents (fonts-dejavu-core)";
  EXPECT_EQ(rasterise(one_text("\u00e9 \u00c0")).rgb, rasterise(one_text("e\u0301 A\u0300")).rgb);
  EXPECT_NE(rasterise(one_text("\u00e9")).rgb, rasterise(one_text("e")).rgb);
}

TEST(Shaping, ArabicLettersJoin) {
  const std::string word = "سلام";
  if (!samples::covered(word)) GTEST_SKIP() << "no font with Arabic letters (fonts-dejavu-core)";
  double apart = 0;
  for (const char* letter : {"س", "ل", "ا", "م"}) apart += text_width(letter, 20);
  EXPECT_LT(text_width(word, 20), 0.85 * apart);
}

TEST(Shaping, EmojiJoin) {
  const std::string one = "👩", family = "👩\u200d👩\u200d👧";
  if (!samples::covered(one)) GTEST_SKIP() << "no font with emoji (fonts-noto-color-emoji)";
  EXPECT_LT(text_width(family, 20), 1.5 * text_width(one, 20));
}

TEST(Shaping, HanHasItsOwnShapes) {
  if (!samples::covered("猫垫"))
    GTEST_SKIP() << "no font with Han characters (fonts-wqy-microhei or fonts-noto-cjk)";
  EXPECT_NE(rasterise(one_text("猫")).rgb, rasterise(one_text("垫")).rgb);
}

// A right-to-left override in one word must not change the order of the text around it.
TEST(Shaping, ControlsCannotReorder) {
  const auto width = [](const std::string& text) { return text_width(text, 20); };
  EXPECT_EQ(rasterise(one_text("\u202eab")).rgb, rasterise(one_text("\ufffdab")).rgb);
  EXPECT_GT(width(""), 0) << "an empty token is seen";
}

TEST(Shaping, LongTextEndsInAnEllipsisWithinItsLimit) {
  Drawing drawing = one_text(std::string(200, 'W'));
  std::get<Text>(drawing.items[0]).limit = 100;
  const Raster raster = rasterise(drawing);
  for (int y = 0; y < raster.height; ++y) {
    for (int x = 2 * 112; x < raster.width; ++x)
      ASSERT_EQ(samples::pixel(raster, x, y), (inspect::Rgb{255, 255, 255}));
  }
}

TEST(Chart, EqualsThePagesChartUnderItsTitle) {
  const inspect::LineChart line{.title = "loss",
                                .x_label = "updates",
                                .y_label = "nats",
                                .curves = {{"one", {{0, 3}, {1, 2}, {2, 1}}}, {"two", {{0, 1}, {2, 0.5}}}}};
  const inspect::BarChart bars{.title = "BLEU",
                               .x_label = "words",
                               .y_label = "BLEU",
                               .buckets = {"short", "long"},
                               .series = {{"a", {1, 2}}}};
  for (const Drawing& drawing : {draw_chart(line), draw_chart(bars)}) {
    const std::vector<std::string> texts = samples::texts_of(drawing);
    EXPECT_EQ(texts.at(0), drawing.title);
    for (const Theme theme : {Theme::light, Theme::dark}) {
      EXPECT_GT(samples::count(rasterise(drawing, {.theme = theme}), inspect::series_colour(0, theme)), 50);
    }
  }
  const std::vector<std::string> texts = samples::texts_of(draw_chart(line));
  for (const char* text : {"updates", "nats", "one", "two"})
    EXPECT_EQ(std::count(texts.begin(), texts.end(), text), 1) << text;
  // An axis of logarithms is labelled with values, and what has none is left out. It ends at the highest
  // point where the next power is far above.
  inspect::LineChart scaled{
      .title = "time",
      .x_label = "tokens",
      .y_label = "ms",
      .curves = {{"one", {{1024, 3}, {4096, 70}, {16384, 2000}}}, {"none", {{2048, 0}}}},
      .x_scale = inspect::Scale::log2,
      .y_scale = inspect::Scale::log10};
  const std::vector<std::string> values = samples::texts_of(draw_chart(scaled));
  for (const char* text : {"1024", "4096", "16384", "1", "10", "100", "1000", "one"})
    EXPECT_EQ(std::count(values.begin(), values.end(), text), 1) << text;
  for (const char* text : {"10000", "none"})
    EXPECT_EQ(std::count(values.begin(), values.end(), text), 0) << text;
  inspect::BarChart bad = bars;
  bad.series[0].values.pop_back();
  try {
    draw_chart(bad);
    ADD_FAILURE();
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.function(), "draw_chart");
  }
}

}  // namespace
}  // namespace fovea::pictures
