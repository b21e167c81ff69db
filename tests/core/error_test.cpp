// How errors shorten foreign text, and the positions that they name.
#include "fovea/core/error.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/excerpt.h"

namespace fovea {
namespace {

TEST(Excerpt, CutsLongTextAndSaysHowLongItIs) {
  const std::string sixty(60, 'a');
  EXPECT_EQ(excerpt(sixty), sixty);
  EXPECT_EQ(excerpt(sixty + "b"), sixty + "… (61 characters)");
  EXPECT_EQ(excerpt(std::string(1'234'567, 'a')), sixty + "… (1,234,567 characters)");
  EXPECT_EQ(excerpt(std::string(100, 'a'), 100), std::string(100, 'a'));
  std::string accents;
  for (int i = 0; i < 60; ++i) accents += "é";
  EXPECT_EQ(excerpt(accents), accents);
  EXPECT_EQ(excerpt(accents + "é"), accents + "… (61 characters)");
  // This is not UTF-8 text, but it must be shortened all the same.
  EXPECT_LT(excerpt(std::string(100'000, '\x80')).size(), 400u);
}

TEST(Excerpt, CutsWordsInsideAMessage) {
  EXPECT_EQ(excerpt_words("a bc\nd", 60), "a bc\nd");
  EXPECT_EQ(excerpt_words("--x: " + std::string(70, 'b') + " is wrong\n"),
            "--x: " + std::string(60, 'b') + "… (70 characters) is wrong\n");
}

TEST(Errors, DoNotRepeatALongValue) {
  const std::string huge(100'000, 'x');
  const InvalidArgument argument("make_plan", huge, "a number", huge);
  EXPECT_LT(std::strlen(argument.what()), 500u);
  EXPECT_NE(std::string(argument.what()).find("got xxxxx"), std::string::npos);
  EXPECT_NE(std::string(argument.what()).find("… (100,000 characters)"), std::string::npos);
  EXPECT_EQ(argument.got(), huge);
  const FileError file(huge, 7, "odd: " + huge);
  EXPECT_LT(std::strlen(file.what()), 500u);
  EXPECT_NE(std::string(file.what()).find("(byte 7): odd: xxx"), std::string::npos);
  const std::string shapes(300, 's');  // text that the library composes itself is not shortened
  EXPECT_NE(std::string(InvalidArgument("f", "a", "b", shapes).what()).find(shapes), std::string::npos);
}

}  // namespace
}  // namespace fovea
