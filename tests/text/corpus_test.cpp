#include "fovea/text/corpus.h"

#include <gtest/gtest.h>

#include "fovea/core/error.h"
#include "text/scratch.h"

namespace fovea::text {
namespace {

constexpr ReadOptions kSkip{.bad_line = BadLine::skip_and_count};

std::string error_of(const auto& call) {
  try {
    call();
  } catch (const FileError& error) {
    return error.what();
  }
  return "no FileError";
}

TEST(ParallelFiles, ByteOrderMarkCrlfAndMissingLastBreak) {
  const Scratch scratch;
  const auto source = scratch.write("s", "\xEF\xBB\xBFone\r\ntwo\r\n"),
             target = scratch.write("t", "un\ndeux");
  const ReadResult result = read_parallel_files(source, target);
  EXPECT_EQ(result.corpus.pairs, (std::vector<SentencePair>{{"one", "un"}, {"two", "deux"}}));
  EXPECT_EQ(result.report.to_string(), "kept 2 pairs");
}

TEST(ParallelFiles, EmptyLinesAreCounted) {
  const Scratch scratch;
  const auto source = scratch.write("s", "a\n\nc\n \n"), target = scratch.write("t", "A\nB\n\nD\n");
  const ReadResult result = read_parallel_files(source, target);
  EXPECT_EQ(result.corpus.size(), 1u);
  EXPECT_EQ(result.report.skipped_empty, 3);
  EXPECT_EQ(result.report.to_string(), "kept 1 pairs, skipped 3 (3 empty)");
}

TEST(ParallelFiles, UnequalNumbersOfLinesAreRefusedWithTheLine) {
  const Scratch scratch;
  const auto two = scratch.write("two", "a\nb\n"), three = scratch.write("three", "a\nb\nc\n");
  for (const ReadOptions& options : {ReadOptions{}, kSkip}) {
    const std::string message = error_of([&] { read_parallel_files(two, three, options); });
    EXPECT_NE(message.find("two (line 2): ends here"), std::string::npos) << message;
    EXPECT_NE(error_of([&] { read_parallel_files(three, two, options); }).find("two (line 2)"),
              std::string::npos);
  }
}

TEST(ParallelFiles, BadBytesNulAndLongLines) {
  const Scratch scratch;
  const std::string long_line(1 << 20, 'x');
  const auto good = scratch.write("good", "a\nb\nc\n");
  const std::pair<std::string, std::string> cases[] = {
      {"a\n\xC3\x28\nc\n", "(line 2): is not valid UTF-8 (byte 1"},
      {"a\nb\n\xED\xA0\x80\n", "(line 3): is not valid UTF-8"},
      {"a\nb\nc\xC3", "(line 3): is not valid UTF-8 (byte 2"},
      {std::string("a\nb\0b\nc\n", 8), "(line 2): holds a NUL byte"},
      {"a\n" + long_line + "\nc\n", "(line 2): is longer than 65536 bytes"}};
  for (const auto& [bytes, expected] : cases) {
    const auto bad = scratch.write("bad", bytes);
    const std::string message = error_of([&] { read_parallel_files(bad, good); });
    EXPECT_NE(message.find(expected), std::string::npos) << message;
    const ReadResult skipped = read_parallel_files(good, bad, kSkip);
    EXPECT_EQ(skipped.report.kept, 2);
    EXPECT_EQ(skipped.report.skipped(), 1);
    EXPECT_EQ(skipped.corpus.size(), 2u);
  }
}

TEST(ParallelFiles, LineOfExactlyTheLimitIsKept) {
  const Scratch scratch;
  const auto file =
      scratch.write("f", "\xEF\xBB\xBF" + std::string(100, 'x') + "\r\n" + std::string(100, 'y') + "\n");
  EXPECT_EQ(read_parallel_files(file, file, {.max_line_bytes = 100}).corpus.size(), 2u);
  EXPECT_THROW(read_parallel_files(file, file, {.max_line_bytes = 99}), FileError);
  EXPECT_THROW(read_parallel_files(file, file, {.max_line_bytes = 0}), InvalidArgument);
}

TEST(ParallelFiles, MaxWordsCountsEitherSide) {
  const Scratch scratch;
  const auto source = scratch.write("s", "a b c\na\na\n"), target = scratch.write("t", "A\nA B C\nA B\n");
  const ReadResult result = read_parallel_files(source, target, {.max_words = 2});
  EXPECT_EQ(result.corpus.size(), 1u);
  EXPECT_EQ(result.report.skipped_too_long, 2);
}

TEST(ParallelFiles, MissingFileAndFolder) {
  const Scratch scratch;
  const auto file = scratch.write("f", "a\n");
  EXPECT_THROW(read_parallel_files(scratch.folder() / "none", file), FileError);
  EXPECT_THROW(read_parallel_files(file, scratch.folder()), FileError);
}

TEST(Tsv, WritesWhatItReads) {
  const Scratch scratch;
  ParallelCorpus corpus{{{"the cat", "le chat"}, {"it sleeps", "il dort"}}, {{{0, 0}, {1, 1}}, {}}};
  write_tsv(corpus, scratch.folder() / "c.tsv");
  const ReadResult again = read_tsv(scratch.folder() / "c.tsv");
  EXPECT_EQ(again.corpus.pairs, corpus.pairs);
  EXPECT_EQ(again.corpus.alignments, corpus.alignments);
  corpus.pairs[0].source = "the\tcat";
  EXPECT_THROW(write_tsv(corpus, scratch.folder() / "c.tsv"), InvalidArgument);
}

TEST(Tsv, AlignmentsOnlyIfEveryLineHasOne) {
  const Scratch scratch;
  EXPECT_FALSE(read_tsv(scratch.write("f", "a\tA\t0-0\nb\tB\n")).corpus.has_alignments());
}

TEST(Tsv, WrongColumns) {
  const Scratch scratch;
  const std::pair<std::string, std::string> cases[] = {
      {"a\tA\nb\n", "(line 2): expected 2 or 3 columns, got 1"},
      {"a\tA\nb\tB\t0-0\tx\n", "got 4"},
      {"a\tA\nb\tB\t0:0\n", "third column"},
      {"a\tA\nb\tB\t0-1\n", "link 0-1 in a pair of 1 and 1 words"}};
  for (const auto& [bytes, expected] : cases) {
    const auto file = scratch.write("f", bytes);
    const std::string message = error_of([&] { read_tsv(file); });
    EXPECT_NE(message.find(expected), std::string::npos) << message;
    EXPECT_EQ(read_tsv(file, kSkip).report.skipped_columns, 1);
  }
}

TEST(Lines, KeepsEmptyOnesAndRefusesBadOnes) {
  const Scratch scratch;
  EXPECT_EQ(read_lines(scratch.write("f", "a\n\nb\n")), (std::vector<std::string>{"a", "", "b"}));
  const auto bad = scratch.write("g", "a\n\xFF\n");
  EXPECT_THROW(read_lines(bad, kSkip), FileError);
}

}  // namespace
}  // namespace fovea::text
