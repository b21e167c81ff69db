// Score mods: their arithmetic, the definitions of the papers, and the checks of their arguments.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "fovea/attention/make_mod.h"
#include "fovea/core/executor.h"
#include "fovea/mechanisms/forget.h"
#include "plan/cases.h"
#include "plan/differences.h"

namespace fovea::testing {
namespace {

// Against the standard library in double: errors in units in the last place of the result.
TEST(Elementwise, Accuracy) {
  const auto check = [](auto zero, double bound) {
    using T = decltype(zero);
    PhiloxStream random(3);
    double exp_error = 0, tanh_error = 0, log_error = 0;
    for (int trial = 0; trial < 200000; ++trial) {
      const double range = trial % 3 == 0 ? 80 : trial % 3 == 1 ? 1 : 1e-3;
      const T x = static_cast<T>((2 * random.next_uniform() - 1) * range);
      const auto exact = static_cast<double>(x);
      const auto relative = [](double got, double want) {
        return want == 0 ? std::abs(got) : std::abs(got - want) / std::abs(want);
      };
      exp_error = std::max(exp_error, relative(static_cast<double>(elementwise::exp(x)), std::exp(exact)));
      tanh_error =
          std::max(tanh_error, relative(static_cast<double>(elementwise::tanh(x)), std::tanh(exact)));
      const T positive = static_cast<T>(std::exp(exact));
      log_error = std::max(log_error, std::abs(static_cast<double>(elementwise::log(positive)) -
                                               std::log(static_cast<double>(positive))) /
                                          std::max(1.0, std::abs(exact)));
    }
    EXPECT_LT(exp_error, bound);
    EXPECT_LT(tanh_error, bound);
    EXPECT_LT(log_error, bound);
    const T infinity = std::numeric_limits<T>::infinity();
    EXPECT_EQ(elementwise::exp(-infinity), T(0));
    EXPECT_EQ(elementwise::exp(infinity), infinity);
    EXPECT_EQ(elementwise::tanh(infinity), T(1));
    EXPECT_EQ(elementwise::tanh(-infinity), T(-1));
    for (const T nan = std::numeric_limits<T>::quiet_NaN();
         const T y : {elementwise::exp(nan), elementwise::tanh(nan)})
      EXPECT_TRUE(std::isnan(y));
  };
  check(0.0f, 3e-7);
  check(0.0, 7e-16);
}

// score · factor + shift, where the factor is learned or not.
Mod with_factor(bool learned) {
  ArgumentDeclaration factor = mod_argument("factor", "bhk");
  factor.learned = learned;
  return make_mod("factor", {factor, mod_argument("shift", "bhq")},
                  [](auto score, Site at, auto factor, auto shift) {
                    return score * factor + shift * elementwise::Scalar<decltype(score)>(at.key);
                  });
}

// An argument that is not learned is read like any other, and its gradient is refused by name. Those of the
// other arguments are the same, also in a packed batch, where they are added entry by entry.
TEST(Mod, AnArgumentThatIsNotLearnedHasNoGradient) {
  const std::vector<std::int64_t> query_starts{0, 3, 4, 9}, key_starts{0, 5, 9, 20};
  for (const bool packed : {false, true}) {
    const std::int64_t entries = packed ? 3 : 2, Q = packed ? 5 : 9, K = packed ? 11 : 20, B = packed ? 1 : 2;
    const AttentionShape shape{.batch = entries,
                               .num_query_heads = 2,
                               .num_kv_heads = 2,
                               .query_len = Q,
                               .key_len = K,
                               .head_dim = 4,
                               .value_dim = 4};
    const Tensor q = random_tensor(DType::f64, {B, 2, 9, 4}, 1),
                 k = random_tensor(DType::f64, {B, 2, 20, 4}, 2),
                 v = random_tensor(DType::f64, {B, 2, 20, 4}, 3), d = random_tensor(DType::f64, q.shape(), 4),
                 factor = random_tensor(DType::f64, {entries, 2, 1, K}, 5),
                 shift = random_tensor(DType::f64, {entries, 2, Q, 1}, 6);
    AttentionInputs in{.query = q, .key = k, .value = v};
    in.arguments = {{"mods[0].factor", factor}, {"mods[0].shift", shift}};
    if (packed) {
      in.query_starts = query_starts;
      in.key_starts = key_starts;
    }
    std::vector<Tensor> outputs, gradients;
    for (const bool learned : {true, false}) {
      const AttentionPlan plan = make_plan({.mods = {with_factor(learned)}}, shape, {.dtype = DType::f64});
      const Tensor output(DType::f64, q.shape()), lse(DType::f64, {B, 2, 9}),
          d_factor(DType::f64, factor.shape()), d_shift(DType::f64, shift.shape());
      attend(plan, in, {.output = output, .log_sum_exp = lse});
      AttentionGradients all, some;
      all.arguments = {{"mods[0].factor", d_factor}, {"mods[0].shift", d_shift}};
      some.arguments = {{"mods[0].shift", d_shift}};
      if (learned)
        attend_backward(plan, in, output, lse, d, all);
      else
        expect_refused([&] { attend_backward(plan, in, output, lse, d, all); }, "attend_backward",
                       "gradients.mods[0].factor");
      attend_backward(plan, in, output, lse, d, some);
      outputs.push_back(output);
      gradients.push_back(d_shift);
    }
    double size = 0.0;
    for (std::int64_t n = 0; n < outputs[0].count(); ++n)
      ASSERT_EQ(element(outputs[0], n), element(outputs[1], n)) << packed;
    for (std::int64_t n = 0; n < gradients[0].count(); ++n) {
      ASSERT_EQ(element(gradients[0], n), element(gradients[1], n)) << packed;
      size += std::abs(element(gradients[0], n));
    }
    EXPECT_GT(size, 1e-3);
  }
}

// Gradients that are longer than the pieces in which threads add them up: with an element for each score, for
// each key, query and distance, shared by heads and by entries.
TEST(Mod, LongGradientsOfArgumentsAreThoseOfTheReference) {
  const std::int64_t B = 2, H = 2, Q = 300, K = 520;
  const AttentionShape shape{.batch = B,
                             .num_query_heads = H,
                             .num_kv_heads = H,
                             .query_len = Q,
                             .key_len = K,
                             .head_dim = 4,
                             .value_dim = 4};
  struct Argument {
    std::string name;
    Shape shape;
  };
  const Argument list[] = {{"mods[0].temperature", {1, H, 1, 1}}, {"mods[1].bias", {B, H, Q, K}},
                           {"mods[2].bias", {1, H, Q, K}},        {"mods[3].bias", {1, 1, 1, K}},
                           {"mods[4].factor", {B, H, 1, K}},      {"mods[4].shift", {B, 1, Q, 1}},
                           {"mods[5].table", {1, H, 1, 600}}};
  const AttentionSpec spec{.mods = {LearnedTemperature{}, DenseBias{}, DenseBias{}, DenseBias{},
                                    with_factor(true), RelativeBias{.buckets = 600, .max_distance = 2000}},
                           .mask = Causal{}};
  const DType dtype = DType::f64;
  const Tensor q = random_tensor(dtype, {B, H, Q, 4}, 1), k = random_tensor(dtype, {B, H, K, 4}, 2),
               v = random_tensor(dtype, {B, H, K, 4}, 3), d = random_tensor(dtype, q.shape(), 4);
  AttentionInputs in{.query = q, .key = k, .value = v};
  std::vector<Tensor> arguments;
  for (const Argument& argument : list) {
    arguments.push_back(random_tensor(dtype, argument.shape, 10 + arguments.size()));
    if (arguments.size() == 1) arguments[0].fill(0.7);
    in.arguments.set(argument.name, arguments.back());
  }
  const auto gradients = [&](const std::string& kernel, Executor& executor) {
    const AttentionPlan plan = make_plan(spec, shape, {.dtype = dtype, .kernel = kernel});
    const Tensor output(dtype, q.shape()), lse(dtype, {B, H, Q});
    attend(plan, in, {.output = output, .log_sum_exp = lse}, {.executor = &executor});
    std::vector<Tensor> found;
    AttentionGradients wanted;
    for (const Argument& argument : list) {
      found.push_back(unwritten(dtype, argument.shape));
      wanted.arguments.set(argument.name, found.back());
    }
    attend_backward(plan, in, output, lse, d, wanted, {.executor = &executor});
    return found;
  };
  const std::vector<Tensor> wanted = gradients("reference", serial_executor()),
                            alone = gradients("", serial_executor());
  for (std::size_t n = 0; n < wanted.size(); ++n)
    EXPECT_LT(relative_distance(alone[n], wanted[n]), 1e-11) << list[n].name;
  for (const int threads : {2, 5}) {
    const auto pool = make_thread_pool(threads);
    const std::vector<Tensor> shared = gradients("", *pool);
    for (std::size_t n = 0; n < alone.size(); ++n)
      EXPECT_EQ(std::memcmp(alone[n].raw(), shared[n].raw(), alone[n].bytes()), 0) << list[n].name << threads;
  }
}

// Mechanism 11: a constant gate f is ALiBi with slope -log f. The derivative by log f is compared with
// central differences.
TEST(Mod, ForgettingGate) {
  const std::int64_t B = 2, H = 2, Q = 9, K = 12, offset = 3;
  const AttentionShape shape{.batch = B,
                             .num_query_heads = H,
                             .num_kv_heads = H,
                             .query_len = Q,
                             .key_len = K,
                             .head_dim = 4,
                             .value_dim = 4};
  const Tensor q = random_tensor(DType::f64, {B, H, Q, 4}, 1), k = random_tensor(DType::f64, {B, H, K, 4}, 2),
               v = random_tensor(DType::f64, {B, H, K, 4}, 3),
               d_output = random_tensor(DType::f64, {B, H, Q, 4}, 4),
               log_f = random_tensor(DType::f64, {B, H, K}, 5), output(DType::f64, q.shape()),
               lse(DType::f64, {B, H, Q});
  const AttentionPlan plan =
      make_plan({.mods = {ForgetGate{}}, .mask = Causal{}}, shape, {.dtype = DType::f64});
  AttentionInputs in{.query = q, .key = k, .value = v};
  const auto loss = [&](const Tensor& gates) {
    const Tensor sums = forget_sums(gates);
    in.arguments = {{"mods[0].query", forget_queries(sums, Q, offset)}, {"mods[0].key", sums}};
    attend(plan, in, {.output = output, .log_sum_exp = lse});
    double sum = 0.0;
    for (std::int64_t n = 0; n < output.count(); ++n) sum += element(output, n) * element(d_output, n);
    return sum;
  };
  loss(log_f);
  const Tensor sums = forget_sums(log_f), d_query(DType::f64, {B, H, Q, 1}), d_key(DType::f64, {B, H, 1, K});
  in.arguments = {{"mods[0].query", forget_queries(sums, Q, offset)}, {"mods[0].key", sums}};
  AttentionGradients g;
  g.arguments = {{"mods[0].query", d_query}, {"mods[0].key", d_key}};
  attend_backward(plan, in, output, lse, d_output, g);
  const Tensor d_log_f = forget_gradient(d_query, d_key, offset);
  for (std::int64_t n = 0; n < log_f.count(); ++n) {
    const double at = element(log_f, n), h = 1e-5;
    set_element(log_f, n, at + h);
    const double up = loss(log_f);
    set_element(log_f, n, at - h);
    const double down = loss(log_f);
    set_element(log_f, n, at);
    ASSERT_NEAR((up - down) / (2 * h), element(d_log_f, n), 1e-8) << n;
  }
  Tensor constant(DType::f64, {B, H, K}), slope(DType::f64, {1, 1, 1, 1}), alibi(DType::f64, q.shape());
  constant.fill(std::log(0.8));
  slope.fill(-std::log(0.8));
  loss(constant);
  in.arguments = {{"mods[0].slope", slope}};
  attend(make_plan({.mods = {AlibiBias{}}, .mask = Causal{}}, shape, {.dtype = DType::f64}), in,
         {.output = alibi});
  for (std::int64_t n = 0; n < output.count(); ++n) ASSERT_NEAR(element(output, n), element(alibi, n), 1e-13);
  EXPECT_THROW(forget_queries(sums, Q, 4), InvalidArgument);
  EXPECT_THROW(forget_queries(sums, Q, std::vector<std::int64_t>{0, 4}), InvalidArgument);
  EXPECT_THROW(forget_queries(sums, Q, std::vector<std::int64_t>{0}), InvalidArgument);
  EXPECT_THROW(forget_gradient(d_query, d_key, std::vector<std::int64_t>{0, 1, 2}), InvalidArgument);
  EXPECT_THROW(forget_sums(q), InvalidArgument);
}

// Entries with their own offsets get the sums, and return the derivatives, of calls with those offsets.
TEST(Mod, ForgettingGateOfOffsetsByEntry) {
  const std::int64_t B = 3, H = 2, Q = 4, K = 9;
  const std::vector<std::int64_t> offsets{5, 0, 3};
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor sums = forget_sums(random_tensor(dtype, {B, H, K}, 1)),
                 d_query = random_tensor(dtype, {B, H, Q, 1}, 2),
                 d_key = random_tensor(dtype, {B, H, 1, K}, 3), queries = forget_queries(sums, Q, offsets),
                 gradient = forget_gradient(d_query, d_key, offsets);
    for (std::int64_t b = 0; b < B; ++b) {
      const std::int64_t offset = offsets[static_cast<std::size_t>(b)];
      const Tensor alone = forget_gradient(d_query, d_key, offset);
      for (std::int64_t row = b * H; row < (b + 1) * H; ++row) {
        for (std::int64_t i = 0; i < Q; ++i)
          EXPECT_EQ(element(queries, row * Q + i), element(sums, row * K + offset + i));
        for (std::int64_t l = 0; l < K; ++l)
          EXPECT_EQ(element(gradient, row * K + l), element(alone, row * K + l));
      }
    }
  }
}

TEST(Mod, FollowTheirPapers) {
  // Press et al. 2022, section 3: 8 heads have 1/2 to 1/256; other counts take the next powers of two.
  const std::vector<double> eight = alibi_slopes(8), six = alibi_slopes(6);
  for (std::size_t h = 0; h < 8; ++h) EXPECT_DOUBLE_EQ(eight[h], std::exp2(-static_cast<double>(h + 1)));
  const double expected[] = {0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125};
  for (std::size_t h = 0; h < 6; ++h) EXPECT_DOUBLE_EQ(six[h], expected[h]);
  // T5: 32 buckets, distance 128. Each direction has 16, of which the first 8 are exact.
  const RelativeBias t5;
  for (std::int64_t d = 0; d < 8; ++d) {
    EXPECT_EQ(relative_bucket(t5, d), d);
    if (d > 0) EXPECT_EQ(relative_bucket(t5, -d), 16 + d);
  }
  EXPECT_EQ(relative_bucket(t5, 8), 8);
  EXPECT_EQ(relative_bucket(t5, 127), 15);
  // Distances with whole logarithms: 5 near buckets of 10, distances 10, 20, 40, 80 = 5·2^n.
  const RelativeBias exact{.buckets = 20, .max_distance = 160};
  EXPECT_EQ(relative_bucket(exact, 10), 6);
  EXPECT_EQ(relative_bucket(exact, 20), 7);
  EXPECT_EQ(relative_bucket(exact, 80), 9);
  EXPECT_EQ(relative_bucket(t5, 100000), 15);
  EXPECT_EQ(relative_bucket(t5, -100000), 31);
  const RelativeBias causal{.direction = RelativeBias::Direction::causal};
  EXPECT_EQ(relative_bucket(causal, -5), 0);
  EXPECT_EQ(relative_bucket(causal, 15), 15);
  EXPECT_EQ(relative_bucket(causal, 1000), 31);
}

TEST(Mod, ArgumentsAreCheckedByName) {
  const AttentionShape shape{.batch = 2,
                             .num_query_heads = 2,
                             .num_kv_heads = 2,
                             .query_len = 4,
                             .key_len = 5,
                             .head_dim = 8,
                             .value_dim = 8};
  const Tensor q = random_tensor(DType::f32, {2, 2, 4, 8}, 1), k = random_tensor(DType::f32, {2, 2, 5, 8}, 2),
               out(DType::f32, q.shape());
  const auto refused = [&](const Mods& mods, const Arguments& arguments, const char* name) {
    AttentionInputs in{.query = q, .key = k, .value = k};
    in.arguments = arguments;
    try {
      attend(make_plan({.mods = mods}, shape), in, {.output = out});
      ADD_FAILURE() << name;
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.argument(), name);
    }
  };
  const Tensor slope = random_tensor(DType::f32, {1, 2, 1, 1}, 3), wide(DType::f64, {1, 2, 1, 1}),
               three = random_tensor(DType::f32, {1, 3, 1, 1}, 4);
  refused({AlibiBias{}}, {}, "mods[0].slope");
  refused({SoftCap{}}, {{"mods[0].slope", slope}}, "mods[0].slope");
  refused({AlibiBias{}}, {{"mods[0].slope", slope}, {"mods[1].slope", slope}}, "mods[1].slope");
  refused({AlibiBias{}}, {{"mods[0].slope", slope}, {"mods[0].slope", slope}}, "mods[0].slope");
  refused({SoftCap{}, AlibiBias{}}, {{"mods[1].slope", wide}}, "mods[1].slope");
  refused({AlibiBias{}}, {{"mods[0].slope", three}}, "mods[0].slope");
  refused({AlibiBias{}}, {{"mods[0].slope", ConstTensorView()}}, "mods[0].slope");
  refused({RelativeBias{8, 20}}, {{"mods[0].table", slope}}, "mods[0].table");
  EXPECT_THROW(make_plan({.mods = Mods(9, Mod(SoftCap{}))}, shape), InvalidArgument);
  EXPECT_THROW(Mod(SoftCap{-1}), InvalidArgument);
  EXPECT_THROW(Mod(SoftCap{1e39}), InvalidArgument);
  EXPECT_THROW(Mod(RelativeBias{.buckets = 8, .max_distance = std::int64_t{1} << 40}), InvalidArgument);
  {
    // A site has 32 bits; no element may be at a site behind the last key.
    std::int32_t farthest = 0;
    const Mod looks = make_mod("looks", [&farthest](auto score, Site at) {
      farthest = std::max(farthest, at.key);
      return score;
    });
    AttentionInputs far{.query = q, .key = k, .value = k};
    for (const KernelInfo& info : instruction_sets()) {
      if (!info.available) continue;
      attend(make_plan({.mods = {looks}}, shape, {.kernel = info.isa}), far, {.output = out},
             {.executor = &serial_executor()});
      EXPECT_EQ(farthest, 4) << info.isa;
    }
    far.query_offset = std::int64_t{1} << 31;
    EXPECT_THROW(attend(make_plan({.mods = {looks}}, shape), far, {.output = out}), InvalidArgument);
    EXPECT_THROW(attend(make_plan({}, shape), far, {.output = out}), InvalidArgument);
    far.query_offset = std::int64_t{1} << 30;
    EXPECT_NO_THROW(attend(make_plan({}, shape), far, {.output = out}));
  }
  EXPECT_THROW(Mod(RelativeBias{.buckets = 8, .max_distance = 2}), InvalidArgument);
  // Only the normaliser with a sink has this argument.
  AttentionInputs in{.query = q, .key = k, .value = k};
  EXPECT_THROW(attend(make_plan({.normalizer = SoftmaxWithSink{}}, shape), in, {.output = out}),
               InvalidArgument);
  in.arguments.set("normalizer.sink", ConstTensorView(slope.data<float>(), {2}));
  EXPECT_NO_THROW(attend(make_plan({.normalizer = SoftmaxWithSink{}}, shape), in, {.output = out}));
  EXPECT_THROW(attend(make_plan({}, shape), in, {.output = out}), InvalidArgument);
}

}  // namespace
}  // namespace fovea::testing
