// The packing of operands before they are multiplied, and the split of keys into chunks, alone, on every
// instruction set of this CPU.
#define FOVEA_WITHOUT_AVX2  // it would compile for nothing
#include "fovea/core/executor.h"
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/pack_test.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/pack_code.h"
#include "kernels/tiles/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

void RowOfTerms(const float* x, int64_t n, int64_t padded, int terms, uint16_t* to, int64_t stride) {
  PackRow(x, n, padded, terms, Terms<uint16_t>{to, stride}, 0);
}
void Narrowed(const float* row, int64_t n, bool to_bf16, uint16_t* to) {
  to_bf16 ? NarrowRow<hwy::bfloat16_t>(row, n, to) : NarrowRow<hwy::float16_t>(row, n, to);
}
constexpr int64_t kColumnBlock = 256;
size_t ColumnsBytes(const Problem<float>& p) {
  Carve carve(nullptr);
  PackKeyColumns(p, SplitOf(p), p.value, p.value_dim, kColumnBlock, 1, carve, nullptr);
  return carve.Used();
}
void Columns16(const Problem<float>& p, Executor& executor, std::byte* memory, uint16_t* at, bool* wild) {
  Carve carve(memory);
  const Split split = SplitOf(p);
  const PackedColumns packed =
      PackKeyColumns(p, split, p.value, p.value_dim, kColumnBlock, 1, carve, &executor);
  for (int64_t h = 0; h < p.kv_heads; ++h) {
    for (int64_t j = 0; j < p.key_len; ++j) {
      for (int term = 0; term < split.terms; ++term) {
        for (int64_t d = 0; d < p.value_dim; ++d)
          at[((h * p.key_len + j) * split.terms + term) * p.value_dim + d] =
              packed.At(0, h, j).of(term)[d * packed.stride];
      }
      wild[h * p.key_len + j] = packed.Wild(0, h, j);
    }
  }
}
size_t TilesBytes(const Problem<float>& p) {
  return static_cast<size_t>(TransposedSize(p, p.score_dim)) * sizeof(float);
}
void TilesOf(const Problem<float>& p, Executor& executor, std::byte* memory, float* at) {
  Packed<float> packed;
  PackTransposed(p, p.key, p.score_dim, reinterpret_cast<float*>(memory), executor, &packed);
  for (int64_t h = 0; h < p.kv_heads; ++h) {
    for (int64_t j = 0; j < p.key_len; ++j) {
      for (int64_t d = 0; d < p.score_dim; ++d)
        at[(h * p.key_len + j) * p.score_dim + d] =
            packed.Tile(0, h, j / kTileKeys)[d * packed.stride + j % kTileKeys];
    }
  }
}
void ChunksFor(const Problem<float>& p, int64_t units, int64_t* count, int64_t* keys) {
  const Chunks chunks = ChunksOf(p, units);
  *count = chunks.count;
  *keys = chunks.keys;
}

constexpr PackCode kPackCode{RowOfTerms, ZipRows,    HasInfinityOrNan, Narrowed,  ColumnsBytes,
                             Columns16,  TilesBytes, TilesOf,          ChunksFor, PartialElements<float>};

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "fovea/core/philox.h"
#include "kernels/code_here.h"

