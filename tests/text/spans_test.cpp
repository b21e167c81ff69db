#include "fovea/text/spans.h"

#include <gtest/gtest.h>

#include "fovea/core/error.h"
#include "fovea/core/philox.h"

namespace fovea::text {
namespace {

using Tags = std::vector<std::string>;
using Spans = std::vector<Span>;

TEST(Spans, OfBio) {
  EXPECT_EQ(spans_of(Tags{"B-x", "I-x", "O", "B-y", "B-y", "B-x"}),
            (Spans{{0, 2, "x"}, {3, 4, "y"}, {4, 5, "y"}, {5, 6, "x"}}));
  EXPECT_TRUE(spans_of(Tags{"O", "O"}).empty());
  EXPECT_TRUE(spans_of(Tags{}).empty());
}

// The rules of conlleval's startOfChunk and endOfChunk.
TEST(Spans, AnIWithoutASpanBeforeItBeginsOne) {
  EXPECT_EQ(spans_of(Tags{"I-x", "I-x", "O", "I-x"}), (Spans{{0, 2, "x"}, {3, 4, "x"}})) << "IOB1";
  EXPECT_EQ(spans_of(Tags{"I-x", "B-x", "I-x"}), (Spans{{0, 1, "x"}, {1, 3, "x"}}));
  EXPECT_EQ(spans_of(Tags{"B-x", "I-y", "I-y"}), (Spans{{0, 1, "x"}, {1, 3, "y"}}));
}

TEST(Spans, OfIobes) {
  EXPECT_EQ(spans_of(Tags{"S-x", "B-x", "I-x", "E-x", "B-y", "E-y"}),
            (Spans{{0, 1, "x"}, {1, 4, "x"}, {4, 6, "y"}}));
  EXPECT_EQ(spans_of(Tags{"E-x", "E-x", "S-x", "I-x"}),
            (Spans{{0, 1, "x"}, {1, 2, "x"}, {2, 3, "x"}, {3, 4, "x"}}));
  EXPECT_EQ(spans_of(Tags{"B-x", "E-x", "I-x"}), (Spans{{0, 2, "x"}, {2, 3, "x"}}));
}

TEST(Spans, RefusesOtherTags) {
  for (const char* tag : {"", "B", "B-", "Bx", "X-y", "b-x", "OO"})
    EXPECT_THROW(spans_of(Tags{tag}), InvalidArgument) << tag;
}

TEST(Spans, TagsAndBack) {
  PhiloxStream random(3);
  for (int round = 0; round < 200; ++round) {
    Spans spans;
    std::size_t at = 0;
    const std::size_t words = random.next_below(12);
    while (at < words) {
      const std::size_t end = std::min<std::size_t>(words, at + 1 + random.next_below(3));
      if (random.next_below(2)) spans.push_back({at, end, random.next_below(2) ? "x" : "y-z"});
      at = end;
    }
    EXPECT_EQ(spans_of(tags_of(spans, words)), spans);
  }
  EXPECT_THROW(tags_of(Spans{{0, 3, "x"}}, 2), InvalidArgument);
  EXPECT_THROW(tags_of(Spans{{1, 1, "x"}}, 2), InvalidArgument);
  EXPECT_THROW(tags_of(Spans{{0, 2, "x"}, {1, 3, "x"}}, 3), InvalidArgument);
}

TEST(SpanScore, CountsWholeSpans) {
  const Spans gold{{0, 2, "x"}, {3, 4, "y"}, {5, 6, "y"}};
  SpanScore score;
  score.add(gold, gold);
  EXPECT_DOUBLE_EQ(score.f1(), 1.0);
  score = {};
  score.add(Spans{{0, 2, "x"}, {3, 4, "x"}, {5, 7, "y"}, {8, 9, "y"}},
            gold);  // type wrong, end wrong, too many
  EXPECT_DOUBLE_EQ(score.precision(), 1.0 / 4);
  EXPECT_DOUBLE_EQ(score.recall(), 1.0 / 3);
  EXPECT_DOUBLE_EQ(score.f1(), 2.0 / 7);
  score.add(Spans{}, Spans{});
  EXPECT_DOUBLE_EQ(score.f1(), 2.0 / 7);
}

TEST(SpanScore, OfNoSpansIsZero) {
  EXPECT_DOUBLE_EQ(SpanScore{}.f1(), 0.0);
  SpanScore score;
  score.add(Spans{{0, 1, "x"}}, Spans{});
  EXPECT_DOUBLE_EQ(score.f1(), 0.0);
}

}  // namespace
}  // namespace fovea::text
