// Files: bytes written by hand from the format's description, and headers that contradict the file.
#include "fovea/files/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "files/scratch.h"
#include "fovea/core/philox.h"
#include "fovea/files/bytes.h"

namespace fovea::files {
namespace {

namespace fs = std::filesystem;

class Files : public ScratchFolder {};

std::string safetensors(const std::string& header, const std::string& data) {
  const std::uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), 8) + header + data;
}

// The reason in the FileError of loading; "" if it loads.
std::string refusal(const std::string& path) {
  try {
    load_safetensors(path);
  } catch (const FileError& error) {
    EXPECT_EQ(error.file(), path);
    return error.reason();
  }
  return "";
}

TEST_F(Files, ReadsTheDescribedFormat) {
  const float f32[] = {1.5f, -2.0f};
  const double f64[] = {0.1};
  const std::uint16_t f16[] = {0x3c00, 0xc000}, bf16[] = {0x3f80};
  std::string data;
  const auto add = [&](const void* from, std::size_t size) {
    data.append(static_cast<const char*>(from), size);
  };
  add(f16, 4), add(f32, 8), add(bf16, 2), add(f64, 8);
  const TensorFile file = load_safetensors(
      write("x", safetensors(R"({"b":{"dtype":"F32","shape":[2,1],"data_offsets":[4,12]},)"
                             R"("a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},)"
                             R"("__metadata__":{"who":"été"},)"
                             R"("d":{"dtype":"F64","shape":[],"data_offsets":[14,22]},)"
                             R"("n":{"dtype":"F32","shape":[0,3],"data_offsets":[4,4]},)"
                             R"("c":{"dtype":"BF16","shape":[1],"data_offsets":[12,14]}}   )",
                             data)));
  ASSERT_EQ(file.tensors.size(), 5u);
  EXPECT_EQ(file.metadata.at("who"), "été");
  EXPECT_EQ(file.find("b")->shape(), (Shape{2, 1}));
  EXPECT_EQ(file.find("b")->data<float>()[1], -2.0f);
  EXPECT_EQ(static_cast<float>(file.find("a")->data<float16>()[1]), -2.0f);
  EXPECT_EQ(static_cast<float>(file.find("c")->data<bfloat16>()[0]), 1.0f);
  EXPECT_EQ(file.find("d")->data<double>()[0], 0.1);
  EXPECT_EQ(file.find("n")->count(), 0);
  EXPECT_EQ(file.find("e"), nullptr);
}

TEST_F(Files, WritesTheDescribedFormat) {
  TensorFile file;
  Tensor a(DType::f32, {2}), b(DType::bf16, {3});
  a.data<float>()[0] = 1.0f, a.data<float>()[1] = 2.0f;
  for (int i = 0; i < 3; ++i) b.data<bfloat16>()[i] = bfloat16(static_cast<float>(i));
  file.tensors = {{"z", a}, {"a", b}};
  file.metadata["k"] = "v";
  save_safetensors(path("x"), file);
  const std::string bytes = read_file(path("x"), 4096);
  std::uint64_t size = 0;
  std::memcpy(&size, bytes.data(), 8);
  EXPECT_EQ(size % 8, 0u);
  const auto header = nlohmann::json::parse(bytes.substr(8, size));
  EXPECT_EQ(header["z"], nlohmann::json::parse(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})"));
  EXPECT_EQ(header["a"], nlohmann::json::parse(R"({"dtype":"BF16","shape":[3],"data_offsets":[8,14]})"));
  EXPECT_EQ(header["__metadata__"]["k"], "v");
  ASSERT_EQ(bytes.size(), 8 + size + 14);
  EXPECT_EQ(std::memcmp(bytes.data() + 8 + size, a.raw(), 8), 0);
  EXPECT_FALSE(fs::exists(path("x.partial")));
}

