#include "fovea/text/csv.h"

#include <gtest/gtest.h>

#include "fovea/core/error.h"
#include "text/scratch.h"

namespace fovea::text {
namespace {

using Cells = std::vector<std::string>;

std::vector<Cells> read(const std::filesystem::path& file) {
  CsvReader reader(file);
  std::vector<Cells> lines;
  while (reader.next()) lines.push_back(reader.cells());
  return lines;
}

// The error of the reader for a file of these bytes, preceded by the line's number; empty if there is no
// error.
std::string refused(const std::string& bytes) {
  const Scratch scratch;
  try {
    read(scratch.write("a", bytes));
  } catch (const FileError& error) {
    return std::to_string(error.offset()) + ": " + error.reason();
  }
  return {};
}

TEST(Csv, CellsBetweenCommas) {
  const Scratch scratch;
  EXPECT_EQ(read(scratch.write("a", "time,load,\n, 2 ,-3.5")),
            (std::vector<Cells>{{"time", "load", ""}, {"", " 2 ", "-3.5"}}));
}

TEST(Csv, QuotedCells) {
  const Scratch scratch;
  EXPECT_EQ(read(scratch.write("a", "\"a \"\"b\"\", c\",\"\",\"x\"\n5\" disk,\"\"\"\",a\"b\n")),
            (std::vector<Cells>{{"a \"b\", c", "", "x"}, {"5\" disk", "\"", "a\"b"}}));
}

TEST(Csv, AcceptsBytesThatSpreadsheetsAdd) {
  const Scratch scratch;
  EXPECT_EQ(read(scratch.write("a", "\xEF\xBB\xBF\"t\",x\r\n1,2\r\n\r\n")),
            (std::vector<Cells>{{"t", "x"}, {"1", "2"}}));
  EXPECT_EQ(read(scratch.write("b", "\xB0K\n°K\n")), (std::vector<Cells>{{"°K"}, {"°K"}}));
}

TEST(Csv, EmptyLinesCountAndAreSkipped) {
  const Scratch scratch;
  CsvReader reader(scratch.write("a", "\n\r\nx,y\n\n1,2\n\n"));
  EXPECT_EQ(reader.number(), 0);
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.number(), 3);
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.number(), 5);
  EXPECT_EQ(reader.cells(), (Cells{"1", "2"}));
  EXPECT_FALSE(reader.next());
  EXPECT_EQ(reader.number(), 6);
}

TEST(Csv, RefusesWithTheLine) {
  EXPECT_EQ(refused("x,y\n\n1,2,3\n"), "3: expected 2 cells, as in the first line, found 3");
  EXPECT_EQ(refused("x,y\n1\n"), "2: expected 2 cells, as in the first line, found 1");
  EXPECT_EQ(refused("x\n\"a\nb\"\n"), "2: has a quoted cell without an end");
  EXPECT_EQ(refused(std::string("x,y\n1,\0\n", 8)), "2: holds a NUL byte");
  EXPECT_EQ(refused(std::string("\xB0K\0\n", 4)), "1: holds a NUL byte");
  EXPECT_EQ(refused(""), "-1: has no lines");
  EXPECT_EQ(refused("\n\r\n"), "-1: has no lines");
  const Scratch scratch;
  EXPECT_THROW(CsvReader(scratch.folder() / "none"), FileError);
}

TEST(Csv, ColumnsAndLinesHaveALargestSize) {
  EXPECT_EQ(refused(std::string(CsvReader::max_columns - 1, ',')), "");
  EXPECT_EQ(refused("x\n" + std::string(CsvReader::max_columns, ',')), "2: has more than 4096 columns");
  EXPECT_EQ(refused(std::string(1 << 20, 'x')), "");
  EXPECT_EQ(refused("x\n" + std::string((1 << 20) + 1, 'x')), "2: is longer than 1048576 bytes");
}

TEST(Csv, ACallerRefusesTheCurrentLine) {
  const Scratch scratch;
  CsvReader reader(scratch.write("a", "x\n\n1\n"));
  reader.next();
  reader.next();
  try {
    reader.refuse("is odd");
    FAIL();
  } catch (const FileError& error) {
    EXPECT_EQ(error.what(), (scratch.folder() / "a").string() + " (line 3): is odd");
  }
}

TEST(Csv, OnlyFiniteNumbers) {
  EXPECT_EQ(finite_number("-2.5e1"), -25.0f);
  EXPECT_EQ(finite_number("  7 "), 7.0f);
  for (const char* cell : {"", " ", "x", "1x", "1 2", "1,5", "inf", "nan", "1e39", "0x10"})
    EXPECT_FALSE(finite_number(cell)) << cell;
}

}  // namespace
}  // namespace fovea::text
