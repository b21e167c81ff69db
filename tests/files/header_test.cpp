// Untrusted headers of safetensors files: the memory that reading takes, and the errors.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/counted_new.h"
#include "files/fuzz_count.h"
#include "files/json_scanner.h"
#include "files/mutated.h"
#include "fovea/core/memory.h"
#include "fovea/files/safetensors.h"

namespace fovea::files {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t mega = 1 << 20;

class Headers : public testing::Test {
 protected:
  Headers() : path_((fs::temp_directory_path() / ("fovea-header-" + std::to_string(::getpid()))).string()) {}
  ~Headers() override { fs::remove(path_); }

  void write(const std::string& header, const std::string& data = "") {
    const std::uint64_t size = header.size();
    fs::remove(path_);  // ext4 flushes a file that is truncated and written again
    std::ofstream(path_, std::ios::binary).write(reinterpret_cast<const char*>(&size), 8) << header << data;
    file_size_ = static_cast<std::int64_t>(8 + header.size() + data.size());
  }

  // The error of loading, "" if it loads; cost_ becomes the peak of its memory. That counts bytes, so it
  // depends neither on a clock nor on the free memory of the machine.
  std::string load() {
    file_ = {};
    const std::int64_t before = counting::live_bytes;
    const TensorMemory tensors = tensor_memory();
    counting::peak_bytes = before;
    std::string what;
    offset_ = -1;
    try {
      file_ = load_safetensors(path_);
    } catch (const FileError& error) {
      EXPECT_EQ(error.file(), path_);
      EXPECT_GE(error.offset(), 0);
      EXPECT_LE(error.offset(), file_size_);
      EXPECT_LT(std::strlen(error.what()), 1000u);
      offset_ = error.offset();
      what = error.what();
    }
    // A large tensor costs its bytes, and not the untouched rest of a region (fovea/core/memory.h).
    const TensorMemory now = tensor_memory();
    const std::int64_t used = static_cast<std::int64_t>(now.used) - static_cast<std::int64_t>(tensors.used),
                       taken =
                           static_cast<std::int64_t>(now.taken) - static_cast<std::int64_t>(tensors.taken);
    cost_ = counting::peak_bytes - before - std::clamp<std::int64_t>(taken - used, -used, 64 * mega);
    return what;
  }

  std::string path_;
  std::int64_t file_size_ = 0, cost_ = 0, offset_ = -1;
  TensorFile file_;
};

std::string repeated(const std::string& piece, std::int64_t bytes) {
  std::string text;
  text.reserve(static_cast<std::size_t>(bytes) + piece.size());
  while (static_cast<std::int64_t>(text.size()) < bytes) text += piece;
  return text;
}

// 40 MB of '[' took 3 GB, and 20 MB of sizes 590 MB, when the header was first parsed into a document.
TEST_F(Headers, ARefusedHeaderTakesAtMostTwiceItsSize) {
  const std::string open = R"({"t":{"dtype":"F32","shape":[)", close = R"(],"data_offsets":[0,4]}})";
  const std::string entry = R"("t":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)";
  const std::pair<const char*, std::string> hostile[] = {
      {"'[' alone", std::string(4 * mega, '[')},
      {"'{' alone", std::string(4 * mega, '{')},
      {"nested objects", repeated("{\"a\":", 4 * mega)},
      {"a nested tensor", "{\"t\":" + repeated("{\"a\":", 4 * mega)},
      {"a nested shape", open + std::string(4 * mega, '[') + close},
      {"sizes", open + repeated("1,", 4 * mega) + "1" + close},
      {"a long size", open + std::string(4 * mega, '1') + close},
      {"a long name", "{\"" + std::string(4 * mega, 'n') + "\":1}"},
      {"a long name that does not end", "{\"" + std::string(4 * mega, 'n')},
      {"a long name of escapes", "{\"" + repeated("\\u00e9", 4 * mega) + "\":1}"},
      {"a long dtype", R"({"t":{"dtype":")" + std::string(4 * mega, 'F') + "\"}}"},
      {"a long key", R"({"t":{")" + std::string(4 * mega, 'k') + "\":1}}"},
      {"one name", "{" + repeated(entry, 4 * mega) + entry.substr(0, entry.size() - 1) + "}"},
      {"metadata of nothing", R"({"__metadata__":{)" + repeated(R"("a":"",)", 4 * mega) + "}}"},
      {"blanks", std::string(4 * mega, ' ')},
      {"blanks behind it", "{}" + std::string(4 * mega, ' ') + "x"},
  };
  for (const auto& [name, header] : hostile) {
    write(header, "1234");
    EXPECT_NE(load(), "") << name;
    EXPECT_LE(cost_, 2 * file_size_ + mega) << name;
  }
}

