#include "fovea/inspect/html.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <regex>

#include "fovea/core/error.h"
#include "fovea/inspect/report.h"
#include "inspect/charts.h"
#include "inspect/samples.h"
#include "inspect/unicode.h"

namespace fovea::inspect {
namespace {

using nlohmann::json;

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size()))
    ++found;
  return found;
}

std::string embedded(const std::string& page) {
  const std::string open = "id=\"fovea-data\">";
  const std::size_t from = page.find(open) + open.size();
  return page.substr(from, page.find("</script>", from) - from);
}

std::vector<std::uint8_t> from_base64(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<std::uint8_t> bytes;
  std::uint32_t bits = 0;
  int held = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<std::uint32_t>(digits.find(c));
    held += 6;
    if (held >= 8) bytes.push_back(static_cast<std::uint8_t>(bits >> (held -= 8)));
  }
  return bytes;
}

// The weights that the page's script decodes, by the format that html.h and page.h state.
std::vector<double> weights_of(const json& map) {
  const std::vector<std::uint8_t> bytes = from_base64(map["weights"]);
  const int bits = map["bits"];
  const std::uint32_t top = (1U << bits) - 1;
  std::vector<double> weights;
  for (std::size_t i = 0; i < bytes.size(); i += static_cast<std::size_t>(bits / 8)) {
    const std::uint32_t code =
        bits == 8 ? bytes[i] : bytes[i] | static_cast<std::uint32_t>(bytes[i + 1]) << 8;
    weights.push_back(code == top       ? std::nan("")
                      : code == top - 1 ? std::numeric_limits<double>::infinity()
                      : code == top - 2 ? -std::numeric_limits<double>::infinity()
                                        : map["low"].get<double>() + code * map["step"].get<double>());
  }
  return weights;
}

TEST(Html, WeightsAreDecodedWithinHalfAStep) {
  InspectPage page{.title = "t", .maps = {samples::map(3, 5, 7), samples::map(1, 4, 2)}};
  page.maps[1].weights = {0,
                          -0.5F,
                          2,
                          std::nanf(""),
                          std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity(),
                          1e-30F,
                          1};
  for (const auto& [quantisation, levels] :
       {std::pair{Quantisation::bits8, 252.0}, std::pair{Quantisation::bits16, 65532.0}}) {
    const json data = json::parse(embedded(render_html(page, {quantisation})));
    for (std::size_t m = 0; m < page.maps.size(); ++m) {
      const json& map = data["pages"][0]["maps"][m];
      const std::vector<double> back = weights_of(map);
      const std::vector<float>& sent = page.maps[m].weights;
      ASSERT_EQ(back.size(), sent.size());
      EXPECT_LE(map["step"].get<double>(), 2.5 / levels);
      for (std::size_t i = 0; i < sent.size(); ++i) {
        if (std::isfinite(sent[i])) {
          // Half a step, and the rounding of the product in double.
          EXPECT_NEAR(back[i], sent[i], map["step"].get<double>() * (0.5 + 1e-9)) << i;
        } else if (std::isnan(sent[i])) {
          EXPECT_TRUE(std::isnan(back[i]));
        } else {
          EXPECT_EQ(back[i], sent[i]);
        }
      }
    }
  }
}

TEST(Html, ZeroStaysZeroAndConstantsDoNotDivide) {
  InspectPage page{.maps = {samples::map(1, 1, 3)}};
  page.maps[0].weights = {0, 0, 0.37F};
  EXPECT_EQ(weights_of(json::parse(embedded(render_html(page)))["pages"][0]["maps"][0])[0], 0);
  page.maps[0].weights = {0, 0, 0};
  for (const double weight : weights_of(json::parse(embedded(render_html(page)))["pages"][0]["maps"][0])) {
    EXPECT_EQ(weight, 0);
  }
}

