// The errors of products of bf16 terms. They are compared with the reference in double, on the numbers that
// the operands hold.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "fovea/attention/masks.h"
#include "plan/cases.h"
#include "plan/differences.h"

namespace fovea::testing {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

std::vector<std::string> kernels_here(std::initializer_list<const char*> isas) {
  std::vector<std::string> here;
  for (const KernelInfo& info : instruction_sets()) {
    for (const char* isa : isas) {
      if (info.isa == isa && info.available) here.push_back(info.isa);
    }
  }
  return here;
}
std::vector<std::string> tile_kernels_here() {
  return kernels_here({"amx", "avx512bf16", "tiles"});
}

Tensor normal_tensor(DType dtype, Shape shape, std::uint64_t seed, double deviation = 1.0) {
  Tensor tensor(dtype, shape);
  PhiloxStream random(seed);
  for (std::int64_t i = 0; i < tensor.count(); ++i)
    set_element(tensor, i, random.next_normal(static_cast<float>(deviation)));
  return tensor;
}
struct Call {
  AttentionSpec spec;
  AttentionShape shape;
  Tensor query, key, value, d_output;

  Call(AttentionSpec the_spec, const AttentionShape& the_shape, DType dtype, double deviation = 1.0)
      : spec(std::move(the_spec)), shape(the_shape) {
    const AttentionShape& s = shape;
    query = normal_tensor(dtype, {s.batch, s.num_query_heads, s.query_len, s.head_dim}, 1, deviation);
    key = normal_tensor(dtype, {s.batch, s.num_kv_heads, s.key_len, s.head_dim}, 2, deviation);
    value = normal_tensor(dtype, {s.batch, s.num_kv_heads, s.key_len, s.value_dim}, 3);
    d_output = normal_tensor(dtype, {s.batch, s.num_query_heads, s.query_len, s.value_dim}, 4);
  }
};

struct Outcome {
  Tensor output, log_sum_exp, d_query, d_key, d_value;
};
Outcome run(const Call& c, const std::string& kernel, Precision precision) {
  const DType dtype = c.query.dtype(), wide = dtype == DType::f64 ? DType::f64 : DType::f32;
  const AttentionPlan plan =
      make_plan(c.spec, c.shape, {.dtype = dtype, .precision = precision, .kernel = kernel});
  Outcome r{Tensor(dtype, c.d_output.shape()),
            Tensor(wide, {c.shape.batch, c.shape.num_query_heads, c.shape.query_len}),
            Tensor(dtype, c.query.shape()), Tensor(dtype, c.key.shape()), Tensor(dtype, c.value.shape())};
  const AttentionInputs in{.query = c.query, .key = c.key, .value = c.value};
  attend(plan, in, {.output = r.output, .log_sum_exp = r.log_sum_exp});
  attend_backward(plan, in, r.output, r.log_sum_exp, c.d_output,
                  {.query = r.d_query, .key = r.d_key, .value = r.d_value});
  return r;
}
Outcome exact(const Call& c) {
  Call wide = c;
  for (Tensor* t : {&wide.query, &wide.key, &wide.value, &wide.d_output}) *t = in_double(*t);
  return run(wide, "reference", Precision::full);
}

Call normal_call(DType dtype) {
  return Call({.mask = Causal{}},
              {.batch = 1,
               .num_query_heads = 4,
               .num_kv_heads = 2,
               .query_len = 200,
               .key_len = 333,
               .head_dim = 72,
               .value_dim = 40},
              dtype);
}

// Expects every gradient to be as close to `want` as `beside` is, times `factor` plus `more`.
void expect_gradients_beside(const Outcome& got, const Outcome& want, const Outcome& beside, double factor,
                             double more, const std::string& name) {
  for (const auto& [gradient, of] : {std::pair{&Outcome::d_query, "query"}, std::pair{&Outcome::d_key, "key"},
                                     std::pair{&Outcome::d_value, "value"}})
    EXPECT_LT(relative_distance(got.*gradient, want.*gradient),
              factor * relative_distance(beside.*gradient, want.*gradient) + more)
        << name << ", " << of;
}

// Rounding the output to bf16, and each weight before its product, loses at most 2^-8 each, spread evenly.
// The mean error of each is a root of a third of that, and the two add as squares. The error of the coarse
// powers of 2 is negligible beside them.
TEST(Tiles, OutputsOfBf16AreWithinTheirRoundings) {
  const Call c = normal_call(DType::bf16);
  const Outcome want = exact(c);
  for (const std::string& kernel : tile_kernels_here()) {
    const Outcome got = run(c, kernel, Precision::full);
    EXPECT_LT(relative_distance(got.output, want.output), 0x1p-8 * std::sqrt(2.0 / 3.0)) << kernel;
    for (std::int64_t i = 0; i < want.log_sum_exp.count(); ++i)
      ASSERT_NEAR(element(got.log_sum_exp, i), element(want.log_sum_exp, i), 1e-5) << kernel;
  }
}

// Compared with the f32 kernels, which round only the gradients. P and dS are rounded once more, by 2^-8.
TEST(Tiles, GradientsOfBf16AreWithinTheirRoundings) {
  const Call c = normal_call(DType::bf16);
  const Outcome want = exact(c), beside = run(c, "baseline", Precision::full);
  for (const std::string& kernel : tile_kernels_here()) {
    const Outcome got = run(c, kernel, Precision::full);
    expect_gradients_beside(got, want, beside, 1.0, 0x1p-8, kernel);
  }
}

// f16 is exactly two terms. Weights and products then lose 2^-16, which is negligible beside the output's
// 2^-12.
TEST(Tiles, F16LosesNothing) {
  const Call c = normal_call(DType::f16);
  const Outcome want = exact(c), beside = run(c, "baseline", Precision::full);
  for (const std::string& kernel : kernels_here({"amx", "tiles"})) {
    const Outcome got = run(c, kernel, Precision::full);
    EXPECT_LT(relative_distance(got.output, want.output), 1.1 * relative_distance(beside.output, want.output))
        << kernel;
    expect_gradients_beside(got, want, beside, 1.1, 0.0, kernel);
  }
}

TEST(Tiles, PrecisionsOfF32KeepTheirErrorBounds) {
  const Call c = normal_call(DType::f32);
  const Outcome want = exact(c), full = run(c, "baseline", Precision::full);
  for (const std::string& kernel : kernels_here({"amx", "tiles"})) {
    const auto off = [&](Precision precision) {
      return relative_distance(run(c, kernel, precision).output, want.output);
    };
    EXPECT_LT(off(Precision::medium), 0x1p-7) << kernel;
    EXPECT_LT(off(Precision::high), 1e-5) << kernel;
    EXPECT_GT(off(Precision::high), 4 * relative_distance(full.output, want.output))
        << kernel << ": not split?";
    EXPECT_LT(off(Precision::higher), 1.1 * relative_distance(full.output, want.output)) << kernel;
    const Outcome high = run(c, kernel, Precision::high), higher = run(c, kernel, Precision::higher);
    EXPECT_LT(relative_distance(high.d_query, want.d_query), 2e-5) << kernel;
    EXPECT_LT(relative_distance(high.d_key, want.d_key), 2e-5) << kernel;
    EXPECT_LT(relative_distance(high.d_value, want.d_value), 1e-5) << kernel;
    expect_gradients_beside(higher, want, full, 1.2, 0.0, kernel);
  }
}

// Scores that could break a lazy maximum. They rise by more than its headroom with every chunk of keys, fall
// as fast, leap once, or stay constant, near 0 and far from it. The keys of one head are split, those of
// sixteen heads are not.
TEST(Tiles, ScoresThatRiseFallAndLeap) {
  constexpr std::int64_t keys = 700;
  const std::vector<std::pair<const char*, double (*)(std::int64_t)>> courses{
      {"rising", [](std::int64_t j) { return 0.5 * static_cast<double>(j); }},
      {"falling", [](std::int64_t j) { return -0.5 * static_cast<double>(j); }},
      {"leaping", [](std::int64_t j) { return j == 517 ? 4096.0 : 0.0; }},
      {"constant", [](std::int64_t) { return 3e4; }},
      {"deep", [](std::int64_t) { return -3e4; }},
      {"up and down", [](std::int64_t j) { return j / 32 % 2 ? 60.0 : -60.0; }}};
  for (const auto& [name, course] : courses) {
    for (const auto& [dtype, heads] : {std::pair<DType, std::int64_t>{DType::bf16, 1},
                                       {DType::f16, 1},
                                       {DType::f32, 1},
                                       {DType::bf16, 16},
                                       {DType::f32, 16},
                                       {DType::f64, 16}}) {
      Call c({.scale = 1.0},
             {.num_query_heads = heads, .query_len = 70, .key_len = keys, .head_dim = 16, .value_dim = 8},
             dtype, 0.0);
      for (std::int64_t i = 0; i < 70 * heads; ++i) set_element(c.query, i * 16, 1.0);
      for (std::int64_t j = 0; j < keys; ++j) set_element(c.key, j * 16, course(j));
      const Outcome want = exact(c);
      for (const std::string& kernel :
           kernels_here({"amx", "avx512bf16", "tiles", "avx512", "avx2", "baseline"})) {
        const Outcome got = run(c, kernel, dtype == DType::f64 ? Precision::full : Precision::higher);
        const double eps = dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-10 : 0x1p-18;
        for (std::int64_t i = 0; i < want.output.count(); ++i)
          ASSERT_NEAR(element(got.output, i), element(want.output, i), 4 * eps) << kernel << ", " << name;
        for (std::int64_t i = 0; i < want.log_sum_exp.count(); ++i) {
          const double lse = element(want.log_sum_exp, i);
          ASSERT_NEAR(element(got.log_sum_exp, i), lse, 1e-5 + 1e-6 * std::abs(lse))
              << kernel << ", " << name;
        }
      }
    }
  }
}

// One key has a weight of 1 at every precision, also in backward. The algorithm that a call takes by its
// count of queries must be the same forward and backward.
TEST(Tiles, ForwardAndBackwardMakeTheSameWeights) {
  for (const std::int64_t queries : {4, 5, 8, 9, 16, 17}) {
    for (const Precision precision :
         {Precision::medium, Precision::high, Precision::higher, Precision::full}) {
      Call c({.scale = 1.0}, {.query_len = queries, .key_len = 1, .head_dim = 64, .value_dim = 4},
             DType::f32);
      for (std::int64_t i = 0; i < c.query.count(); ++i) set_element(c.query, i, 0.7515);
      for (std::int64_t i = 0; i < c.key.count(); ++i) set_element(c.key, i, 1.0019);
      for (std::int64_t i = 0; i < c.d_output.count(); ++i) set_element(c.d_output, i, 1.0);
      for (const KernelInfo& info : instruction_sets()) {
        if (!info.available || info.isa == "reference") continue;
        const Outcome got = run(c, info.isa, precision);
        EXPECT_NEAR(element(got.d_value, 0), static_cast<double>(queries), 1e-3)
            << info.isa << " " << queries << " queries";
      }
    }
  }
}

// Rows that see only scores of -infinity, keys that no query sees and that hold anything, a NaN that a query
// sees, an infinite score.
TEST(Tiles, InfinitiesAndNans) {
  constexpr std::int64_t keys = 90, dim = 8;
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    Call c({.scale = 1.0, .mask = KeyLengths{{60}}},
           {.query_len = 70, .key_len = keys, .head_dim = dim, .value_dim = dim}, dtype);
    // If a number is split into several terms, those after an infinite one are 0, and 0 times infinity is NaN
    // (Precision).
    const bool deep = dtype == DType::bf16;
    for (std::int64_t i = 0; deep && i < dim; ++i)
      set_element(c.query, 5 * dim + i, i == 0 ? -infinity : 0.0);
    for (std::int64_t j = 0; j < keys; ++j) set_element(c.key, j * dim, 1.0);
    Call clean = c;
    clean.key = normal_tensor(dtype, c.key.shape(), 2);
    clean.value = normal_tensor(dtype, c.value.shape(), 3);
    for (std::int64_t j = 0; j < keys; ++j) set_element(clean.key, j * dim, 1.0);
    for (std::int64_t i = 60 * dim; i < keys * dim; ++i) {
      set_element(c.key, i, i % 2 ? infinity : std::nan(""));
      set_element(c.value, i, i % 3 ? std::nan("") : -infinity);
      set_element(clean.key, i, 0.0);
      set_element(clean.value, i, 0.0);
    }
    for (const std::string& kernel : tile_kernels_here()) {
      const Outcome got = run(c, kernel, Precision::higher), want = run(clean, kernel, Precision::higher);
      for (const auto& [a, b] : {std::pair(got.output, want.output), std::pair(got.d_query, want.d_query),
                                 std::pair(got.log_sum_exp, want.log_sum_exp),
                                 std::pair(got.d_key, want.d_key), std::pair(got.d_value, want.d_value)}) {
        for (std::int64_t i = 0; i < b.count(); ++i)
          ASSERT_EQ(element(a, i), element(b, i)) << kernel << " " << to_string(dtype) << " " << i;
      }
      if (deep) EXPECT_EQ(element(got.log_sum_exp, 5), -infinity) << kernel;
      for (std::int64_t i = 0; deep && i < dim; ++i)
        EXPECT_EQ(element(got.output, 5 * dim + i), 0.0) << kernel;
      Call poisoned = clean;
      poisoned.key = normal_tensor(dtype, c.key.shape(), 2);
      set_element(poisoned.key, 59 * dim + 3, std::nan(""));
      EXPECT_TRUE(std::isnan(element(run(poisoned, kernel, Precision::higher).output, 0)))
          << kernel << " " << to_string(dtype);
      poisoned = clean;
      poisoned.query = normal_tensor(dtype, c.query.shape(), 1);
      set_element(poisoned.query, 0, infinity);
      EXPECT_TRUE(std::isnan(element(run(poisoned, kernel, Precision::higher).output, 0)))
          << kernel << " " << to_string(dtype);
    }
  }
}

