// Classes of characters in patterns of tokenizers: classes in classes, intersections and scripts, as
// Oniguruma reads them. The pieces are those of the tokenizers library.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fovea/core/error.h"
#include "fovea/text/tokenizer_json.h"
#include "text/tokenizer_json_texts.h"

namespace fovea::text {
namespace {

using Pieces = std::vector<std::string>;

// The matches of a pattern, and what is between them.
Pieces split(const std::string& pattern, const std::string& text) {
  nlohmann::json of = tokenizer_json({{"type", "WordLevel"}, {"unk_token", "?"}, {"vocab", {{"?", 0}}}});
  of["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  Pieces pieces;
  for (const ByteRange& range : JsonTokenizer::from_json(of.dump(), "t.json").encode(text).offsets)
    pieces.push_back(text.substr(range.begin, range.end - range.begin));
  return pieces;
}

TEST(RegexClasses, IntersectionsAreOfAllSides) {
  EXPECT_EQ(split("[\\p{L}&&[^\\p{Han}]]+", "ab漢字cdé12"), (Pieces{"ab", "漢字", "cdé", "12"}));
  EXPECT_EQ(split("[^\\p{L}&&[^\\p{Han}]]+", "ab漢字cdé\n"), (Pieces{"ab", "漢字", "cdé", "\n"}));
  EXPECT_EQ(split("[a-z&&[^aeiou]x-z&&\\p{L}]+", "hello xyz"), (Pieces{"h", "e", "ll", "o ", "xyz"}));
  EXPECT_EQ(split("[a-w&&[^c-g]z]+", "abcdefghz"), (Pieces{"ab", "cdefg", "h", "z"}));
  EXPECT_EQ(split("[a-w&&[b-d&&[^c]]]", "abcd"), (Pieces{"a", "b", "c", "d"}));
  EXPECT_EQ(split("[ab&&^b]+", "a^b"), (Pieces{"a^", "b"}));
  EXPECT_EQ(split("[a&&&b&]+", "ab&"), (Pieces{"ab&"}));
  EXPECT_EQ(split("(?<=[a-z&&[^b]])1", "a1b1"), (Pieces{"a", "1", "b1"}));
}

TEST(RegexClasses, ClassesInClassesAddTheirCharacters) {
  EXPECT_EQ(split("[a[^b-z]]+", "abcA1"), (Pieces{"a", "bc", "A1"}));
  EXPECT_EQ(split("[^a[^b-z]]+", "abcA1"), (Pieces{"a", "bc", "A1"}));
  EXPECT_EQ(split("[:;,]+", "a:;b"), (Pieces{"a", ":;", "b"})) << "no class of POSIX";
  EXPECT_EQ(split("[\\x41[b]]+", "xAbx"), (Pieces{"x", "Ab", "x"}));
  EXPECT_THROW(split("\\pL+", "pL"), Error) << "Oniguruma reads two letters";
  EXPECT_THROW(split("[\\x4[1]]+", "A"), Error) << "no \\x41";
  EXPECT_EQ(split("[a[b[cd]]]+", "xabcdx"), (Pieces{"x", "abcd", "x"}));
  EXPECT_EQ(split("[a[b-]d]+", "a-bcd"), (Pieces{"a-b", "c", "d"})) << "no range from b to d";
}

TEST(RegexClasses, AScriptIsThatOfACharacterAlone) {
  EXPECT_EQ(split("\\p{Han}+", "a漢字、b"), (Pieces{"a", "漢字", "、b"}))
      << "U+3001 is used with Han, and common";
  EXPECT_EQ(split("\\P{Han}+", "漢、b字"), (Pieces{"漢", "、b", "字"}));
  EXPECT_EQ(split("[\\p{^Han}x]+", "漢、x字"), (Pieces{"漢", "、x", "字"}));
}

}  // namespace
}  // namespace fovea::text