namespace fovea::testing {
namespace {

using kernels::PackCode;
using kernels::Problem;

std::vector<std::pair<std::string, PackCode>> code_here() {
  return FOVEA_CODE_HERE(PackCode, kPackCode);
}

float from_bits(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}
std::vector<float> normal_numbers(std::size_t count) {
  std::vector<float> x(count);
  PhiloxStream random(11);
  for (float& one : x) one = static_cast<float>(random.next_normal(1.0f));
  return x;
}

// One term is the nearest bf16, two leave an error of 2^-16 of a number, three leave none. Behind the row
// there are zeros.
TEST(Pack, TermsOfARowAddUp) {
  for (const auto& [name, code] : code_here()) {
    for (const std::int64_t n : {1, 15, 16, 33, 64}) {
      std::vector<float> x = normal_numbers(static_cast<std::size_t>(n));
      x[0] = 1.00390625f;  // half way between two bf16 numbers: rounds to the even one
      const std::int64_t padded = (n + 31) / 32 * 32, stride = padded + 7;
      for (const int terms : {1, 2, 3}) {
        std::vector<std::uint16_t> to(static_cast<std::size_t>(3 * stride), 0x1234);
        code.row(x.data(), n, padded, terms, to.data(), stride);
        for (std::int64_t i = 0; i < padded; ++i) {
          double sum = 0;
          for (int term = 0; term < terms; ++term)
            sum += from_bits(to[static_cast<std::size_t>(term * stride + i)]);
          const double want = i < n ? x[static_cast<std::size_t>(i)] : 0.0;
          ASSERT_LE(std::abs(sum - want), std::abs(want) * (terms == 1   ? 0x1p-8
                                                            : terms == 2 ? 0x1p-16
                                                                         : 0))
              << name;
          if (terms == 1)
            ASSERT_EQ(to[static_cast<std::size_t>(i)], bfloat16(static_cast<float>(want)).bits)
                << name << " " << want;
        }
        EXPECT_EQ(to[static_cast<std::size_t>(padded)], 0x1234) << name;
      }
    }
  }
}

// A number that is not finite is in the first term alone: the rest, infinity - infinity, would be NaN.
TEST(Pack, TermsBehindAnInfinityAreZero) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const auto& [name, code] : code_here()) {
    const std::vector<float> x{infinity, -infinity, std::nanf(""), 3.3e38f, 1.0f};
    std::vector<std::uint16_t> to(3 * 16);
    code.row(x.data(), 5, 16, 3, to.data(), 16);
    EXPECT_EQ(from_bits(to[0]), infinity) << name;
    EXPECT_EQ(from_bits(to[1]), -infinity) << name;
    EXPECT_TRUE(std::isnan(from_bits(to[2]))) << name;
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(to[16 + i], 0) << name;
      EXPECT_EQ(to[32 + i], 0) << name;
    }
  }
}

TEST(Pack, ZippedRowsStandSideBySide) {
  for (const auto& [name, code] : code_here()) {
    const std::int64_t rows = 6, columns = 48, from_stride = 50, to_stride = 51;
    std::vector<std::uint16_t> from(static_cast<std::size_t>(rows * from_stride));
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::uint16_t>(i * 40503u);
    std::vector<std::uint32_t> to(static_cast<std::size_t>(rows / 2 * to_stride), 7);
    code.zip(from.data(), rows, columns, from_stride, to.data(), to_stride);
    for (std::int64_t r = 0; r < rows / 2; ++r) {
      for (std::int64_t c = 0; c < to_stride; ++c) {
        const auto even = static_cast<std::size_t>(2 * r * from_stride + c);
        const std::uint32_t pair = c < columns ? from[even] | std::uint32_t{from[even + 50]} << 16 : 7;
        ASSERT_EQ(to[static_cast<std::size_t>(r * to_stride + c)], pair) << name << " " << r << ", " << c;
      }
    }
  }
}

TEST(Pack, FindsEveryInfinityAndNan) {
  for (const auto& [name, code] : code_here()) {
    std::vector<std::uint16_t> x(4 * 40, 0x7f7f);  // the largest finite
    EXPECT_FALSE(code.wild(x.data(), 4, 32, 40)) << name;
    for (const std::uint16_t bits : {0x7f80, 0xff80, 0x7fc0, 0xff81}) {
      for (std::size_t at = 0; at < 32; ++at) {
        std::vector<std::uint16_t> y = x;
        y[3 * 40 + at] = bits;
        EXPECT_TRUE(code.wild(y.data(), 4, 32, 40)) << name << " " << bits << " at " << at;
      }
    }
    x[32] = 0x7f80;  // behind the row
    EXPECT_FALSE(code.wild(x.data(), 4, 32, 40)) << name;
  }
}

TEST(Pack, FinishedRowsAreRoundedToTheNearest) {
  for (const auto& [name, code] : code_here()) {
    for (std::int64_t n = 1; n < 40; ++n) {
      std::vector<float> x = normal_numbers(static_cast<std::size_t>(n));
      x[0] = 1.01171875f;  // half way between two bf16 numbers, of which the larger one is even
      for (const bool to_bf16 : {true, false}) {
        std::vector<std::uint16_t> to(static_cast<std::size_t>(n + 1), 0x4321);
        code.narrow(x.data(), n, to_bf16, to.data());
        for (std::size_t i = 0; i < x.size(); ++i)
          ASSERT_EQ(to[i], to_bf16 ? bfloat16(x[i]).bits : float16(x[i]).bits) << name << " " << x[i];
        EXPECT_EQ(to[static_cast<std::size_t>(n)], 0x4321) << name;
      }
    }
  }
}

// [1, 2 heads, keys, dim], with a row stride of dim + 3.
struct Rows {
  std::vector<float> numbers;
  Problem<float> problem;
  Rows(std::int64_t keys, std::int64_t dim)
      : numbers(normal_numbers(static_cast<std::size_t>(2 * keys * (dim + 3)))) {
    problem.batch = 1;
    problem.query_heads = problem.kv_heads = 2;
    problem.query_len = 64;
    problem.key_len = keys;
    problem.score_dim = problem.value_dim = dim;
    problem.key = problem.value = {numbers.data(), 0, keys * (dim + 3), dim + 3};
  }
  float at(std::int64_t h, std::int64_t j, std::int64_t d) const { return *(problem.key.row(0, h, j) + d); }
};

