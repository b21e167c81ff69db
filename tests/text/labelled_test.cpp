#include "fovea/text/labelled.h"

#include <gtest/gtest.h>

#include <functional>

#include "fovea/core/error.h"
#include "text/scratch.h"

namespace fovea::text {
namespace {

using Words = std::vector<std::string>;

// The line number in the reader's error; -2 if there is no error.
std::int64_t refused_line(const std::function<void()>& read) {
  try {
    read();
  } catch (const FileError& error) {
    return error.offset();
  }
  return -2;
}

TEST(LabelledLines, LabelThenWords) {
  const Scratch scratch;
  const auto lines = read_labelled_lines(scratch.write("a", "4 Where is\tRome ?\r\n\n  x y\n"));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].label, "4");
  EXPECT_EQ(lines[0].words, (Words{"Where", "is", "Rome", "?"}));
  EXPECT_EQ(lines[1].label, "x");
}

TEST(LabelledLines, LatinOneIfItIsNotUtf8) {
  const Scratch scratch;
  const auto lines = read_labelled_lines(scratch.write("a", "1 caf\xE9\n1 caf\xC3\xA9\n"));
  EXPECT_EQ(lines[0].words, (Words{"caf\xC3\xA9"}));
  EXPECT_EQ(lines[1].words, lines[0].words);
}

TEST(LabelledLines, RefusesWithTheLine) {
  const Scratch scratch;
  EXPECT_EQ(refused_line([&] { read_labelled_lines(scratch.write("a", "1 x\n\n2\n")); }), 3);
  EXPECT_EQ(refused_line([&] { read_labelled_lines(scratch.write("a", std::string("1 x\n1 a\0b\n", 10))); }),
            2);
  EXPECT_EQ(refused_line([&] { read_labelled_lines(scratch.write("a", std::string("1 \xE9\0b\n", 6))); }), 1);
  EXPECT_EQ(refused_line([&] { read_labelled_lines(scratch.write("a", "1 " + std::string(70000, 'x'))); }),
            1);
  EXPECT_EQ(refused_line([&] { read_labelled_lines(scratch.write("a", "\n \n")); }), -1);
  EXPECT_EQ(refused_line([&] { read_labelled_lines(scratch.folder() / "none"); }), -1);
}

TEST(Conll, FirstColumnAndLast) {
  const Scratch scratch;
  const auto sentences =
      read_conll(scratch.write("a",
                               "-DOCSTART- -X- O O\n\nJohn NNP B-NP I-PER\nran VBD B-VP O\n"
                               "\n\n. . O O"));
  ASSERT_EQ(sentences.size(), 2u);
  EXPECT_EQ(sentences[0].words, (Words{"John", "ran"}));
  EXPECT_EQ(sentences[0].tags, (Words{"I-PER", "O"}));
  EXPECT_EQ(sentences[1].words, (Words{"."}));
}

TEST(Conll, RefusesWithTheLine) {
  const Scratch scratch;
  EXPECT_EQ(refused_line([&] { read_conll(scratch.write("a", "John B-PER\n\nran\n")); }), 3);
  EXPECT_EQ(refused_line([&] { read_conll(scratch.write("a", "John PER\n")); }), 1);
  EXPECT_EQ(refused_line([&] { read_conll(scratch.write("a", "John O\nSmith B-\n")); }), 2);
  EXPECT_EQ(refused_line([&] { read_conll(scratch.write("a", "\n\n")); }), -1);
}

}  // namespace
}  // namespace fovea::text