// No precision changes results of f16.
TEST(Tiles, PrecisionIsOfF32Alone) {
  const Call c = normal_call(DType::f16);
  for (const std::string& kernel : kernels_here({"amx", "avx512bf16", "tiles"})) {
    const Outcome full = run(c, kernel, Precision::full), medium = run(c, kernel, Precision::medium);
    for (std::int64_t i = 0; i < full.output.count(); ++i)
      ASSERT_EQ(element(full.output, i), element(medium.output, i)) << kernel;
  }
}

TEST(Tiles, RefusalsGiveReasons) {
  const AttentionShape shape{.query_len = 9, .key_len = 8, .head_dim = 8, .value_dim = 8};
  const AttentionPlan full = make_plan({}, shape, {.kernel = "tiles"});
  EXPECT_EQ(full.kernel(), "baseline tiled");
  EXPECT_NE(explain(full).find("refused portable tiles: f32 at Precision::full"), std::string::npos);
  EXPECT_EQ(make_plan({}, shape, {.precision = Precision::high, .kernel = "tiles"}).kernel(),
            "portable tiles");
  EXPECT_EQ(make_plan({}, shape, {.dtype = DType::f16, .kernel = "tiles"}).kernel(), "portable tiles");
  const auto runs = [&](const AttentionSpec& spec) {
    return std::string(make_plan(spec, shape, {.dtype = DType::bf16, .kernel = "tiles"}).kernel());
  };
  for (const AttentionSpec& spec : {AttentionSpec{.normalizer = Entmax{1.5}}, AttentionSpec{.scale = -1.0},
                                    AttentionSpec{.score = Bilinear{}}})
    EXPECT_TRUE(runs(spec).starts_with("baseline ")) << runs(spec);
  // A mod multiplies by the scale before it runs, so a chain of mods takes any.
  for (const AttentionSpec& spec : {AttentionSpec{.mods = {SoftCap{}}}, AttentionSpec{.dropout = {0.1}},
                                    AttentionSpec{.scale = -1.0, .mods = {SoftCap{}}}})
    EXPECT_EQ(runs(spec), "portable tiles");
}

}  // namespace
}  // namespace fovea::testing
