#include "inspect/unicode.h"

#include <gtest/gtest.h>

#include <set>

#include "inspect/font.h"
#include "inspect/font_shapes.h"

namespace fovea::inspect {
namespace {

TEST(Utf8, EveryScalarValueSurvivesARoundTrip) {
  for (char32_t code = 0; code <= 0x10FFFF; ++code) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    std::string text;
    append_utf8(text, code);
    const std::vector<char32_t> back = decode_utf8(text);
    ASSERT_EQ(back.size(), 1U) << static_cast<unsigned>(code);
    ASSERT_EQ(back[0], code);
  }
}

TEST(Utf8, IllFormedSequencesBecomeOneReplacementEach) {
  // The example of the Unicode Standard 15, table 3-8: overlong, surrogate, beyond the last plane, cut short.
  const std::string bytes = "\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64";
  const std::vector<char32_t> expected = {0x61,         kReplacement, kReplacement, kReplacement, 0x62,
                                          kReplacement, 0x63,         kReplacement, kReplacement, 0x64};
  EXPECT_EQ(decode_utf8(bytes), expected);
  for (const std::string bad : {"\xC0\xAF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80"}) {
    for (const char32_t code : decode_utf8(bad)) EXPECT_EQ(code, kReplacement);
  }
}

TEST(Width, FollowsTerminals) {
  EXPECT_EQ(width_of(U'é'), 1);
  EXPECT_EQ(width_of(0x301), 0);
  EXPECT_EQ(width_of(U'語'), 2);
  EXPECT_EQ(width_of(U'한'), 2);
  EXPECT_EQ(width_of(U'ｱ'), 1);  // half-width
  EXPECT_EQ(width_of(0x1F600), 2);
  EXPECT_EQ(width_of(0x200B), 0);
}

TEST(Visible, NothingThatSteersIsLeft) {
  for (char32_t code = 0; code < 0x3000; ++code) {
    std::string text = "a";
    append_utf8(text, code);
    for (const char32_t shown : visible(text)) EXPECT_FALSE(is_control(shown)) << static_cast<unsigned>(code);
  }
}

TEST(Visible, MarksNeitherPileUpNorLandOnANeighbour) {
  EXPECT_EQ(visible("e\xcc\x81\xcc\x81\xcc\x81\xcc\x81").size(), 3U);
  EXPECT_EQ(visible("\xcc\x81").size(), 1U);  // nothing to stand on: an empty token
  EXPECT_EQ(visible("")[0], U'∅');
}

TEST(Letters, AreTakenApart) {
  EXPECT_EQ(take_apart(U'é').base, 'e');
  EXPECT_EQ(take_apart(U'é').mark, Mark::acute);
  EXPECT_EQ(take_apart(U'Ž').base, 'Z');
  EXPECT_EQ(take_apart(U'ł').mark, Mark::stroke);
  EXPECT_EQ(take_apart(U'ж').base, 0);
  EXPECT_EQ(to_ascii(U'œ'), "oe");
  EXPECT_EQ(to_ascii(U'語'), "?");
}

TEST(Font, DrawingsHaveFivePixelsAGlyph) {
  for (int band = 0; band < kShapeBandCount; ++band) {
    const ShapeBand& drawn = kShapeBands[band];
    for (const std::string_view row : drawn.rows) {
      ASSERT_EQ(row.size(), 6 * drawn.characters.size() - 1) << band << ": " << row;
      for (std::size_t gap = 5; gap < row.size(); gap += 6) EXPECT_EQ(row[gap], ' ') << band << ": " << row;
    }
  }
}

TEST(Font, EveryPrintableCharacterIsItself) {
  std::set<Glyph> seen;
  const Glyph box = glyphs_of("語").at(0);
  for (char c = 0x21; c < 0x7F; ++c) {
    const Glyph glyph = glyphs_of(std::string(1, c)).at(0);
    EXPECT_NE(glyph, box) << c;
    EXPECT_NE(glyph, Glyph{}) << c;
    EXPECT_TRUE(seen.insert(glyph).second) << c << " looks like another character";
  }
  for (const char* letter :
       {"À", "é", "î", "ç", "ö", "ñ", "å", "Ż", "ő", "š", "ø", "ł", "œ", "Æ", "ß", "«", "…"}) {
    const Glyph glyph = glyphs_of(letter).at(0);
    EXPECT_NE(glyph, box) << letter;
    EXPECT_TRUE(seen.insert(glyph).second) << letter << " looks like another character";
  }
}

TEST(Font, ComposedAndCombiningAccentsAreTheSame) {
  EXPECT_EQ(glyphs_of("é"), glyphs_of("e\xcc\x81"));
  EXPECT_EQ(glyphs_of("Č"), glyphs_of("C\xcc\x8c"));
}

}  // namespace
}  // namespace fovea::inspect
