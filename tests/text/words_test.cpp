#include "fovea/text/words.h"

#include <gtest/gtest.h>

#include "fovea/core/error.h"

namespace fovea::text {
namespace {

using Words = std::vector<std::string>;

TEST(Words, AreSplitAtBlanksAndJoined) {
  EXPECT_EQ(split_at_blanks(" who  has\tthe key\n"), (Words{"who", "has", "the", "key"}));
  EXPECT_EQ(split_at_blanks(" \n"), Words{});
  EXPECT_EQ(joined(Words{"who", "has", "it"}), "who has it");
  EXPECT_EQ(joined(Words{}), "");
  const Words twice{"a", "a"};
  EXPECT_EQ(joined(twice), "a a");
}

TEST(Words, OfAVocabulary) {
  const Words words{"red", "ring", "a", "red"};
  const Vocabulary vocabulary = Vocabulary::of_words(words);
  EXPECT_EQ(vocabulary.size(), kNumSpecialIds + 3);
  const std::vector<std::int32_t> ids{vocabulary.id_of("a"), vocabulary.id_of("red"),
                                      vocabulary.id_of("ring")};
  EXPECT_EQ(joined(vocabulary, ids), "a red ring");
  EXPECT_EQ(vocabulary.id_of("blue"), kUnknownId);
  EXPECT_THROW(joined(vocabulary, std::vector<std::int32_t>{99}), InvalidArgument);
}

TEST(WordList, NumbersWordsByTheirPosition) {
  const WordList list{{"oslo", "rome"}, {"anna"}};
  EXPECT_EQ(list.size(), 3);
  EXPECT_EQ(list.id_of("anna"), 2);
  EXPECT_EQ(list.word(1), "rome");
  EXPECT_THROW(list.id_of("paris"), InvalidArgument);
  EXPECT_THROW(list.word(3), InvalidArgument);
  EXPECT_THROW(list.word(-1), InvalidArgument);
  EXPECT_THROW((WordList{{"oslo"}, {"oslo"}}), InvalidArgument);
}

}  // namespace
}  // namespace fovea::text