TEST(Html, HostileTextStaysText) {
  const std::string plain = render_html(
      {.title = "x", .source = "x", .output = "x", .facts = {{"x", "x"}}, .maps = {samples::map(1, 2, 2)}});
  for (const std::string& text : samples::hostile) {
    AttentionMap map = samples::map(1, 2, 2);
    map.name = map.query_tokens[0] = map.key_tokens[1] = text;
    const std::string page = render_html({.title = text + "x",
                                          .source = text + "x",
                                          .output = text + "x",
                                          .facts = {{text, text}},
                                          .maps = {map}});
    for (const char* part : {"<script", "</script", "<img", "<!--"}) {
      EXPECT_EQ(count(page, part), count(plain, part)) << part << " from " << text;
    }
    EXPECT_EQ(page.find("\" onmouseover=\"alert"), std::string::npos);
    EXPECT_EQ(page.find('\x1b'), std::string::npos);
    EXPECT_EQ(valid_utf8(page), page);
    const json data = json::parse(embedded(page));
    const json& back = data["pages"][0]["maps"][0];
    EXPECT_EQ(back["name"], valid_utf8(text));
    EXPECT_EQ(back["rows"][0], valid_utf8(text));
    EXPECT_EQ(back["columns"][1], valid_utf8(text));
    for (const char byte : embedded(page)) {
      EXPECT_TRUE(byte >= 0x20 && byte < 0x7F && byte != '<' && byte != '>' && byte != '&');
    }
  }
}

// The document is filled in once: a placeholder inside a title or a text stays text.
TEST(Html, PlaceholdersInTextsAreNotFilled) {
  const std::string page = render_html(
      {.title = "{{script}} {{nonce}} {{", .source = "{{data}}", .maps = {samples::map(1, 2, 2)}});
  EXPECT_EQ(count(page, "<h1>{{script}} {{nonce}} {{</h1>"), 1U);
  EXPECT_EQ(count(page, "<dd>{{data}}</dd>"), 1U);
  EXPECT_EQ(count(page, "class Viewer "), 1U);
  const std::string plain = render_html({.title = "t", .maps = {samples::map(1, 2, 2)}});
  EXPECT_EQ(plain.find("{{"), std::string::npos);
}

TEST(Html, NeedsNoNetworkAndForbidsIt) {
  const std::string page = render_html({.title = "t", .maps = {samples::map(2, 3, 3)}});
  std::smatch policy;
  ASSERT_TRUE(std::regex_search(page, policy, std::regex("Content-Security-Policy\" content=\"([^\"]*)\"")));
  EXPECT_NE(policy[1].str().find("default-src 'none'"), std::string::npos);
  EXPECT_EQ(policy[1].str().find("unsafe-inline"), std::string::npos);
  EXPECT_EQ(policy[1].str().find("http"), std::string::npos);
  EXPECT_LT(page.find("Content-Security-Policy"), page.find("<style"));
  for (const char* part : {"http://", "https://", "src=", "@import", "<link", "url("}) {
    EXPECT_EQ(page.find(part), std::string::npos) << part;
  }
  // The same data, the same page; other data, another nonce.
  EXPECT_EQ(page, render_html({.title = "t", .maps = {samples::map(2, 3, 3)}}));
}

TEST(Html, LongInputsCostFourThirdsOfAByteAWeight) {
  InspectPage page{.title = "long", .maps = {samples::map(2, 512, 500)}};
  const std::size_t weights = page.maps[0].weights.size();
  const std::size_t empty = render_html({.title = "long"}).size();
  const std::size_t labels = 16 * 1012;
  EXPECT_LE(render_html(page, {Quantisation::bits8}).size(), empty + labels + weights * 4 / 3);
  EXPECT_LE(render_html(page, {Quantisation::bits16}).size(), empty + labels + weights * 8 / 3);
}

TEST(Html, RefusesUnwritableFilesAndSizesThatDisagree) {
  InspectPage page{.maps = {samples::map(2, 3, 3)}};
  EXPECT_THROW(write_html("/nonexistent/folder/page.html", page), FileError);
  EXPECT_THROW(write_html("/dev/full", page), FileError);
  page.maps[0].key_tokens.push_back("one more");
  EXPECT_THROW(render_html(page), InvalidArgument);
}

