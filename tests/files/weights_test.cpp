// Weights that lie in files: every type of elements, ranges, and several files.
#include "fovea/files/weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "files/scratch.h"
#include "fovea/core/error.h"
#include "fovea/files/safetensors.h"

namespace fovea::files {
namespace {

class Weights : public ScratchFolder {
 protected:
  // A file of one tensor "t" with these bytes.
  std::string one(const std::string& type, const std::string& shape, const std::string& bytes) const {
    std::string header = R"({"t":{"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":[0,)" +
                         std::to_string(bytes.size()) + "]}}";
    const std::uint64_t size = header.size();
    return write("t.safetensors", std::string(reinterpret_cast<const char*>(&size), 8) + header + bytes);
  }
  std::vector<float> elements(const std::string& path) const {
    const WeightFile file(path);
    const StoredTensor* tensor = file.find("t");
    std::vector<float> values(static_cast<std::size_t>(tensor->shape.count()));
    tensor->copy_to(values.data(), 0, tensor->shape.count());
    // One by one, and without the mapping, the elements have the same bits.
    for (std::size_t i = 0; i < values.size(); ++i) {
      float read = 0.0f;
      tensor->read_to(&read, static_cast<std::int64_t>(i), 1);
      EXPECT_EQ(std::memcmp(&read, &values[i], sizeof read), 0) << i;
    }
    return values;
  }
  template <class T>
  std::vector<float> of(const std::string& type, const std::vector<T>& values) const {
    return elements(
        one(type, "[" + std::to_string(values.size()) + "]",
            std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T))));
  }
};

std::string every_byte() {
  std::string bytes;
  for (int b = 0; b < 256; ++b) bytes.push_back(static_cast<char>(b));
  return bytes;
}

TEST_F(Weights, AreConvertedFromEveryType) {
  const std::vector<float> expected{1.0f, -2.5f, 0.0f};
  EXPECT_EQ(of<float>("F32", {1.0f, -2.5f, 0.0f}), expected);
  EXPECT_EQ(of<double>("F64", {1.0, -2.5, 0.0}), expected);
  EXPECT_EQ(of<bfloat16>("BF16", {bfloat16(1.0f), bfloat16(-2.5f), bfloat16(0.0f)}), expected);
  EXPECT_EQ(of<float16>("F16", {float16(1.0f), float16(-2.5f), float16(0.0f)}), expected);
  const std::vector<float> whole{3.0f, -4.0f, 100.0f};
  EXPECT_EQ(of<std::int64_t>("I64", {3, -4, 100}), whole);
  EXPECT_EQ(of<std::int32_t>("I32", {3, -4, 100}), whole);
  EXPECT_EQ(of<std::int16_t>("I16", {3, -4, 100}), whole);
  EXPECT_EQ(of<std::int8_t>("I8", {3, -4, 100}), whole);
  EXPECT_EQ(of<std::uint8_t>("U8", {3, 252, 100}), (std::vector<float>{3.0f, 252.0f, 100.0f}));
  EXPECT_EQ(of<std::uint8_t>("BOOL", {1, 0}), (std::vector<float>{1.0f, 0.0f}));
}

// By the definitions: sign, exponent less its bias, mantissa behind a 1 that subnormal numbers lack.
TEST_F(Weights, EightBitsMeanWhatTheirFormatsSay) {
  const auto value = [](unsigned byte, unsigned mantissa_bits, int bias) {
    const unsigned mantissa = byte & ((1u << mantissa_bits) - 1u);
    const unsigned exponent = (byte & 0x7fu) >> mantissa_bits;
    const double fraction = static_cast<double>(mantissa) / (1u << mantissa_bits);
    const double size = exponent == 0 ? std::ldexp(fraction, 1 - bias)
                                      : std::ldexp(1.0 + fraction, static_cast<int>(exponent) - bias);
    return byte & 0x80u ? -size : size;
  };
  const std::vector<float> e4m3 = elements(one("F8_E4M3", "[256]", every_byte()));
  const std::vector<float> e5m2 = elements(one("F8_E5M2", "[256]", every_byte()));
  const std::vector<float> e8m0 = elements(one("F8_E8M0", "[256]", every_byte()));
  for (unsigned byte = 0; byte < 256; ++byte) {
    if ((byte & 0x7fu) == 0x7fu)
      EXPECT_TRUE(std::isnan(e4m3[byte])) << byte;
    else
      EXPECT_EQ(e4m3[byte], value(byte, 3, 7)) << byte;
    if ((byte & 0x7fu) > 0x7cu)
      EXPECT_TRUE(std::isnan(e5m2[byte])) << byte;
    else if ((byte & 0x7fu) == 0x7cu)
      EXPECT_TRUE(std::isinf(e5m2[byte])) << byte;
    else
      EXPECT_EQ(e5m2[byte], value(byte, 2, 15)) << byte;
    if (byte == 255)
      EXPECT_TRUE(std::isnan(e8m0[byte]));
    else
      EXPECT_EQ(e8m0[byte], std::ldexp(1.0, static_cast<int>(byte) - 127)) << byte;
  }
}

