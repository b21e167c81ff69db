#include "fovea/inspect/graph.h"

#include <gtest/gtest.h>

#include <cmath>
#include <regex>
#include <sstream>

#include "fovea/core/error.h"
#include "inspect/samples.h"
#include "inspect/unicode.h"

namespace fovea::inspect {
namespace {

AttentionMap words(const std::vector<std::string>& queries, const std::vector<std::string>& keys) {
  AttentionMap map = samples::map(2, static_cast<int>(queries.size()), static_cast<int>(keys.size()));
  map.query_tokens = queries;
  map.key_tokens = keys;
  return map;
}

TEST(FindWord, WholeWordsAmongQueriesBeforeKeys) {
  using Places = std::vector<PickedWord>;
  const AttentionMap plain = words({"The", "cat", "sat", "on", "the", "sat"}, {"le", "chat"});
  EXPECT_EQ(find_word(plain, "sat"), (Places{{Side::query, 2}, {Side::query, 5}}));
  EXPECT_EQ(find_word(plain, "chat"), (Places{{Side::key, 1}}));
  EXPECT_EQ(find_word(plain, "dog"), Places{});
  EXPECT_EQ(find_word(plain, ""), Places{});
  const AttentionMap pieces =
      words({"▁The", "▁m", "at", "▁at", "▁o", "▁n", "."}, {"an@@", "other", "play", "##ing"});
  EXPECT_EQ(find_word(pieces, "mat"), (Places{{Side::query, 1, 2}}));
  EXPECT_EQ(find_word(pieces, "at"), (Places{{Side::query, 2}, {Side::query, 3}}));
  EXPECT_EQ(find_word(pieces, "on"), Places{}) << "two words";
  EXPECT_EQ(find_word(pieces, "another"), (Places{{Side::key, 0, 2}}));
  EXPECT_EQ(find_word(pieces, "playing"), (Places{{Side::key, 2, 2}}));
  EXPECT_EQ(text_of(pieces, {Side::query, 1, 2}), "mat");
}

TEST(Arcs, AreTheWeightsOfTheirWordWeakestFirst) {
  const AttentionMap map = samples::map(3, 4, 5);
  const PickedWord key{Side::key, 1, 2};
  const std::vector<Arc> arcs = arcs_of(map, {0, 2}, &key, 0.25F);
  std::size_t expected = 0;
  for (const std::size_t head : {0U, 2U}) {
    for (std::size_t query = 0; query < 4; ++query) {
      for (const std::size_t at : {1U, 2U}) expected += map.weights[(head * 4 + query) * 5 + at] >= 0.25F;
    }
  }
  EXPECT_EQ(arcs.size(), expected);
  for (std::size_t i = 0; i < arcs.size(); ++i) {
    EXPECT_EQ(arcs[i].weight,
              map.weights[(static_cast<std::size_t>(arcs[i].head) * 4 + arcs[i].query) * 5 + arcs[i].key]);
    if (i > 0) {
      EXPECT_LE(arcs[i - 1].weight, arcs[i].weight);
    }
  }
}

TEST(Shares, MeanOverPiecesOfAQuerySumOverPiecesOfAKey) {
  AttentionMap map = samples::map(1, 2, 2);
  map.weights = {0.25F, 0.75F, 0.5F, 0.5F};
  EXPECT_EQ(shares_of(map, {}, {Side::query, 0, 2}), (std::vector<float>{0.375F, 0.625F}));
  EXPECT_EQ(shares_of(map, {}, {Side::key, 0, 2}), (std::vector<float>{1, 1}));
  EXPECT_THROW(shares_of(map, {}, {Side::key, 1, 2}), InvalidArgument);
  EXPECT_THROW(shares_of(map, {1}, {Side::key, 0}), InvalidArgument);
  EXPECT_THROW(shares_of(map, {}, {Side::key, static_cast<std::size_t>(-1), 2}), InvalidArgument);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string without_colours(const std::string& text) {
  return std::regex_replace(text, std::regex("\x1b\\[(0|30|48;5;[0-9]+|48;2;[0-9]+;[0-9]+;[0-9]+)m"), "");
}

TEST(TerminalGraph, ABarIsTheMeanCutIntoItsHeads) {
  AttentionMap map = samples::map(2, 1, 3);
  map.query_tokens = {"sat"};
  map.key_tokens = {"cat", "on", "mat"};
  map.weights = {0.5F, 0.5F, 0, 1, 0, 0};
  const TerminalStyle style{.colour = Colour::never, .charset = Charset::unicode, .width = 80};
  const std::vector<std::string> lines = lines_of(draw_terminal_graph(map, {}, {{Side::query, 0}}, style));
  ASSERT_EQ(lines.size(), 5U);
  EXPECT_EQ(lines[0], "decoder.cross layer 1: what sat attends to");
  EXPECT_EQ(lines[1], "heads 1 2");
  EXPECT_EQ(lines[2], "  cat 0.75  111111222222222222       0.50 1.00");
  EXPECT_EQ(lines[3], "   on 0.25  111111                   0.50 0.00");
  EXPECT_EQ(lines[4], "  mat 0.00                           0.00 0.00");
  EXPECT_EQ(lines_of(draw_terminal_graph(map, {1}, {{Side::key, 0}}, style)).at(1),
            "  sat 1.00  222222222222222222222222");
  EXPECT_EQ(lines_of(draw_terminal_graph(map, {}, {}, style)).at(1), "  sat →  cat 0.75  on 0.25  mat 0.00");
}

TEST(TerminalGraph, EveryLineFitsTheWidthAndNoTokenHasControls) {
  AttentionMap map = words(samples::hostile, samples::hostile);
  map.heads = 16;
  map.weights = samples::weights(16 * map.rows() * map.columns());
  map.weights[3] = std::nanf("");
  map.key_tokens[2] = "語語語語語語語語語語語語語語語語語語";
  for (const int width : {40, 80, 200}) {
    for (const Charset charset : {Charset::unicode, Charset::ascii}) {
      for (const Colour colour : {Colour::never, Colour::always}) {
        for (const std::vector<PickedWord>& picked :
             {std::vector<PickedWord>{}, {{Side::query, 0}, {Side::key, 1}}}) {
          const std::string drawn = without_colours(
              draw_terminal_graph(map, {}, picked, {.colour = colour, .charset = charset, .width = width}));
          for (const std::string& line : lines_of(drawn)) {
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