TEST_F(Headers, ALoadedHeaderTakesAFewTimesItsSize) {
  std::string scalars = "{", empty = "{", metadata = R"({"__metadata__":{)";
  const int count = 20'000;
  for (int i = 0; i < count; ++i) {
    const std::string comma = i ? "," : "", name = comma + '"' + std::to_string(i) + '"';
    scalars += name + R"(:{"dtype":"F32","shape":[],"data_offsets":[)" + std::to_string(4 * i) + "," +
               std::to_string(4 * i + 4) + "]}";
    empty += name + R"(:{"dtype":"F64","shape":[0],"data_offsets":[0,0]})";
    if (i < 10'000) metadata += name + R"(:"")";
  }
  write(scalars + "}", std::string(4 * count, '\0'));
  EXPECT_EQ(load(), "");
  EXPECT_EQ(file_.tensors.size(), 20'000u);
  // A tensor is an object of 80 bytes and its own 64 aligned ones, and its name is a string.
  EXPECT_LE(cost_, 8 * file_size_ + mega);
  write(empty + "}");
  EXPECT_EQ(load(), "");
  EXPECT_LE(cost_, 8 * file_size_ + mega);
  write(metadata + "}}");
  EXPECT_EQ(load(), "");
  EXPECT_LE(cost_, 2 * file_size_ + 2 * mega);
  write(R"({"__metadata__":{"long":")" + repeated("text", 4 * mega) + "\"}}");
  EXPECT_EQ(load(), "");
  EXPECT_LE(cost_, 3 * file_size_ + mega);
  const std::string data(4 * mega, 'd');
  write(R"({"t":{"dtype":"F32","shape":[1048576],"data_offsets":[0,4194304]}})", data);
  EXPECT_EQ(load(), "");
  EXPECT_LE(cost_, 2 * file_size_ + mega);
}

TEST_F(Headers, AHeaderBeyondTheFormatsLimitIsNotRead) {
  const std::uint64_t size = 100'000'001;
  std::ofstream(path_, std::ios::binary).write(reinterpret_cast<const char*>(&size), 8);
  fs::resize_file(path_, size + 8);  // sparse
  file_size_ = static_cast<std::int64_t>(size + 8);
  EXPECT_NE(load().find("100,000,000"), std::string::npos);
  EXPECT_LE(cost_, mega);
}

TEST_F(Headers, ErrorsSayWhereAndWhat) {
  const auto says = [&](const std::string& header, std::int64_t byte, const std::string& words) {
    write(header, std::string(8, '\0'));
    EXPECT_NE(load().find(words), std::string::npos) << load();
    EXPECT_EQ(offset_, 8 + byte) << load();
  };
  const std::string t = R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  says("[]", 0, "expected an object of tensors, got an array");
  says("x", 0, "syntax error: expected an object of tensors, got 'x'");
  says("{\"t\":" + t, 53, "syntax error: expected ',' or '}', got the end of the text");
  says("{\"t\" 1}", 5, "syntax error: expected ':', got '1'");
  says("{\"t\":" + t + ",}", 54, "syntax error: expected a key, got '}'");
  says("{\"t\":" + t + ",\"t\":" + t + "}", 54, "two entries are named 't'");
  says("{\"t\":" + t + ",\"u\":" + t + "}", 107, "two tensors overlap, ");
  says(R"({"t":{"dtype":"I32"}})", 14, "tensor 't': expected dtype F32, F64, BF16 or F16, got 'I32'");
  says(R"({"t":{"dtype":"F32","dtype":"F32"}})", 20, "tensor 't': has two values of dtype");
  says(R"({"t":{"more":1}})", 6, "tensor 't': expected dtype, shape or data_offsets, got 'more'");
  says(R"({"t":{"shape":[1e999]}})", 15, "tensor 't': expected a size, got 1e999");
  says(R"({"t":{"shape":[99999999999999999999]}})", 15,
       "expected a size below 2^64, got 99999999999999999999");
  says("{\"t\xc3\":1}", 3, "syntax error: expected UTF-8 in a string, got byte 0xc3");
  says(R"({"__metadata__":{"k":1}})", 21, "metadata 'k': expected text, got a number");
  says(R"({"__metadata__":{"k":"","k":""}})", 28, "metadata 'k': is there twice");
  says(R"({"__metadata__":{},"__metadata__":{}})", 19, "two entries are named '__metadata__'");
}

// A header that loads has the contents that another parser reads; a header that the other parser refuses is
// refused.
TEST_F(Headers, MutationsAreRefusedOrReadAsAnotherParserReadsThem) {
  const std::string good =
      R"({"__metadata__":{"format":"pt","é\n":"\u00e9"},"b":{"dtype":"F32","shape":[2,1],"data_offsets":[4,12]},)"
      R"("a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},"d":{"shape":[],"data_offsets":[12,20],"dtype":"F64"}})";
  const std::string data(20, '\x01');
  write(good, data);
  ASSERT_EQ(load(), "");
  PhiloxStream random(20261122);
  const int count = fuzz_count(4000);
  int loaded = 0, refused = 0;
  for (int trial = 0; trial < count; ++trial) {
    const std::string header = mutated(good, random);
    write(header, data);
    const std::string what = load();
    EXPECT_LE(cost_, 8 * file_size_ + 100'000) << header;
    ++(what.empty() ? loaded : refused);
    if (!what.empty()) continue;
    const auto theirs = nlohmann::json::parse(header, nullptr, false);
    ASSERT_TRUE(theirs.is_object()) << header;
    std::size_t tensors = 0;
    for (const auto& [name, entry] : theirs.items()) {
      if (name == "__metadata__") {
        EXPECT_EQ((entry.get<std::map<std::string, std::string>>()), file_.metadata) << header;
        continue;
      }
      ++tensors;
      const Tensor* tensor = file_.find(name);
      ASSERT_TRUE(tensor) << header;
      const auto sizes = tensor->shape().sizes();
      EXPECT_EQ(entry["shape"].get<std::vector<std::int64_t>>(),
                (std::vector<std::int64_t>(sizes.begin(), sizes.end())));
      EXPECT_EQ(entry["data_offsets"][1].get<std::uint64_t>() - entry["data_offsets"][0].get<std::uint64_t>(),
                tensor->bytes());
    }
    EXPECT_EQ(tensors, file_.tensors.size()) << header;
  }
  EXPECT_GT(loaded, count / 80);
  EXPECT_GT(refused, count / 4);
}

