// Frequencies of rotary position embeddings against their papers' formulas, and the table of their angles.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "fovea/plan/rope.h"

namespace fovea::testing {
namespace {

TEST(RopeTables, FrequenciesOfTheirPapers) {
  for (const std::int64_t d : {4, 12, 64, 128}) {
    const auto frequencies = [&](RopeScaling scaling, std::int64_t sequence_len = 0) {
      return rope_frequencies({.rotary_dim = d, .scaling = scaling}, sequence_len);
    };
    const std::vector<double> plain = frequencies(NoScaling{}).inverse,
                              linear = frequencies(LinearScaling{4}).inverse,
                              ntk = frequencies(NtkScaling{4}).inverse;
    ASSERT_EQ(plain.size(), static_cast<std::size_t>(d / 2));
    for (std::size_t i = 0; i < plain.size(); ++i) {
      const double exponent = static_cast<double>(i) / static_cast<double>(d / 2);
      EXPECT_NEAR(plain[i] * std::exp(std::log(10000.0) * exponent), 1.0, 1e-14);
      EXPECT_DOUBLE_EQ(linear[i], plain[i] / 4.0);
      // Still a geometric sequence, from 1 to a quarter of the last frequency.
      EXPECT_NEAR(ntk[i] / plain[i], std::pow(0.25, static_cast<double>(i) / static_cast<double>(d / 2 - 1)),
                  1e-14);
    }
    for (const std::int64_t within : {0, 50, 100})
      EXPECT_EQ(frequencies(DynamicNtkScaling{2, 100}, within).inverse, plain);
    EXPECT_EQ(frequencies(DynamicNtkScaling{2, 100}, 250).inverse, frequencies(NtkScaling{4}).inverse);

    LongRopeScaling longrope{.original_max_positions = 100, .attention_factor = 1.25};
    for (std::int64_t i = 0; i < d / 2; ++i) {
      longrope.short_factors.push_back(1.0 + static_cast<double>(i));
      longrope.long_factors.push_back(3.0 + static_cast<double>(2 * i));
    }
    for (const auto& [length, factors] : {std::pair(0, &longrope.short_factors),
                                          {100, &longrope.short_factors},
                                          {101, &longrope.long_factors}}) {
      const RopeFrequencies scaled = rope_frequencies({.rotary_dim = d, .scaling = longrope}, length);
      for (std::size_t i = 0; i < plain.size(); ++i)
        EXPECT_DOUBLE_EQ(scaled.inverse[i], plain[i] / (*factors)[i]) << length;
      EXPECT_EQ(scaled.attention_factor, 1.25);
    }

    const double pi = std::numbers::pi;
    const std::vector<double> llama = frequencies(Llama3Scaling{8, 1, 4, 8192}).inverse;
    for (std::size_t i = 0; i < plain.size(); ++i) {
      const double wavelength = 2 * pi / plain[i], smooth = (8192 / wavelength - 1) / 3;
      const double want = wavelength < 8192.0 / 4   ? plain[i]
                          : wavelength > 8192.0 / 1 ? plain[i] / 8
                                                    : (1 - smooth) * plain[i] / 8 + smooth * plain[i];
      EXPECT_NEAR(llama[i] / want, 1.0, 1e-14) << i;
    }
  }
}

// For each pair, 1 if its frequency stays, 0 if it is divided by the factor.
std::vector<double> kept_of(const Rope& rope) {
  Rope plain = rope;
  plain.scaling = NoScaling{};
  const double slow = 1.0 / std::get<YarnScaling>(rope.scaling).factor;
  std::vector<double> kept = rope_frequencies(rope).inverse;
  const std::vector<double> before = rope_frequencies(plain).inverse;
  for (std::size_t i = 0; i < kept.size(); ++i) kept[i] = (kept[i] / before[i] - slow) / (1.0 - slow);
  return kept;
}

TEST(RopeTables, YarnSlowsByTurns) {
  const Rope rope{.rotary_dim = 128, .scaling = YarnScaling{.factor = 16, .original_max_positions = 4096}};
  Rope exact = rope;
  std::get<YarnScaling>(exact.scaling).ends = YarnScaling::Ends::exact;
  // Turns of pair i within 4096 positions are 651.9 · 10^(-i/16): 32 at i = 20.94, 1 at 45.03.
  const double log_base = std::log(10000.0) / 64;
  const auto pair_of = [&](double turns) {
    return std::log(4096 / (2 * std::numbers::pi * turns)) / log_base;
  };
  const std::vector<double> kept = kept_of(rope), kept_exactly = kept_of(exact);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const auto n = static_cast<double>(i);
    EXPECT_NEAR(kept[i], std::clamp((46 - n) / (46 - 20), 0.0, 1.0), 1e-13) << i;
    EXPECT_NEAR(kept_exactly[i], std::clamp((pair_of(1) - n) / (pair_of(1) - pair_of(32)), 0.0, 1.0), 1e-13);
  }
  // The ramp begins at pair 0, though 100 positions never make 32 turns, and ends at rotary_dim - 1.
  const std::vector<double> few =
      kept_of({.rotary_dim = 8, .scaling = YarnScaling{.factor = 2, .original_max_positions = 100}});
  const std::vector<double> low_base = kept_of(
      {.rotary_dim = 8, .base = 10, .scaling = YarnScaling{.factor = 2, .original_max_positions = 1000}});
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(few[i], (std::array{1.0, 0.5, 0.0, 0.0})[i], 1e-14) << i;
    EXPECT_NEAR(low_base[i], (std::array{1.0, 1.0, 1.0, 0.8})[i], 1e-14) << i;
  }
  // Both ends of the ramp on one pair, or beyond all pairs: a step, never a division by 0.
  for (const std::int64_t positions : {1, 7, 100, 1 << 30}) {
    for (const double beta : {1e-3, 1.0, 1e3}) {
      for (const double share :
           kept_of({.rotary_dim = 8, .scaling = YarnScaling{2, positions, beta, beta}})) {
        EXPECT_GE(share, -1e-14);
        EXPECT_LE(share, 1 + 1e-14);
      }
    }
  }
}

