// Writing whole files: which targets are replaced, and which are written in place.
#include "fovea/files/bytes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "files/base64.h"
#include "files/scratch.h"
#include "fovea/core/error.h"

namespace fovea::files {
namespace {

class Bytes : public ScratchFolder {};

TEST_F(Bytes, ALinkStaysAndItsFileIsReplaced) {
  write("there/file", "old");
  std::filesystem::create_symlink(path("there/file"), path("link"));
  write_file(path("link"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
  EXPECT_EQ(read_file(path("there/file"), 10), "new");
  EXPECT_FALSE(std::filesystem::exists(path("there/file.partial")));
  // Writing through a link whose target does not exist creates the target.
  std::filesystem::remove(path("there/file"));
  write_file(path("link"), "again");
  EXPECT_EQ(read_file(path("link"), 10), "again");
}

TEST_F(Bytes, APipeIsWrittenInPlace) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  std::string got;
  std::thread reader([&] {
    std::ifstream pipe(path("pipe"), std::ios::binary);
    got.assign(std::istreambuf_iterator<char>(pipe), {});
  });
  write_file(path("pipe"), "through");
  reader.join();
  EXPECT_EQ(got, "through");
  EXPECT_TRUE(std::filesystem::is_fifo(path("pipe")));
  EXPECT_NO_THROW(write_file("/dev/null", "nothing"));
  EXPECT_THROW(write_file("/dev/full", "too much"), FileError);
}

// Like the shell's `--out /dev/stdout >>file`: the process that has the file open continues to write to it.
TEST_F(Bytes, AnOpenFileIsWrittenInPlace) {
  write("open", "old, and longer");
  const int file = ::open(path("open").c_str(), O_RDWR);
  ASSERT_GE(file, 0);
  struct stat before {
  }, after{};
  ASSERT_EQ(::fstat(file, &before), 0);
  for (const char* folder : {"/dev/fd/", "/proc/self/fd/"}) {
    write_file(folder + std::to_string(file), folder);
    EXPECT_EQ(read_file(path("open"), 100), folder);
    ASSERT_EQ(::stat(path("open").c_str(), &after), 0);
    EXPECT_EQ(after.st_ino, before.st_ino) << folder;
  }
  ::close(file);
}

TEST_F(Bytes, AFolderIsRefused) {
  EXPECT_THROW(write_file(folder_, "x"), FileError);
  EXPECT_THROW(read_file(folder_, 10), FileError);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  EXPECT_FALSE(std::filesystem::exists(folder_.string() + ".partial"));
}

// RFC 4648, section 10.
TEST(Base64, WritesAndReadsBytes) {
  const std::pair<std::string, std::string> known[] = {
      {"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"fooba", "Zm9vYmE="}};
  for (const auto& [bytes, text] : known) {
    EXPECT_EQ(to_base64(bytes), text);
    EXPECT_EQ(from_base64(text), bytes);
  }
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  EXPECT_EQ(from_base64(to_base64(all)), all);
  EXPECT_THROW(from_base64("Zm9*"), InvalidArgument);
}

}  // namespace
}  // namespace fovea::files
