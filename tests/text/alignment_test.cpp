#include "fovea/text/alignment.h"

#include <gtest/gtest.h>

#include "fovea/core/error.h"
#include "text/scratch.h"

namespace fovea::text {
namespace {

TEST(Pharaoh, PrintsWhatItParses) {
  const Alignment alignment{{0, 0}, {12, 3}, {2, 40}};
  EXPECT_EQ(to_pharaoh(alignment), "0-0 12-3 2-40");
  EXPECT_EQ(parse_pharaoh(to_pharaoh(alignment)), alignment);
  EXPECT_EQ(parse_pharaoh("  "), Alignment{});
}

TEST(Pharaoh, NamesTheColumnOfAMistake) {
  for (const char* word : {"0", "0-", "-1", "1--2", "a-0", "0-0x", "0:0", "9999999999-0", "2000000-0"}) {
    try {
      parse_pharaoh(std::string("1-1 ") + word);
      ADD_FAILURE() << word;
    } catch (const InvalidArgument& error) {
      EXPECT_NE(error.got().find("column 5"), std::string::npos) << error.what();
    }
  }
}

TEST(Pharaoh, FileErrorsNameTheLine) {
  const Scratch scratch;
  EXPECT_EQ(read_pharaoh(scratch.write("f", "0-0\n\n1-1 2-2\n")).size(), 3u);
  try {
    read_pharaoh(scratch.write("f", "0-0\nx\n"));
    ADD_FAILURE();
  } catch (const FileError& error) {
    EXPECT_EQ(error.offset(), 2);
  }
}

TEST(NaaclAlignments, ReadsSureAndPossible) {
  const Scratch scratch;
  const auto gold =
      read_naacl_alignments(scratch.write("f", "0001 1 1 S\n0001 2 3 P\n3 4 5\n3 1 2 P 0.5\n3 1 3 0.25\n"));
  ASSERT_EQ(gold.size(), 3u);
  EXPECT_EQ(gold[0].sure, (Alignment{{0, 0}}));
  EXPECT_EQ(gold[0].possible, (Alignment{{1, 2}}));
  EXPECT_TRUE(gold[1].sure.empty());
  EXPECT_EQ(gold[2].sure, (Alignment{{3, 4}, {0, 2}}));
  for (const char* line :
       {"1 1", "0 1 1 S", "1 0 1 S", "1 1 1 X", "1 1 1 S 0.5 9", "x 1 1 S", "99999999999 1 1 S"}) {
    EXPECT_THROW(read_naacl_alignments(scratch.write("g", line)), FileError) << line;
  }
}

// Worked by hand from the definitions.
TEST(AlignmentScore, FollowsOchAndNey) {
  const std::vector<GoldAlignment> gold{{.sure = {{0, 0}, {1, 1}, {2, 2}}, .possible = {{3, 3}, {0, 0}}}};
  const std::vector<Alignment> proposed{{{0, 0}, {1, 1}, {3, 3}, {4, 4}, {4, 4}}};
  const AlignmentScore score = score_alignments(proposed, gold);
  EXPECT_DOUBLE_EQ(score.precision(), 3.0 / 4);
  EXPECT_DOUBLE_EQ(score.recall(), 2.0 / 3);
  EXPECT_DOUBLE_EQ(score.error_rate(), 1 - (2.0 + 3.0) / (4 + 3));
  EXPECT_EQ(score.to_string(), "AER = 0.286 precision = 0.750 recall = 0.667 (4 proposed, 3 sure)");
}

TEST(AlignmentScore, Extremes) {
  const std::vector<Alignment> links{{{0, 0}, {1, 2}}, {}}, none{{}, {}};
  EXPECT_DOUBLE_EQ(score_alignments(links, as_gold(links)).error_rate(), 0);
  EXPECT_DOUBLE_EQ(score_alignments(none, as_gold(links)).error_rate(), 1);
  EXPECT_DOUBLE_EQ(score_alignments(none, as_gold(none)).error_rate(), 0);
  EXPECT_THROW(score_alignments(std::span(links).first(1), as_gold(links)), InvalidArgument);
}

TEST(MergePieces, SumsSourceAndAveragesTarget) {
  const AlignmentWeights pieces{2, 3, {0.5f, 0.25f, 0.25f, 0.0f, 0.5f, 0.5f}};
  const std::vector<std::int32_t> target{0, 0}, source{0, 0, 1};
  const AlignmentWeights words = merge_pieces(pieces, target, source);
  ASSERT_EQ(words.weights.size(), 2u);
  EXPECT_FLOAT_EQ(words.at(0, 0), (0.75f + 0.5f) / 2);
  EXPECT_FLOAT_EQ(words.at(0, 0) + words.at(0, 1), 1) << "rows still sum to 1";
  const std::vector<std::int32_t> falling{1, 0, 0}, gap{0, 2, 2}, few{0};
  EXPECT_THROW(merge_pieces(pieces, target, falling), InvalidArgument);
  EXPECT_THROW(merge_pieces(pieces, target, gap), InvalidArgument);
  EXPECT_THROW(merge_pieces(pieces, few, source), InvalidArgument);
}

TEST(HardAlignment, ArgmaxThresholdAndEndOfSentence) {
  // Row 1 attends to </s> (column 2); row 2 is the target's </s>.
  const AlignmentWeights words{3, 3, {0.2f, 0.7f, 0.1f, 0.1f, 0.2f, 0.7f, 1, 0, 0}};
  EXPECT_EQ(hard_alignment(words, {.num_targets = 2, .num_sources = 2}), (Alignment{{1, 0}}));
  EXPECT_EQ(hard_alignment(words, {.num_targets = 2, .num_sources = 3}), (Alignment{{1, 0}, {2, 1}}));
  EXPECT_EQ(hard_alignment(words, {.num_targets = 2, .num_sources = 3, .threshold = 0.8f}), Alignment{});
  EXPECT_EQ(hard_alignment({2, 2, {0.5f, 0.5f, 0.5f, 0.5f}}, {.num_targets = 1, .num_sources = 2}),
            (Alignment{{0, 0}}));
  EXPECT_THROW(hard_alignment(words, {.num_targets = 4, .num_sources = 3}), InvalidArgument);
}

}  // namespace
}  // namespace fovea::text