TEST(RopeTables, YarnMultipliesScores) {
  const auto factor = [](const RopeScaling& scaling) {
    return rope_frequencies({.rotary_dim = 8, .scaling = scaling}).attention_factor;
  };
  EXPECT_DOUBLE_EQ(factor(YarnScaling{.factor = 16, .original_max_positions = 10}),
                   0.1 * std::log(16.0) + 1.0);
  EXPECT_EQ(factor(YarnScaling{.factor = 1, .original_max_positions = 10}), 1.0);
  EXPECT_EQ(factor(YarnScaling{.factor = 16, .original_max_positions = 10, .attention_factor = 0.5}), 0.5);
  EXPECT_EQ(factor(NoScaling{}), 1.0);
}

TEST(RopeTables, StandBehindOneAnother) {
  const Rope slow{.rotary_dim = 4, .base = 500.0};
  for (const DType dtype : {DType::f32, DType::f64}) {
    const RopeTable parts[] = {RopeTable({.rotary_dim = 4}, 3, dtype), RopeTable(slow, 0, dtype),
                               RopeTable(slow, 5, dtype)};
    const RopeTable all{parts};
    EXPECT_EQ(all.positions(), 8);
    for (std::int64_t p = 0; p < 8; ++p) {
      const RopeTable& part = p < 3 ? parts[0] : parts[2];
      const std::int64_t row = p < 3 ? p : p - 3;
      const auto same = [&](ConstTensorView ours, ConstTensorView theirs) {
        if (dtype == DType::f64)
          EXPECT_EQ(ours.at<double>({p, 1}), theirs.at<double>({row, 1})) << p;
        else
          EXPECT_EQ(ours.at<float>({p, 1}), theirs.at<float>({row, 1})) << p;
      };
      same(all.cosines(), part.cosines());
      same(all.sines(), part.sines());
    }
  }
  EXPECT_THROW(RopeTable(std::span<const RopeTable>()), InvalidArgument);
  const RopeTable others[] = {RopeTable(slow, 3, DType::f32), RopeTable({.rotary_dim = 6}, 3, DType::f32)};
  EXPECT_THROW(RopeTable{others}, InvalidArgument);
}

// An angle rounded to f32 would be wrong by 0.03 here.
TEST(RopeTables, FarPositionsAreExact) {
  const std::int64_t positions = 1 << 20;
  const RopeTable wide({.rotary_dim = 4}, positions, DType::f64),
      table({.rotary_dim = 4}, positions, DType::bf16);
  ASSERT_EQ(table.cosines().dtype(), DType::f32);
  for (std::int64_t p = positions - 1000; p < positions; ++p) {
    for (std::int64_t i = 0; i < 2; ++i) {
      const long double angle = static_cast<long double>(p) * (i == 0 ? 1.0L : 0.01L);
      EXPECT_NEAR(wide.cosines().at<double>({p, i}), static_cast<double>(std::cos(angle)), 1e-10);
      EXPECT_NEAR(wide.sines().at<double>({p, i}), static_cast<double>(std::sin(angle)), 1e-10);
      EXPECT_EQ(table.cosines().at<float>({p, i}), static_cast<float>(wide.cosines().at<double>({p, i})));
      EXPECT_EQ(table.sines().at<float>({p, i}), static_cast<float>(wide.sines().at<double>({p, i})));
    }
  }
}

TEST(RopeTables, InvalidBorrowedTablesAreRefused) {
  const Tensor good(DType::f32, {5, 4});
  const auto refused = [&](const std::string& argument, const Tensor& cosines, const Tensor& sines) {
    try {
      RopeTable(cosines, sines, RopeLayout::half_split);
      ADD_FAILURE() << argument;
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.function(), "RopeTable");
      EXPECT_EQ(error.argument(), argument) << error.what();
    }
  };
  EXPECT_NO_THROW(RopeTable(good, good, RopeLayout::interleaved));
  for (const Shape shape : {Shape{4}, Shape{5, 0}, Shape{1, 2, 5, 4}, Shape{1, 32769}, Shape{}})
    refused("cosines", Tensor(DType::f32, shape), good);
  refused("cosines", Tensor(DType::f16, {5, 4}), good);
  for (const Shape shape : {Shape{5, 3}, Shape{4, 4}, Shape{1, 5, 4}})
    refused("sines", good, Tensor(DType::f32, shape));
  refused("sines", good, Tensor(DType::f64, {5, 4}));
  EXPECT_THROW(RopeTable(ConstTensorView(), good, RopeLayout::half_split), InvalidArgument);
}

TEST(RopeTables, InvalidTablesAreRefused) {
  EXPECT_THROW(RopeTable({.rotary_dim = 7}, 10, DType::f32), InvalidArgument);
  EXPECT_THROW(RopeTable({.rotary_dim = 8}, -1, DType::f32), InvalidArgument);
  EXPECT_THROW(RopeTable({.rotary_dim = 8}, std::int64_t{1} << 41, DType::f32), InvalidArgument);
  EXPECT_THROW(rope_frequencies({.rotary_dim = 8, .base = std::numeric_limits<double>::infinity()}),
               InvalidArgument);
  EXPECT_THROW(rope_frequencies({.rotary_dim = 8}, -1), InvalidArgument);
}

}  // namespace
}  // namespace fovea::testing
