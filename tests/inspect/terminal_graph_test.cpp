#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <clocale>
#include <cmath>
#include <cwchar>
#include <regex>

#include "fovea/core/error.h"
#include "fovea/inspect/graph.h"
#include "inspect/pen.h"
#include "inspect/samples.h"
#include "inspect/unicode.h"

namespace fovea::inspect {
namespace {

AttentionMap words(int heads, const std::vector<std::string>& queries, const std::vector<std::string>& keys) {
  AttentionMap map = samples::map(heads, static_cast<int>(queries.size()), static_cast<int>(keys.size()));
  map.query_tokens = queries;
  map.key_tokens = keys;
  return map;
}

std::string without_styles(const std::string& text) {
  return std::regex_replace(text, std::regex("\x1b\\[(0|1|[34]8;5;[0-9]+|[34]8;2;[0-9]+;[0-9]+;[0-9]+)m"),
                            "");
}

bool is_pattern(char32_t code) {
  return code >= 0x2800 && code < 0x2900;
}

// The braille patterns of a line.
std::vector<char32_t> strokes_of(const std::string& line) {
  std::vector<char32_t> strokes;
  for (const char32_t code : decode_utf8(line)) {
    if (is_pattern(code)) strokes.push_back(code);
  }
  return strokes;
}

constexpr TerminalStyle kPlain{.colour = Colour::never, .charset = Charset::unicode, .width = 80};

TEST(TerminalGraph, ASelectedWordHasAStrokeToEachWordAndItsNumbers) {
  AttentionMap map = words(2, {"sat"}, {"cat", "on", "mat"});
  map.weights = {0.5F, 0.5F, 0, 1, 0, 0};
  EXPECT_EQ(draw_terminal_graph(map, {}, {{Side::query, 0}}, kPlain),
            "decoder.cross layer 1: what sat attends to\n"
            "                                   mean    1    2\n"
            "     ⠀⠀⠀⣀⣀⣀⣀⣀⣀⣤⣤⣤⣤⣤⣤⣶⣶⣶⣶⣶⣶⣿⣿⣿ cat  0.75 0.50 1.00\n"
            "[sat]⣿⣿⣿⠿⠿⠿⠿⠿⠿⠿⠿⠿⠿⠿⠿⠿⠿⠿⠿⠿⠿⠶⠶⠶ on   0.25 0.50 0.00\n"
            "     ⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀ mat  0.00 0.00 0.00\n");
  EXPECT_EQ(draw_terminal_graph(map, {1}, {{Side::key, 0}}, kPlain),
            "decoder.cross layer 1: what attends to cat\n"
            "         ⠀⠀⠀⣀⣀⣀⣀⣀⣀⣤⣤⣤⣤⣤⣤⣶⣶⣶⣶⣶⣶⣿⣿⣿[cat]\n"
            "1.00 sat ⣿⣿⣿⠿⠿⠿⠿⠿⠿⠛⠛⠛⠛⠛⠛⠉⠉⠉⠉⠉⠉⠀⠀⠀ on\n"
            "         ⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀ mat\n");
}

// A query attends to one key alone: at the left edge the line of the query has the most dots, at the right
// edge that of the key.
TEST(TerminalGraph, StrokesJoinTheWordsThatAttendToEachOther) {
  constexpr std::size_t kWords = 7;
  for (std::size_t query = 0; query < kWords; ++query) {
    for (std::size_t key = 0; key < kWords; ++key) {
      AttentionMap map = samples::map(1, kWords, kWords);
      std::fill(map.weights.begin(), map.weights.end(), std::nanf(""));
      for (std::size_t other = 0; other < kWords; ++other)
        map.weights[query * kWords + other] = other == key ? 1.0F : 0.0F;
      for (const bool picked : {false, true}) {
        const std::vector<PickedWord> word =
            picked ? std::vector<PickedWord>{{Side::query, query}} : std::vector<PickedWord>{};
        const std::vector<std::string> lines = samples::lines_of(draw_terminal_graph(map, {}, word, kPlain));
        const std::size_t spacing = picked ? 1 : 2;  // a short sentence has empty lines between its words
        ASSERT_EQ(lines.size(), 1 + (kWords - 1) * spacing + 1);
        std::vector<int> left, right;
        for (std::size_t line = 1; line < lines.size(); ++line) {
          const std::vector<char32_t> strokes = strokes_of(lines[line]);
          left.push_back(std::popcount(strokes.front() - 0x2800U));
          right.push_back(std::popcount(strokes.back() - 0x2800U));
        }
        const auto most = [](const std::vector<int>& dots) {
          return static_cast<std::size_t>(std::max_element(dots.begin(), dots.end()) - dots.begin());
        };
        EXPECT_EQ(most(left), query * spacing);
        EXPECT_EQ(most(right), key * spacing);
      }
    }
  }
}

TEST(TerminalGraph, AStrokeHasTheColourOfTheHeadWithTheLargestPart) {
  AttentionMap map = words(3, {"sat"}, {"cat"});
  map.weights = {0.2F, 0.9F, 0.4F};
  TerminalStyle style = kPlain;
  style.colour = Colour::always;
  const Pen pen = resolve(style);
  for (const auto& [heads, strongest] : {std::pair(std::vector<int>{}, 1), {std::vector<int>{0, 2}, 2}}) {
    for (const std::vector<PickedWord>& word : {std::vector<PickedWord>{}, {{Side::query, 0}}}) {
      const std::string drawn = draw_terminal_graph(map, heads, word, style),
                        line = samples::lines_of(drawn).back();
      for (const int head : {0, 1, 2})
        EXPECT_EQ(line.find(foreground(series_on_any_ground(head), pen)) != std::string::npos,
                  head == strongest);
      const std::string name = foreground(series_on_any_ground(2), pen) + "3\x1b[0m";
      EXPECT_NE(drawn.find(name), std::string::npos) << "the heads' colours are explained";
    }
  }
}

TEST(TerminalGraph, TheLargestWeightOfAWordAndWhatIsNotFiniteIsSeen) {
  AttentionMap map = words(1, {"a", "b"}, {"c", "d"});
  map.weights = {0.3F, 0.7F, 0.9F, std::nanf("")};
  const std::vector<std::string> lines = samples::lines_of(draw_terminal_graph(map, {}, {}, kPlain));
  EXPECT_EQ(lines.at(1).substr(0, 4), "0.70");
  EXPECT_EQ(lines.at(3).substr(0, 4), " NaN");
}

// Words in three scripts and emoji: by the C library's widths all strokes begin in one column, and all keys.
TEST(TerminalGraph, WideWordsAreAligned) {
  if (std::setlocale(LC_CTYPE, "C.UTF-8") == nullptr) GTEST_SKIP() << "no locale C.UTF-8";
  const std::vector<std::string> source{"猫", "坐在", "القطة", "😀🤖", "⭐", "été", "."},
      target{"The", "السجادة", "垫子", "🐈", "し"};
  const auto columns_of = [](const std::vector<char32_t>& codes, std::size_t count) {
    int columns = 0;
    for (std::size_t i = 0; i < count; ++i) columns += wcwidth(static_cast<wchar_t>(codes[i]));
    return columns;
  };
  for (const auto& [queries, keys] : {std::pair(source, source), {target, source}, {source, target}}) {
    const AttentionMap map = words(2, queries, keys);
    for (const std::vector<PickedWord>& word :
         {std::vector<PickedWord>{}, {{Side::query, 1}}, {{Side::key, 2}}}) {
      const std::vector<std::string> lines = samples::lines_of(draw_terminal_graph(map, {}, word, kPlain));
      std::vector<int> first, last;
      for (const std::string& line : lines) {
        const std::vector<char32_t> codes = decode_utf8(line);
        const auto begin = std::find_if(codes.begin(), codes.end(), is_pattern);
        if (begin == codes.end()) continue;
        first.push_back(columns_of(codes, static_cast<std::size_t>(begin - codes.begin())));
        last.push_back(static_cast<int>(std::count_if(codes.begin(), codes.end(), is_pattern)));
      }
      EXPECT_GE(first.size(), std::max(queries.size(), keys.size()));
      EXPECT_EQ(std::count(first.begin(), first.end(), first[0]), std::ssize(first));
      EXPECT_EQ(std::count(last.begin(), last.end(), last[0]), std::ssize(last));
    }
  }
}

// A terminal that reorders Arabic must not move the number behind the word.
TEST(TerminalGraph, AMarkEndsARightToLeftWord) {
  AttentionMap map = words(1, {"sat"}, {"القطة", "cat"});
  const std::string drawn = draw_terminal_graph(map, {}, {{Side::query, 0}}, kPlain);
  EXPECT_NE(drawn.find("القطة\u200e"), std::string::npos) << drawn;
  EXPECT_EQ(drawn.find("cat\u200e"), std::string::npos);
}

TEST(TerminalGraph, EveryLineFitsTheWidthAndNoTokenHasControls) {
  AttentionMap map = words(16, samples::hostile, samples::hostile);
  map.weights[3] = std::nanf("");
  map.key_tokens[2] = "語語語語語語語語語語語語語語語語語語";
  AttentionMap more = samples::map(1, 20, 9);
  for (const int width : {40, 80, 200}) {
    for (const Charset charset : {Charset::unicode, Charset::ascii}) {
      for (const Colour colour : {Colour::never, Colour::always}) {
        for (const std::vector<PickedWord>& picked :
             {std::vector<PickedWord>{}, {{Side::query, 0}, {Side::key, 1}}}) {
          const TerminalStyle style{.colour = colour, .charset = charset, .width = width};
          const std::string drawn = without_styles(draw_terminal_graph(map, {}, picked, style) +
                                                   draw_terminal_graph(more, {}, picked, style));
          for (const std::string& line : samples::lines_of(drawn)) {
            int columns = 0;
            for (const char32_t code : decode_utf8(line)) {
              EXPECT_FALSE(is_control(code)) << line;
              EXPECT_TRUE(charset == Charset::unicode || code < 0x7F) << line;
              columns += width_of(code);
            }
            EXPECT_LE(columns, width) << line;
          }
        }
      }
    }
  }
}

TEST(TerminalGraph, RefusesAndEmpty) {
  const AttentionMap map = samples::map(2, 2, 2);
  EXPECT_THROW(draw_terminal_graph(map, {2}, {}), InvalidArgument);
  EXPECT_THROW(draw_terminal_graph(map, {}, {{Side::query, 2}}), InvalidArgument);
  EXPECT_EQ(draw_terminal_graph(samples::map(1, 0, 0), {}, {}), "(empty matrix)\n");
}

}  // namespace
}  // namespace fovea::inspect
