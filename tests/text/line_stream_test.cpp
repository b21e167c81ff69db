// Lines that come by and by.
#include "fovea/text/line_stream.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

#include "fovea/core/error.h"
#include "text/scratch.h"

namespace fovea::text {
namespace {

std::vector<std::string> texts(const std::vector<CheckedLine>& lines) {
  std::vector<std::string> all;
  for (const CheckedLine& line : lines) all.push_back(line.text);
  return all;
}

// Opened by its path, as `fovea translate --input <(...)` does.
class Pipe {
 public:
  Pipe() { EXPECT_EQ(::pipe(ends_.data()), 0); }
  ~Pipe() {
    ::close(ends_[0]);
    close();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  std::string path() const { return "/dev/fd/" + std::to_string(ends_[0]); }
  void write(const std::string& bytes) const {
    EXPECT_EQ(::write(ends_[1], bytes.data(), bytes.size()), std::ssize(bytes));
  }
  void close() {
    if (ends_[1] >= 0) ::close(ends_[1]);
    ends_[1] = -1;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

using Texts = std::vector<std::string>;

TEST(LineStream, WindowsHoldTheLinesOfAFileInOrder) {
  const Scratch scratch;
  const auto file = scratch.write("lines", "\xEF\xBB\xBFone\r\n\n\xFFthree\nfour\nfive");
  LineStream stream(file, {.max_line_bytes = 5, .most_lines = 2});
  EXPECT_EQ(texts(stream.next()), (Texts{"one", ""}));
  EXPECT_EQ(stream.expected_lines(), 5);  // of 25 bytes two lines have 9
  const std::vector<CheckedLine> bad = stream.next();
  EXPECT_EQ(texts(bad), (Texts{"", "four"}));
  EXPECT_EQ(bad[0].problem, "is longer than 5 bytes");
  EXPECT_EQ(bad[1].number, 4);
  EXPECT_EQ(texts(stream.next()), (Texts{"five"}));
  EXPECT_EQ(stream.expected_lines(), 5);
  EXPECT_TRUE(stream.next().empty());
  EXPECT_TRUE(stream.next().empty());
}

TEST(LineStream, AWindowHasNoMoreThanItsBytes) {
  const Scratch scratch;
  LineStream stream(scratch.write("lines", "aaaa\nbbbb\ncccc\n\n\n\n\n\n\n\n"), {.most_bytes = 6});
  EXPECT_EQ(texts(stream.next()), (Texts{"aaaa", "bbbb"}));
  EXPECT_EQ(texts(stream.next()), (Texts{"cccc", ""}));
  EXPECT_EQ(texts(stream.next()), Texts(6));  // empty lines have a byte each
}

// A window is closed where the next line is not yet whole, and that line is not lost.
TEST(LineStream, AWindowOfAPipeHasWhatIsThere) {
  Pipe pipe;
  LineStream stream(pipe.path());
  EXPECT_EQ(stream.expected_lines(), std::nullopt);
  pipe.write("one\ntwo\nthr");
  EXPECT_EQ(texts(stream.next()), (Texts{"one", "two"}));
  pipe.write("ee\n");
  EXPECT_EQ(texts(stream.next()), (Texts{"three"}));
  pipe.write("four");
  pipe.close();
  EXPECT_EQ(texts(stream.next()), (Texts{"four"}));
  EXPECT_TRUE(stream.next().empty());
  EXPECT_EQ(stream.expected_lines(), 4);
}

// Whoever waits may end the input. The part of a line that is there by then is none.
TEST(LineStream, EndsWhereTheWaitSaysSo) {
  Pipe pipe;
  int waits = 0;
  LineStream stream(pipe.path(), {.wait = [&](int) { return ++waits == 1; }});
  pipe.write("one\nha");
  EXPECT_EQ(texts(stream.next()), (Texts{"one"}));
  EXPECT_TRUE(stream.next().empty());
  EXPECT_EQ(waits, 2);
}

TEST(LineStream, TellsWhatIsThereWithoutWaiting) {
  using Waiting = LineStream::Waiting;
  Pipe pipe;
  LineStream stream(pipe.path());
  EXPECT_TRUE(stream.next(Waiting::refused).empty());
  EXPECT_FALSE(stream.ended());
  pipe.write("one\ntw");
  EXPECT_EQ(texts(stream.next(Waiting::refused)), (Texts{"one"}));
  EXPECT_TRUE(stream.next(Waiting::refused).empty());
  EXPECT_FALSE(stream.ended());
  pipe.write("o\n");
  pipe.close();
  EXPECT_EQ(texts(stream.next(Waiting::refused)), (Texts{"two"}));
  EXPECT_TRUE(stream.next(Waiting::refused).empty());
  EXPECT_TRUE(stream.ended());
}

TEST(LineStream, LeavesOutBlankLinesAndCountsThem) {
  const Scratch scratch;
  LineStream stream(scratch.write("lines", "\n  \none\n\t\n\xFF\n\n"),
                    {.most_lines = 1, .blank_lines = BlankLines::left_out});
  const std::vector<CheckedLine> first = stream.next(), second = stream.next();
  EXPECT_EQ(texts(first), (Texts{"one"}));
  EXPECT_EQ(first[0].number, 3);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].number, 5);
  EXPECT_NE(second[0].problem, "");
  EXPECT_TRUE(stream.next().empty());
  EXPECT_TRUE(stream.ended());
}

// open() would wait for a writer, and no wait could end it.
TEST(LineStream, OpensANamedPipeThatNobodyWritesTo) {
  const Scratch scratch;
  const auto fifo = scratch.folder() / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  int waits = 0;
  LineStream stopped(fifo, {.wait = [&](int) { return ++waits, false; }});
  EXPECT_TRUE(stopped.next().empty());
  EXPECT_EQ(waits, 1);
  LineStream stream(fifo, {.wait = [](int) { return true; }});
  EXPECT_TRUE(stream.next(LineStream::Waiting::refused).empty());
  EXPECT_FALSE(stream.ended());
  const int writer = ::open(fifo.c_str(), O_WRONLY | O_CLOEXEC);
  EXPECT_EQ(::write(writer, "one\n", 4), 4);
  EXPECT_EQ(texts(stream.next()), (Texts{"one"}));
  ::close(writer);
  EXPECT_TRUE(stream.next().empty());
}

TEST(LineStream, RefusesWhatItCannotRead) {
  const Scratch scratch;
  EXPECT_THROW(LineStream(scratch.folder() / "nowhere"), FileError);
  EXPECT_THROW(LineStream(scratch.folder()), FileError);
  const auto file = scratch.write("lines", "a\n");
  EXPECT_THROW(LineStream(file, {.max_line_bytes = 0}), InvalidArgument);
  EXPECT_THROW(LineStream(file, {.most_lines = 0}), InvalidArgument);
  EXPECT_THROW(LineStream(file, {.most_bytes = 0}), InvalidArgument);
}

}  // namespace
}  // namespace fovea::text
