// .npy files: bytes by NumPy's description of the format, and damaged files. The oracles of tests/cli read
// and write them with NumPy itself.
#include "fovea/files/npy.h"

#include <gtest/gtest.h>

#include <cstring>

#include "files/fuzz_count.h"
#include "files/mutated.h"
#include "files/scratch.h"
#include "fovea/core/error.h"
#include "fovea/files/bytes.h"

namespace fovea::files {
namespace {

class Npy : public ScratchFolder {
 protected:
  std::string refusal(const std::string& bytes) const {
    try {
      read_npy(write("x.npy", bytes));
    } catch (const FileError& error) {
      return error.what();
    }
    return "";
  }
};

std::string npy(const std::string& header, const std::string& data, char version = 1) {
  std::string bytes = std::string("\x93NUMPY") + version + '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) bytes += static_cast<char>(header.size() >> 8 * i);
  return bytes + header + data;
}

const std::string good_header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }";

TEST_F(Npy, ReadsEveryVersion) {
  const float values[] = {1.5f, -2.0f};
  const std::string data(reinterpret_cast<const char*>(values), sizeof(values));
  for (const char version : {1, 2, 3}) {
    const Tensor tensor = read_npy(write("x.npy", npy(good_header, data, version)));
    EXPECT_EQ(tensor.shape(), (Shape{2, 1}));
    EXPECT_EQ(tensor.data<float>()[1], -2.0f);
  }
}

TEST_F(Npy, RoundTrips) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{5}, Shape{2, 3, 4}}) {
      const Tensor tensor = Tensor::zeros(dtype, shape);
      for (std::size_t i = 0; i < tensor.bytes(); ++i) tensor.raw()[i] = static_cast<std::byte>(i % 63);
      write_npy(path("y.npy"), tensor);
      const Tensor again = read_npy(path("y.npy"));
      EXPECT_EQ(again.shape(), shape);
      EXPECT_EQ(again.dtype(), dtype);
      EXPECT_EQ(std::memcmp(again.raw(), tensor.raw(), tensor.bytes()), 0);
      EXPECT_EQ((read_file(path("y.npy"), 4096).size() - tensor.bytes()) % 64, 0u);
    }
  }
  EXPECT_THROW(write_npy(path("z.npy"), Tensor::zeros(DType::bf16, {1})), InvalidArgument);
  EXPECT_THROW(write_npy(path("z.npy"), Tensor()), InvalidArgument);
  EXPECT_THROW(write_npy(path("z.npy"), Tensor::without_elements(DType::f32, {2})), InvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(path("z.npy")));
}

TEST_F(Npy, NamesTheError) {
  const auto says = [&](const std::string& bytes, const std::string& words) {
    const std::string what = refusal(bytes);
    EXPECT_NE(what.find(words), std::string::npos) << what;
    EXPECT_LT(what.size(), 1000u);
  };
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string header = good_header;
    return npy(header.replace(header.find(from), from.size(), to), std::string(8, '\0'));
  };
  says(with("<f4", "<f4"), "");
  says("", "is no .npy file");
  says(std::string(100, 'x'), "is no .npy file");
  says(npy(good_header, "", 4), "expected format version 1 to 3, got 4");
  says(npy(good_header, std::string(8, '\0'), 2).substr(0, 11), "ends inside its header");
  says(npy(good_header, "").substr(0, 40), "does not fit");
  says(with("<f4", ">f4"), "expected dtype '<f4' or '<f8'");
  says(with("<f4", "<i4"), "expected dtype '<f4' or '<f8'");
  says(with("False", "True"), "expected C order");
  says(with("'shape'", "'shapes'"), "the header has no 'shape'");
  says(with("(2, 1)", "(3, 1)"), "expected [3, 1] elements of 4 bytes, got 8 bytes");
  says(with("(2, 1)", "(-2, 1)"), "sizes of at least 0");
  says(with("(2, 1)", "(4611686018427387904, 4)"), "x.npy");  // 2^64 elements: 0 if multiplied carelessly
  says(with("(2, 1), }", "(2, 1"), "expected a shape that ends with ')'");
  says(with("(2, 1)", "(1, 1, 1, 1, 1, 1, 2)"), "expected at most");
  std::string huge = npy(std::string(), "", 2);
  huge.replace(8, 4, "\xff\xff\xff\x7f");
  says(huge, "does not fit");
}

TEST_F(Npy, MutationsAreRefusedOrKeepTheirBytes) {
  const std::string data(8, '\x01');
  PhiloxStream random(20261122);
  const int count = fuzz_count(3000);
  int loaded = 0, refused = 0;
  for (int trial = 0; trial < count; ++trial) {
    const std::string bytes =
        trial % 2 ? npy(mutated(good_header, random), data) : mutated(npy(good_header, data), random);
    try {
      EXPECT_LE(read_npy(write("x.npy", bytes)).bytes(), bytes.size());
      ++loaded;
    } catch (const FileError& error) {
      EXPECT_LT(std::strlen(error.what()), 1000u);
      ++refused;
    }
  }
  EXPECT_GT(loaded, count / 30);
  EXPECT_GT(refused, count / 6);
}

}  // namespace
}  // namespace fovea::files
