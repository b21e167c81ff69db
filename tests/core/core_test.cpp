#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/pieces.h"
#include "core/rounding.h"
#include "core/utf8.h"
#include "fovea/core/executor.h"
#include "fovea/core/philox.h"
#include "fovea/core/tensor.h"

namespace fovea {
namespace {

// The known-answer vectors of Random123 (kat_vectors, philox4x32 10 rounds).
TEST(Philox, KnownAnswers) {
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const std::uint32_t f = 0xffffffff;
  EXPECT_EQ(philox4x32({f, f, f, f}, 0xffffffffffffffffu),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822u),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, StreamGoesOnFromItsPosition) {
  PhiloxStream whole(7);
  for (int i = 0; i < 5; ++i) whole.next_u32();
  PhiloxStream later(7, whole.position());
  for (int i = 0; i < 9; ++i) EXPECT_EQ(later.next_u32(), whole.next_u32());
}

TEST(Float16, EveryValueGoesThroughFloatAndBack) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    float16 half;
    half.bits = static_cast<std::uint16_t>(bits);
    const auto wide = static_cast<float>(half);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(float16(wide))));
    } else {
      ASSERT_EQ(float16(wide).bits, bits);
    }
  }
  EXPECT_EQ(float16(65519.0f).bits, 0x7bff);  // rounds down to the largest finite value
  EXPECT_EQ(float16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(float16(1.0f + 0x1p-11f).bits, 0x3c00);  // a tie goes to even
}

TEST(BFloat16, RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(bfloat16(1.0f + 0x1p-8f).bits, 0x3f80);
  EXPECT_EQ(bfloat16(1.0f + 3 * 0x1p-8f).bits, 0x3f82);
  EXPECT_TRUE(std::isnan(static_cast<float>(bfloat16(std::nanf("1")))));
}

// Rows are rounded by vectors, whose lanes take every case: around ties, the largest and the subnormal
// numbers, infinities and NaN.
TEST(RoundRow, IsTheRoundingOfItsElements) {
  std::vector<float> x;
  for (std::uint32_t high = 0; high < 65536; ++high) {
    for (const std::uint32_t low : {0x0u, 0x1u, 0xfffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      x.push_back(std::bit_cast<float>(high << 16 | low));
  }
  const auto check = [&](auto type) {
    using T = decltype(type);
    std::vector<T> rounded(x.size());
    round_row(x.data(), std::ssize(x), rounded.data());
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(rounded[i].bits, T(x[i]).bits) << x[i];
  };
  check(bfloat16{});
  check(float16{});
}

TEST(Pieces, CoverEveryElementOnceWhateverOneCosts) {
  for (const std::int64_t count : {0, 1, 1000, 100000}) {
    for (const std::int64_t cost : {0, 1, 700, 1 << 20}) {
      std::vector<std::atomic<int>> seen(static_cast<std::size_t>(count));
      for_pieces(
          count,
          [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
          },
          cost);
      for (const std::atomic<int>& times : seen) ASSERT_EQ(times, 1) << count << " " << cost;
    }
  }
}

// Table 3-8 of the Unicode Standard and its neighbours: how many bytes one U+FFFD stands for.
TEST(Utf8, FindsCharactersAndTheLongestBeginningsOfThem) {
  struct Case {
    const char* text;
    std::size_t bytes;
    char32_t code;  // 0: ill-formed
  };
  const Case cases[] = {{"a", 1, U'a'},
                        {"\xC3\xA9", 2, 0xE9},
                        {"\xE2\x82\xAC", 3, 0x20AC},
                        {"\xF0\x9F\x98\x80", 4, 0x1F600},
                        {"\xF4\x8F\xBF\xBF", 4, 0x10FFFF},
                        {"\x80", 1, 0},
                        {"\xC0\xAF", 1, 0},
                        {"\xC3", 1, 0},
                        {"\xC3(", 1, 0},
                        {"\xE0\x9F\xBF", 1, 0},
                        {"\xED\xA0\x80", 1, 0},
                        {"\xE1\x80\xE2", 2, 0},
                        {"\xF0\x8F\xBF\xBF", 1, 0},
                        {"\xF1\x80\x80", 3, 0},
                        {"\xF1\x80\x80(", 3, 0},
                        {"\xF4\x90\x80\x80", 1, 0},
                        {"\xF5\x80", 1, 0}};
  for (const Case& one : cases) {
    const Utf8Character found = utf8_character(std::string("-") + one.text, 1);
    EXPECT_EQ(found.bytes, one.bytes) << ::testing::PrintToString(one.text);
    EXPECT_EQ(found.valid, one.code != 0) << ::testing::PrintToString(one.text);
    if (one.code != 0) EXPECT_EQ(found.code, one.code);
  }
}

TEST(Shape, RefusesInvalidSizes) {
  EXPECT_THROW(Shape({2, -1}), InvalidArgument);
  EXPECT_THROW((Shape{std::int64_t{1} << 40, std::int64_t{1} << 40}), InvalidArgument);
  EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1, 1}), InvalidArgument);
  EXPECT_EQ(to_string(Shape{2, 3}), "[2, 3]");
}