ReportData sample_report() {
  ReportData report{.title = "R & D"};
  report.notes = {"a < b"};
  report.bars = {{.title = "BLEU by length",
                  .x_label = "words",
                  .y_label = "BLEU",
                  .buckets = {"1–10", "<b>"},
                  .series = {{"none", {50, std::nan("")}}, {"additive", {60.25, 59}}}}};
  report.charts = {{.title = "curve",
                    .x_label = "min",
                    .y_label = "loss",
                    .curves = {{"none", {{0, 3}, {1, 2}, {2, std::nan("")}, {3, 1}}},
                               {"\"><svg onload=x>", {{0, 1}, {1, 0.5}}}}},
                   {.title = "empty", .x_label = "", .y_label = "", .curves = {{"nothing", {}}}},
                   {.title = "one point", .x_label = "", .y_label = "", .curves = {{"flat", {{5, 5}}}}}};
  report.tables = {{"caption", {"model", "BLEU"}, {{"<script>", "12.5"}, {"short row"}}}};
  report.pages = {{.title = "one", .maps = {samples::map(1, 2, 2)}},
                  {.title = "two", .maps = {samples::map(2, 3, 1)}}};
  return report;
}

TEST(Report, HoldsEveryPartEscaped) {
  const std::string page = render_report(sample_report());
  EXPECT_EQ(count(page, "<script"), 2U);  // the data and the viewer
  EXPECT_EQ(count(page, "<svg"), 4U);
  EXPECT_EQ(page.find("<svg onload"), std::string::npos);
  EXPECT_EQ(page.find("<b>"), std::string::npos);
  EXPECT_EQ(count(page, "class=\"viewer\""), 2U);
  EXPECT_EQ(json::parse(embedded(page))["pages"].size(), 2U);
  EXPECT_NE(page.find("R &amp; D"), std::string::npos);
  EXPECT_EQ(page.find("\"nan"), std::string::npos);
  EXPECT_EQ(page.find("\"inf"), std::string::npos);
}

TEST(Report, ANanInterruptsTheCurve) {
  Palette palette;
  const Drawing drawing = lay_out(sample_report().charts[0], palette, rough_width);
  std::string moves;
  for (const Item& item : drawing.items) {
    const auto* path = std::get_if<Path>(&item);
    if (path == nullptr || !std::holds_alternative<Series>(path->stroke.colour)) continue;
    for (const Step& step : path->steps) moves += step.kind == Step::Kind::move ? 'M' : 'L';
    moves += ' ';
  }
  EXPECT_EQ(moves, "MLM ML ");
  const std::string svg = svg_element(drawing);
  std::smatch path;
  ASSERT_TRUE(std::regex_search(svg, path, std::regex("class=\"c0\"[^>]* d=\"([^\"]*)\"")));
  EXPECT_EQ(count(path[1].str(), "M"), 2U);
  EXPECT_EQ(count(path[1].str(), "L"), 1U);
}

TEST(Report, NamesKeepTheirColours) {
  Palette palette;
  EXPECT_EQ(palette.index("a"), 0);
  EXPECT_EQ(palette.index("b"), 1);
  EXPECT_EQ(palette.index("a"), 0);
}

TEST(Report, TicksAreRoundAndCover) {
  for (const auto& [low, high] :
       {std::pair{0.0, 1.0}, {0.0, 97.3}, {-3.0, 0.004}, {5.0, 5.0}, {1e-7, 3e-6}, {0.0, 1e9}}) {
    const std::vector<double> ticks = nice_ticks(low, high, 5);
    const double slack = 1e-6 * (high - low);
    EXPECT_LE(ticks.front(), low + slack);
    EXPECT_GE(ticks.back(), high - slack);
    EXPECT_GE(ticks.size(), 3U);
    EXPECT_LE(ticks.size(), 9U);
  }
}

TEST(Report, TicksEndWhereValuesDifferByRoundings) {
  for (const auto& [low, high] : {std::pair{0.3, 0.1 + 0.2},
                                  {1e17, 1e17 + 16},
                                  {1.7e18, 1.7e18 + 256},
                                  {-5e-324, 5e-324},
                                  {1 - 1e-8, 1 + 1e-8}}) {
    const std::vector<double> ticks = nice_ticks(low, high, 5);
    const double slack = 1e-6 * (high - low) + 0x1p-52 * std::abs(high);
    EXPECT_LE(ticks.front(), low + slack);
    EXPECT_GE(ticks.back(), high - slack);
    EXPECT_LE(ticks.size(), 9U);
  }
}

TEST(Report, RefusesASeriesOfAnotherLength) {
  ReportData report = sample_report();
  report.bars[0].series[1].values.pop_back();
  EXPECT_THROW(render_report(report), InvalidArgument);
}

}  // namespace
}  // namespace fovea::inspect
