#include "fovea/inspect/terminal.h"

#include <gtest/gtest.h>

#include <regex>

#include "fovea/core/error.h"
#include "inspect/samples.h"
#include "inspect/unicode.h"

namespace fovea::inspect {
namespace {

const TerminalStyle kUnicode{.colour = Colour::never, .charset = Charset::unicode, .width = 80};

int width_of_line(const std::string& line) {
  int width = 0;
  for (const char32_t code : decode_utf8(line)) width += width_of(code);
  return width;
}

std::string without_colours(const std::string& text) {
  return std::regex_replace(text, std::regex("\x1b\\[(0|48;5;[0-9]+|48;2;[0-9]+;[0-9]+;[0-9]+)m"), "");
}

TEST(Terminal, EveryLineFitsTheWidth) {
  AlignmentMatrix wide = samples::alignment(12, 61);
  wide.source_tokens[3] = "anticonstitutionnellement-et-plus-encore";
  wide.source_tokens[60] = "語語語語語語語語語語語語語語語";
  wide.target_tokens[5] = "e\xcc\x81t\xcc\x81-anticonstitutionnellement";
  for (const int width : {40, 57, 80, 200}) {
    for (const Charset charset : {Charset::unicode, Charset::ascii}) {
      for (const Colour colour : {Colour::never, Colour::always}) {
        const std::string drawn = draw_terminal(wide, {.colour = colour, .charset = charset, .width = width});
        for (const std::string& line : samples::lines_of(without_colours(drawn))) {
          EXPECT_LE(width_of_line(line), width) << line;
        }
      }
    }
  }
}

TEST(Terminal, EveryColumnAppearsOnceUnderItsLabel) {
  const AlignmentMatrix wide = samples::alignment(4, 50);
  const std::string drawn = draw_terminal(wide, kUnicode);
  for (const std::string& token : wide.source_tokens) {
    int count = 0;
    for (const std::string& line : samples::lines_of(drawn)) {
      // The label lines above the columns form stairs: each ends in its label, after lines and spaces only.
      const std::size_t at = line.rfind(' ');
      count += line.substr(at == std::string::npos ? 0 : at + 1) == token;
    }
    EXPECT_EQ(count, 1) << token;
  }
}

TEST(Terminal, TheDarkestCellIsTheLargestWeight) {
  AlignmentMatrix one{{"le", "chat"}, {"the", "cat"}, {0.9F, 0.0F, 0.0F, 0.9F}};
  const std::vector<std::string> lines = samples::lines_of(draw_terminal(one, kUnicode));
  ASSERT_EQ(lines.size(), 5U);  // two stairs, two rows, the scale
  EXPECT_EQ(lines[2], "   le ██· ");
  EXPECT_EQ(lines[3], " chat · ██");
  const TerminalStyle ascii{.colour = Colour::never, .charset = Charset::ascii, .width = 80};
  EXPECT_EQ(samples::lines_of(draw_terminal(one, ascii))[2], "   le @@. ");
}

TEST(Terminal, AsciiIsAscii) {
  AlignmentMatrix french{{"été", "œuvre", "語"}, {"«", "naïve"}, samples::weights(6)};
  const std::string drawn =
      draw_terminal(french, {.colour = Colour::never, .charset = Charset::ascii, .width = 80});
  for (const char byte : drawn) EXPECT_LT(static_cast<unsigned char>(byte), 0x7F);
  EXPECT_NE(drawn.find("ete"), std::string::npos);
  EXPECT_NE(drawn.find("oeuvre"), std::string::npos);
}

TEST(Terminal, TokensCannotSteerTheTerminal) {
  AlignmentMatrix hostile{samples::hostile, samples::hostile, {}};
  hostile.weights = samples::weights(hostile.rows() * hostile.columns());
  for (const ColourDepth depth : {ColourDepth::colours256, ColourDepth::true_colour}) {
    const std::string drawn = draw_terminal(
        hostile, {.colour = Colour::always, .depth = depth, .charset = Charset::unicode, .width = 80});
    const std::string plain = without_colours(drawn);
    EXPECT_NE(plain, drawn);
    for (const char32_t code : decode_utf8(plain)) {
      EXPECT_TRUE(code == U'\n' || !is_control(code)) << static_cast<unsigned>(code);
    }
  }
}

TEST(Terminal, NotFiniteAndEmpty) {
  AlignmentMatrix odd{{"a"}, {"x", "y", "z"}, {std::nanf(""), std::numeric_limits<float>::infinity(), 0.5F}};
  const std::string drawn = draw_terminal(odd, kUnicode);
  EXPECT_NE(drawn.find("????██"), std::string::npos) << drawn;
  EXPECT_NE(drawn.find("not finite"), std::string::npos);
  EXPECT_EQ(draw_terminal({}, kUnicode), "(empty matrix)\n");
  odd.weights.pop_back();
  EXPECT_THROW(draw_terminal(odd, kUnicode), InvalidArgument);
}

}  // namespace
}  // namespace fovea::inspect
