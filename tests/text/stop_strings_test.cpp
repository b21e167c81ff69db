#include "fovea/text/stop_strings.h"

#include <gtest/gtest.h>

#include <random>

#include "fovea/core/error.h"

namespace fovea::text {
namespace {

TEST(StopStrings, ShowNothingOfAStopString) {
  StopStrings stops({"\nUser:", "END"});
  EXPECT_EQ(stops.add("a\nUs"), "a");
  EXPECT_EQ(stops.add("ing E"), "\nUsing ");
  EXPECT_FALSE(stops.found());
  EXPECT_EQ(stops.add("N"), "");
  EXPECT_EQ(stops.add("D and more"), "");
  EXPECT_TRUE(stops.found());
  EXPECT_EQ(stops.add("more"), "");
  EXPECT_EQ(stops.rest(), "");
  StopStrings open({"END"});
  EXPECT_EQ(open.add("the EN"), "the ");
  EXPECT_EQ(open.rest(), "EN");
  EXPECT_EQ(StopStrings().add("any"), "any");
  EXPECT_THROW(StopStrings({"a", ""}), InvalidArgument);
}

// However the text is cut, what is shown is what stands before the first stop string that is whole.
TEST(StopStrings, AreFoundAcrossPieces) {
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    const auto word = [&](std::size_t most) {
      std::string text;
      for (std::size_t n = 1 + random() % most; n > 0; --n) text += static_cast<char>('a' + random() % 2);
      return text;
    };
    const std::string text = word(12);
    const std::vector<std::string> strings{word(4), word(4)};
    // Letter by letter, the text ends behind the first letter that makes a stop string whole.
    std::string expected = text;
    for (std::size_t end = 1; end <= text.size() && expected == text; ++end) {
      std::size_t first = std::string::npos;
      for (const std::string& string : strings) first = std::min(first, text.substr(0, end).find(string));
      if (first != std::string::npos) expected = text.substr(0, first);
    }
    StopStrings stops(strings);
    std::string shown;
    for (const char c : text) {
      shown += stops.add(std::string(1, c));
      ASSERT_TRUE(expected.starts_with(shown)) << text << " " << strings[0] << " " << strings[1];
    }
    shown += stops.rest();
    EXPECT_EQ(shown, expected) << text << " " << strings[0] << " " << strings[1];
  }
}

}  // namespace
}  // namespace fovea::text