TEST(Pack, ValuesStandInColumnsOfPairs) {
  for (const auto& [name, code] : code_here()) {
    for (const std::int64_t keys : {1, 31, 33, 300}) {
      for (const std::int64_t dim : {3, 16, 40}) {
        Rows rows(keys, dim);
        Problem<float>& p = rows.problem;
        p.precision = Precision::higher;  // three terms
        rows.numbers[static_cast<std::size_t>((keys - 1) * (dim + 3))] =
            std::numeric_limits<float>::infinity();
        std::vector<std::byte> memory(code.columns_bytes(p) + 64);
        std::vector<std::uint16_t> at(static_cast<std::size_t>(2 * keys * dim * 3));
        const auto wild = std::make_unique<bool[]>(static_cast<std::size_t>(2 * keys));
        void* aligned = memory.data();
        std::size_t room = memory.size();
        std::align(64, 1, aligned, room);
        code.columns(p, serial_executor(), static_cast<std::byte*>(aligned), at.data(), wild.get());
        for (std::int64_t h = 0; h < 2; ++h) {
          for (std::int64_t j = 0; j < keys; ++j) {
            const bool last_chunk = h == 0 && j / 32 == (keys - 1) / 32;
            ASSERT_EQ(wild[static_cast<std::size_t>(h * keys + j)], last_chunk) << name << " key " << j;
            for (std::int64_t d = 0; d < dim; ++d) {
              float sum = 0;
              for (std::int64_t term = 0; term < 3; ++term)
                sum += from_bits(at[static_cast<std::size_t>(((h * keys + j) * 3 + term) * dim + d)]);
              ASSERT_EQ(sum, rows.at(h, j, d)) << name << " " << keys << "x" << dim << ", key " << j;
            }
          }
        }
      }
    }
  }
}

TEST(Pack, KeysStandInTiles) {
  for (const auto& [name, code] : code_here()) {
    for (const std::int64_t keys : {1, 127, 128, 129, 400}) {
      for (const std::int64_t dim : {3, 16, 40}) {
        const Rows rows(keys, dim);
        std::vector<float> memory(code.tiles_bytes(rows.problem) / sizeof(float)),
            at(static_cast<std::size_t>(2 * keys * dim));
        code.tiles(rows.problem, serial_executor(), reinterpret_cast<std::byte*>(memory.data()), at.data());
        for (std::int64_t h = 0; h < 2; ++h) {
          for (std::int64_t j = 0; j < keys; ++j) {
            for (std::int64_t d = 0; d < dim; ++d)
              ASSERT_EQ(at[static_cast<std::size_t>((h * keys + j) * dim + d)], rows.at(h, j, d))
                  << name << " key " << j;
          }
        }
      }
    }
  }
}

// Chunks are whole tiles that cover all keys, as many as give 32 units. A call's partial results have room
// for those of every smaller call.
TEST(Chunks, CoverAllKeysAndFitTheWorkspaceOfLargerCalls) {
  for (const auto& [name, code] : code_here()) {
    Problem<float> p;
    p.value_dim = 5;
    for (const std::int64_t keys : {1, 255, 256, 257, 4096, 4097, 100'000}) {
      p.key_len = keys;
      std::int64_t room = 0;
      for (std::int64_t units = 1; units <= 70; ++units) {
        std::int64_t count = 0, size = 0;
        code.chunks(p, units, &count, &size);
        ASSERT_GE(count * size, keys) << name;
        ASSERT_LT((count - 1) * size, keys) << name;
        ASSERT_EQ(size % 128, 0) << name;
        if (units >= 32) ASSERT_EQ(count, 1) << name;
        if (keys >= 32 * 256) ASSERT_GE(count * units, std::min<std::int64_t>(units, 16)) << name;
        room = code.partials(p, units, 3);
        if (count > 1) ASSERT_GE(room, count * units * 3 * (2 + p.value_dim)) << name << " " << units;
        for (std::int64_t fewer = 1; fewer < units; ++fewer) {
          code.chunks(p, fewer, &count, &size);
          if (count > 1)
            ASSERT_GE(room, count * fewer * 3 * (2 + p.value_dim)) << name << " " << fewer << " of " << units;
        }
      }
    }
  }
}

}  // namespace
}  // namespace fovea::testing
#endif
