#include "inspect/unicode.h"

#include <gtest/gtest.h>

#include "inspect/samples.h"

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

TEST(Visible, NoControlsAreLeft) {
  for (char32_t code = 0; code < 0x3000; ++code) {
    std::string text = "a";
    append_utf8(text, code);
    for (const char32_t shown : visible(text)) EXPECT_FALSE(is_control(shown)) << static_cast<unsigned>(code);
  }
}

TEST(Visible, CombiningMarksAreFewAndStayOnTheirLetter) {
  EXPECT_EQ(visible("e\xcc\x81\xcc\x81\xcc\x81\xcc\x81").size(), 3U);
  EXPECT_EQ(visible("\xcc\x81").size(), 1U);  // no letter to combine with: an empty token
  EXPECT_EQ(visible("")[0], U'∅');
}

TEST(Writable, KeepsCharactersThatScriptsNeed) {
  const std::string family = "👩\u200d👩\u200d👧", persian = "می\u200cخواهم", pointed = "ש\u05bc\u05c1\u05b8";
  for (const std::string& text : {family, persian, pointed}) EXPECT_EQ(writable(text, Lines::one), text);
  EXPECT_EQ(writable("a\nb", Lines::one), "a␊b");
  EXPECT_EQ(writable("a\nb", Lines::several), "a\nb");
  EXPECT_EQ(writable("", Lines::one), "∅");
}

TEST(Writable, ControlsCannotChangeTheLayout) {
  for (const std::string& text : samples::hostile) {
    for (const Lines lines : {Lines::one, Lines::several}) {
      for (const char32_t code : decode_utf8(writable(text, lines)))
        EXPECT_TRUE(!is_control(code) || code == U'\n') << text;
    }
  }
  EXPECT_EQ(decode_utf8(writable("e\u0301\u0301\u0301\u0301\u0301\u0301", Lines::one)).size(), 5U);
  EXPECT_EQ(writable("a\u202eb", Lines::one), "a\ufffdb");
}

TEST(Ascii, ReplacesLatinLetters) {
  EXPECT_EQ(base_letter(U'é'), 'e');
  EXPECT_EQ(base_letter(U'Ž'), 'Z');
  EXPECT_EQ(base_letter(U'ł'), 'l');
  EXPECT_EQ(base_letter(U'ж'), 0);
  EXPECT_EQ(to_ascii(U'œ'), "oe");
  EXPECT_EQ(to_ascii(U'語'), "?");
}

}  // namespace
}  // namespace fovea::inspect