TEST(Tensor, CopiesShareAndClonesDoNot) {
  Tensor a = Tensor::zeros(DType::f32, {2, 3});
  const Tensor b = a, c = a.clone();
  a.data<float>()[4] = 5.0f;
  EXPECT_EQ(b.data<float>()[4], 5.0f);
  EXPECT_EQ(c.data<float>()[4], 0.0f);
  EXPECT_THROW(a.data<double>(), InvalidArgument);
  EXPECT_THROW(a.reshape({7}), InvalidArgument);
  EXPECT_THROW(a.view().slice(1, 2, 2), InvalidArgument);
}

TEST(Tensor, InvalidSizesAreRefused) {
  EXPECT_FALSE(Tensor().clone());
  EXPECT_THROW(Tensor(DType::f64, {std::int64_t{1} << 60}), InvalidArgument);  // 2^63 bytes
  const Tensor tensor = Tensor::zeros(DType::f32, {4, 2});
  EXPECT_THROW(tensor.view().slice(0, 1, std::numeric_limits<std::int64_t>::max()), InvalidArgument);
  EXPECT_THROW(tensor.view().slice(0, 5, 0), InvalidArgument);
  EXPECT_EQ(tensor.view().slice(0, 4, 0).count(), 0);
}

TEST(Tensor, AnEmptyOneHasNothingToFill) {
  Tensor none, shape = Tensor::without_elements(DType::f32, {2, 3});
  EXPECT_EQ(none.rank(), 0);
  EXPECT_EQ(none.count(), 1);
  EXPECT_THROW(none.fill(1.0), InvalidArgument);
  EXPECT_THROW(shape.fill(1.0), InvalidArgument);
  Tensor no_rows(DType::f32, {0, 3});
  EXPECT_NO_THROW(no_rows.fill(1.0));
}

TEST(Tensor, CopyOfAStridedViewIsContiguous) {
  std::vector<float> values(24);
  std::iota(values.begin(), values.end(), 0.0f);
  const std::int64_t strides[] = {1, 6};
  const Tensor copy = Tensor::copy_of(
      ConstTensorView(reinterpret_cast<const std::byte*>(values.data()), DType::f32, {3, 4}, strides));
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 4; ++j) EXPECT_EQ(copy.data<float>()[i * 4 + j], static_cast<float>(i + 6 * j));
  }
}

TEST(Executor, RunsEveryUnitOnceAndRethrows) {
  for (const int threads : {1, 2, 3, 7}) {
    const auto pool = make_thread_pool(threads);
    std::vector<std::atomic<int>> count(1000);
    pool->parallel_for(1000, [&](std::int64_t unit, int worker) {
      EXPECT_LT(worker, threads);
      ++count[static_cast<std::size_t>(unit)];
      pool->parallel_for(2, [](std::int64_t, int) {});  // from inside: serial, and no deadlock
    });
    for (const auto& n : count) EXPECT_EQ(n, 1);
    EXPECT_THROW(pool->parallel_for(100,
                                    [](std::int64_t unit, int) {
                                      if (unit == 50) throw Error("here");
                                    }),
                 Error);
    pool->parallel_for(3, [](std::int64_t, int) {});  // still usable
  }
  EXPECT_THROW(make_thread_pool(0), InvalidArgument);
}

// The same rows of loops one behind the other then stay with one core.
TEST(Executor, AWorkerBeginsWithItsOwnStretchAndHelpsWhereItIsDone) {
  const std::unique_ptr<Executor> pool = make_thread_pool(2);
  std::atomic<bool> end_reached{false};
  std::atomic<int> helped{0}, helped_before_the_end{-1};
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  pool->parallel_for(10, [&](std::int64_t unit, int) {
    if (unit >= 1 && unit < 5) ++helped;
    if (unit == 9) {
      helped_before_the_end = helped.load();
      end_reached = true;
    }
    // The first stretch waits in unit 0 until the second is at its end.
    while (unit == 0 && !end_reached && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  });
  EXPECT_EQ(helped_before_the_end, 0);
  EXPECT_EQ(helped, 4);
}

// Loops end while workers are still on their way to them, and the next one begins at once in other memory.
TEST(Executor, LateWorkersDoNoHarm) {
  for (const int threads : {2, 3, 5}) {
    const std::unique_ptr<Executor> pool = make_thread_pool(threads);
    for (int loop = 0; loop < 20000; ++loop) {
      std::vector<int> done(static_cast<std::size_t>(loop % 7), 0);
      const auto body = [&](std::int64_t unit, int worker) {
        ASSERT_LT(worker, threads);
        ++done[static_cast<std::size_t>(unit)];
        if (loop % 31 == 30 && unit == 3) throw std::runtime_error("stop");
      };
      try {
        pool->parallel_for(std::ssize(done), body);
        ASSERT_EQ(done, std::vector<int>(done.size(), 1)) << loop;
      } catch (const std::runtime_error&) {
        ASSERT_EQ(loop % 31, 30);
      }
      if (loop % 100 == 0)
        std::this_thread::sleep_for(std::chrono::microseconds(100));  // workers fall asleep
    }
  }
}

}  // namespace
}  // namespace fovea