TEST_F(Weights, GiveRangesAndRefuseOthers) {
  const float numbers[] = {1, 2, 3, 4, 5, 6};
  const WeightFile file(one("F32", "[2,3]", std::string(reinterpret_cast<const char*>(numbers), 24)));
  const StoredTensor* tensor = file.find("t");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->shape, (Shape{2, 3}));
  EXPECT_EQ(file.find("u"), nullptr);
  float two[2];
  tensor->copy_to(two, 4, 2);
  EXPECT_EQ(two[0], 5.0f);
  EXPECT_EQ(two[1], 6.0f);
  EXPECT_THROW(tensor->copy_to(two, 5, 2), InvalidArgument);
  EXPECT_THROW(tensor->copy_to(two, -1, 2), InvalidArgument);
  EXPECT_THROW(tensor->copy_to(two, std::numeric_limits<std::int64_t>::max(), 2), InvalidArgument);
  EXPECT_NO_THROW(tensor->copy_to(two, 6, 0));
  EXPECT_THROW(tensor->read_to(two, 5, 2), InvalidArgument);
  EXPECT_NO_THROW(tensor->read_to(two, 6, 0));
}

// A copy from the mapping would end the process.
TEST_F(Weights, ReadOfAFileThatWasCutIsAnError) {
  const float numbers[] = {1, 2, 3, 4};
  const std::string path = one("F32", "[4]", std::string(reinterpret_cast<const char*>(numbers), 16));
  const WeightFile file(path);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 4);
  float read[2];
  file.find("t")->read_to(read, 1, 2);
  EXPECT_EQ(read[1], 3.0f);
  EXPECT_THROW(file.find("t")->read_to(read, 2, 2), FileError);
}

TEST_F(Weights, RefuseWhatIsNoWeight) {
  EXPECT_THROW(WeightFile(one("C64", "[1]", "12345678")), FileError);
  EXPECT_THROW(WeightFile(one("F32", "[2]", "1234")), FileError);
  EXPECT_THROW(WeightFile(write("empty.safetensors", "")), FileError);
  EXPECT_THROW(WeightFile(path("missing.safetensors")), FileError);
  // A Tensor has no such type, and load_safetensors says which it can read.
  EXPECT_THROW(load_safetensors(one("I64", "[1]", "12345678")), FileError);
}

TEST_F(Weights, OfSeveralFilesAreOne) {
  TensorFile file;
  for (int i = 0; i < 5; ++i) {
    Tensor tensor(DType::f32, {2});
    tensor.fill(i);
    file.tensors.push_back({"t" + std::to_string(i), tensor});
  }
  save_sharded_safetensors(folder_, file, 16);
  const WeightFile weights(find_weights(folder_));
  ASSERT_EQ(weights.tensors().size(), 5u);
  for (int i = 0; i < 5; ++i) {
    float values[2];
    weights.find("t" + std::to_string(i))->copy_to(values, 0, 2);
    EXPECT_EQ(values[1], static_cast<float>(i));
  }
  std::filesystem::remove(path("model-00002-of-00003.safetensors"));
  EXPECT_THROW(WeightFile(find_weights(folder_)), FileError);
}

}  // namespace
}  // namespace fovea::files