TEST(ConfigText, MutationsAreRefusedWhereAnotherParserRefusesThem) {
  const std::string good =
      "{\n \"model_type\": \"fovea-rnn\",\n \"vocab_size\": 13, \"list\": [1, -2.5e3, true, {\"é\": null}],\n"
      " \"dropout\": 0.1\n}\n";
  PhiloxStream random(7);
  const int count = fuzz_count(20'000);
  int accepted = 0, refused = 0;
  for (int trial = 0; trial < count; ++trial) {
    const std::string text = mutated(good, random);
    const auto theirs = nlohmann::json::parse(text, nullptr, false);
    std::string what;
    try {
      check_json_object("config.json", text, 8);
    } catch (const FileError& error) {
      what = error.what();
    }
    ++(what.empty() ? accepted : refused);
    if (what.empty()) {
      EXPECT_TRUE(theirs.is_object()) << text;
    } else if (theirs.is_object()) {
      // Valid JSON is refused only by rules of our own. The other parser takes a zero byte for the end of the
      // text, which 10^7 inputs meet.
      EXPECT_TRUE(what.find("two values of") != std::string::npos || what.find("nest") != std::string::npos ||
                  what.find("expected the end of the text, got byte 0x00") != std::string::npos)
          << what << "\n"
          << text;
    }
  }
  EXPECT_GT(accepted, count / 40);
  EXPECT_GT(refused, count / 4);
}

}  // namespace
}  // namespace fovea::files