TEST_F(Files, RefusesInconsistentHeaders) {
  const auto reason = [&](const std::string& header, std::size_t data = 8) {
    return refusal(write("x", safetensors(header, std::string(data, '\0'))));
  };
  const auto entry = [](const std::string& shape, const std::string& offsets,
                        const std::string& dtype = "\"F32\"") {
    return R"({"t":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  EXPECT_EQ(reason(entry("[2]", "[0,8]")), "");  // the others differ from this one
  EXPECT_NE(reason(entry("[3]", "[0,8]")), "");
  EXPECT_NE(reason(entry("[2]", "[8,0]")), "");
  EXPECT_NE(reason(entry("[2]", "[1,9]")), "");
  EXPECT_NE(reason(entry("[2]", "[-8,0]")), "");
  EXPECT_NE(reason(entry("[2]", "[0,8,8]")), "");
  EXPECT_NE(reason(entry("[2]", "[0.0,8.0]")), "");
  EXPECT_NE(reason(entry("[2]", "null")), "");
  EXPECT_NE(reason(entry("[-2]", "[0,8]")), "");
  EXPECT_NE(reason(entry("2", "[0,8]")), "");
  EXPECT_NE(reason(entry("[2,1,1,1,1,1,1]", "[0,8]")), "");
  EXPECT_NE(reason(entry("[4611686018427387904,4]", "[0,0]")),
            "");  // 2^64 elements: 0 if multiplied carelessly
  EXPECT_NE(reason(entry("[18446744073709551615]", "[0,8]")), "");
  EXPECT_NE(reason(entry("[2]", "[0,8]", "\"I32\"")), "");
  EXPECT_NE(reason(entry("[2]", "[0,8]", "7")), "");
  EXPECT_NE(reason(R"({"t":{}})"), "");
  EXPECT_NE(reason(R"({"t":[]})"), "");
  EXPECT_NE(reason(R"({"__metadata__":{"a":1}})", 0), "");
  EXPECT_NE(reason(R"({"__metadata__":[]})", 0), "");
  EXPECT_NE(reason("[]", 0), "");
  EXPECT_NE(reason("{", 0), "");
  EXPECT_NE(reason("", 0), "");
  EXPECT_NE(reason(std::string(100'000, '['), 0), "");  // depth
  EXPECT_NE(reason("{\"\xff\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"), "");
  EXPECT_NE(reason(entry("[2]", "[0,8]"), 9).find("no tensor"), std::string::npos);
  EXPECT_NE(reason(entry("[2]", "[4,12]"), 12).find("no tensor"), std::string::npos);
}

TEST_F(Files, RefusesDuplicateNamesAndSharedBytes) {
  const std::string t = R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  EXPECT_NE(refusal(write("x", safetensors("{\"t\":" + t + ",\"t\":" + t + "}", std::string(8, 'a'))))
                .find("named 't'"),
            std::string::npos);
  // 20,000 tensors on the same 4 MB would be 80 GB if they were read before they are compared.
  std::string header = "{";
  for (int i = 0; i < 20'000; ++i) {
    header += (i ? ",\"" : "\"") + std::to_string(i) +
              R"(":{"dtype":"F32","shape":[1000000],"data_offsets":[0,4000000]})";
  }
  EXPECT_NE(refusal(write("y", safetensors(header + "}", std::string(4'000'000, 'a')))).find("overlap"),
            std::string::npos);
}

TEST_F(Files, RandomJunkIsRefused) {
  PhiloxStream random(9);
  for (int trial = 0; trial < 300; ++trial) {
    std::string junk(random.next_below(200), '\0');
    for (char& c : junk) c = static_cast<char>(random.next_u32());
    if (junk.size() >= 8 && trial % 2 == 0) {  // get past the size of the header
      const std::uint64_t size = random.next_below(static_cast<std::uint32_t>(junk.size()));
      std::memcpy(junk.data(), &size, 8);
    }
    EXPECT_NE(refusal(write("x", junk)), "");
  }
}

TEST_F(Files, RefusesFoldersAndPipes) {
  EXPECT_NE(refusal(path("none")), "");
  EXPECT_NE(refusal(folder_.string()), "");
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);  // opening it would wait for ever
  EXPECT_NE(refusal(path("pipe")), "");
  EXPECT_THROW(read_file(path("pipe"), 100), FileError);
  EXPECT_THROW(read_file(write("big", std::string(101, 'x')), 100), FileError);
}

TEST_F(Files, AFailedWriteLeavesTheOldFile) {
  write_file(path("x"), "old");
  fs::create_directory(path("x.partial"));  // so that the new file cannot be written beside
  EXPECT_THROW(write_file(path("x"), "new"), FileError);
  EXPECT_EQ(read_file(path("x"), 10), "old");
  fs::remove(path("x.partial"));
  write_file(path("x"), "new");
  EXPECT_EQ(read_file(path("x"), 10), "new");
  EXPECT_THROW(write_file(path("nowhere/x"), "new"), FileError);
  const Tensor one = Tensor::zeros(DType::f32, {1});
  EXPECT_THROW(save_safetensors(path("y"), {{{"t", one}, {"t", one}}, {}}), InvalidArgument);
  EXPECT_THROW(save_safetensors(path("y"), {{{"t", Tensor()}}, {}}), InvalidArgument);
  EXPECT_FALSE(fs::exists(path("y")));
}

// Truncations, flipped bits, junk: the result is an error with the file's name, or a well-formed file, but
// never a crash or a huge allocation.
TEST_F(Files, DamagedFilesAreRefused) {
  const std::string path = this->path("x.safetensors");
  TensorFile file;
  file.tensors = {{"a", Tensor::zeros(DType::f32, {3, 4})}, {"b", Tensor::zeros(DType::f64, {5})}};
  file.metadata["k"] = "v";
  save_safetensors(path, file);
  EXPECT_EQ(load_safetensors(path).tensors.size(), 2u);
  const std::string good = read_file(path, 1 << 20);
  const auto attempt = [&](const std::string& bytes, bool must_fail) {
    std::filesystem::remove(path);  // ext4 flushes a file that is truncated and written again
    std::ofstream(path, std::ios::binary) << bytes;
    try {
      load_safetensors(path);
      EXPECT_FALSE(must_fail);
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("x.safetensors"), std::string::npos);
    }
  };
  for (std::size_t size = 0; size < good.size(); ++size) attempt(good.substr(0, size), true);
  PhiloxStream random(5);
  for (int trial = 0; trial < 3000; ++trial) {
    std::string bad = good;
    for (std::uint32_t n = 1 + random.next_below(4); n > 0; --n) {
      bad[random.next_below(static_cast<std::uint32_t>(bad.size()))] ^=
          static_cast<char>(1u << random.next_below(8));
    }
    attempt(bad, false);
  }
  std::string huge = good;
  huge.replace(0, 8, "\xff\xff\xff\xff\xff\xff\xff\x7f");
  attempt(huge, true);
  EXPECT_THROW(load_safetensors(this->path("none")), FileError);
}

}  // namespace
}  // namespace fovea::files
