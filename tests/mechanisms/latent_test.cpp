// Latent attention: its definition, absorbed = naive forward and backward, and central differences.
#include "fovea/mechanisms/latent.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "fovea/core/executor.h"
#include "plan/differences.h"

namespace fovea::testing {
namespace {

constexpr LatentExecution executions[] = {LatentExecution::naive, LatentExecution::absorbed};

// A call of any sizes up to the plan's, with every part that a spec may have.
struct Example {
  LatentShape shape{.batch = 3,
                    .num_query_heads = 2,
                    .query_len = 8,
                    .key_len = 40,
                    .content_dim = 5,
                    .rotary_dim = 4,
                    .latent_dim = 7,
                    .value_dim = 3};
  AttentionSpec spec{.mods = {SoftCap{2}, AlibiBias{}, DenseBias{}},
                     .mask = Causal{} & KeyLengths{},
                     .normalizer = SoftmaxWithSink{},
                     .dropout = {0.25}};
  DType dtype;
  Tensor query_content, query_rotary, cache, W_UK, W_UV, sink, slope, bias, d_output, output;
  std::vector<ConstTensorView> mods;
  std::vector<std::int64_t> lengths;
  std::vector<Tensor> gradients;  // in the order of names()

  Example(DType type, std::int64_t batch = 2, std::int64_t queries = 4, std::int64_t keys = 9,
          std::int64_t rotary = 4)
      : dtype(type) {
    shape.rotary_dim = rotary;
    const std::int64_t heads = shape.num_query_heads;
    const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
    query_content = random_tensor(dtype, {batch, heads, queries, shape.content_dim}, 1);
    query_rotary = random_tensor(dtype, {batch, heads, queries, rotary}, 2);
    cache = random_tensor(dtype, {batch, keys, shape.latent_dim + rotary}, 3);
    W_UK = random_tensor(wide, {heads, shape.content_dim, shape.latent_dim}, 4);
    W_UV = random_tensor(wide, {heads, shape.value_dim, shape.latent_dim}, 5);
    sink = random_tensor(wide, {heads}, 6);
    slope = random_tensor(wide, {1, heads, 1, 1}, 7);
    bias = random_tensor(wide, {1, 1, queries, keys}, 8);
    d_output = random_tensor(dtype, {batch, heads, queries, shape.value_dim}, 9);
    output = unwritten_like(d_output);
    for (std::int64_t b = 0; b < batch; ++b) lengths.push_back(std::max<std::int64_t>(keys - b, 0));
  }
  LatentPlan plan(LatentExecution execution) const {
    return make_latent_plan(spec, shape, execution, {.dtype = dtype});
  }
  LatentInputs inputs() const {
    LatentInputs in{.query_content = query_content,
                    .query_rotary = query_rotary,
                    .cache = cache,
                    .W_UK = W_UK,
                    .W_UV = W_UV};
    if (std::holds_alternative<SoftmaxWithSink>(spec.normalizer))
      in.attention.arguments.set("normalizer.sink", sink);
    if (!spec.mods.empty()) {
      in.attention.arguments.set("mods[1].slope", slope);
      in.attention.arguments.set("mods[2].bias", bias);
    }
    in.attention.key_lengths = lengths;
    in.attention.dropout_seed = 5;
    return in;
  }
  static std::vector<std::string> names() {
    return {"query_content", "query_rotary", "cache", "W_UK", "W_UV", "sink", "slope", "bias"};
  }
  std::vector<Tensor> operands() const {
    return {query_content, query_rotary, cache, W_UK, W_UV, sink, slope, bias};
  }
  void run(LatentExecution execution, Executor& executor = default_executor()) {
    const CallResources resources{.executor = &executor};
    const LatentState state = attend_latent(plan(execution), inputs(), output, resources);
    gradients.clear();
    for (const Tensor& operand : operands()) gradients.push_back(unwritten_like(operand));
    LatentGradients g{gradients[0], gradients[1], gradients[2], gradients[3], gradients[4]};
    if (inputs().attention.arguments["normalizer.sink"]) g.arguments.set("normalizer.sink", gradients[5]);
    if (!spec.mods.empty()) {
      g.arguments.set("mods[1].slope", gradients[6]);
      g.arguments.set("mods[2].bias", gradients[7]);
    }
    attend_latent_backward(plan(execution), inputs(), state, d_output, g, resources);
  }
};

// The formula in plain loops, without mods, sink and dropout.
TEST(Latent, IsItsDefinition) {
  for (const LatentExecution execution : executions) {
    for (const auto& [dtype, tolerance] :
         {std::pair{DType::f64, 1e-13}, {DType::f32, 1e-5}, {DType::f16, 2e-3}, {DType::bf16, 2e-2}}) {
      Example e(dtype);
      e.spec = {.mask = Causal{} & KeyLengths{}};
      attend_latent(e.plan(execution), e.inputs(), e.output);
      const LatentShape& s = e.shape;
      const std::int64_t H = s.num_query_heads, Q = 4, K = 9, width = s.latent_dim + s.rotary_dim;
      const auto up = [&](const Tensor& W, std::int64_t h, std::int64_t row, std::int64_t rows,
                          const double* latent) {
        double sum = 0.0;
        for (std::int64_t c = 0; c < s.latent_dim; ++c)
          sum += element(W, (h * rows + row) * s.latent_dim + c) * latent[c];
        return sum;
      };
      std::vector<double> cache;
      for (std::int64_t i = 0; i < e.cache.count(); ++i) cache.push_back(element(e.cache, i));
      for (std::int64_t row = 0; row < 2 * H * Q; ++row) {
        const std::int64_t b = row / Q / H, h = row / Q % H;
        std::vector<double> scores(K, -std::numeric_limits<double>::infinity());
        for (std::int64_t j = 0; j <= row % Q + K - Q && j < e.lengths[b]; ++j) {
          const double* key = cache.data() + (b * K + j) * width;
          double score = 0.0;
          for (std::int64_t n = 0; n < s.content_dim; ++n)
            score += element(e.query_content, row * s.content_dim + n) * up(e.W_UK, h, n, s.content_dim, key);
          for (std::int64_t n = 0; n < s.rotary_dim; ++n)
            score += element(e.query_rotary, row * s.rotary_dim + n) * key[s.latent_dim + n];
          scores[j] = score / std::sqrt(s.content_dim + s.rotary_dim);
        }
        const std::vector<double> weights = softmax(scores);
        for (std::int64_t n = 0; n < s.value_dim; ++n) {
          double want = 0.0;
          for (std::int64_t j = 0; j < K; ++j)
            want += weights[j] * up(e.W_UV, h, n, s.value_dim, cache.data() + (b * K + j) * width);
          ASSERT_NEAR(element(e.output, row * s.value_dim + n), want, tolerance) << row;
        }
      }
    }
  }
}

// One query and many, one key and the whole capacity, with and without a rotated part.
TEST(Latent, AbsorbedIsNaive) {
  for (const auto& [dtype, tolerance] : {std::pair{DType::f64, 1e-12}, {DType::f32, 3e-4}}) {
    for (const std::int64_t rotary : {4, 0}) {
      for (const auto& [batch, queries, keys] :
           {std::array<std::int64_t, 3>{2, 4, 9}, {1, 1, 1}, {3, 8, 40}, {3, 1, 40}, {2, 8, 5}}) {
        Example naive(dtype, batch, queries, keys, rotary), absorbed(dtype, batch, queries, keys, rotary);
        naive.run(LatentExecution::naive);
        absorbed.run(LatentExecution::absorbed);
        expect_near(absorbed.output, naive.output, tolerance, "output");
        for (std::size_t n = 0; n < naive.gradients.size(); ++n)
          expect_near(absorbed.gradients[n], naive.gradients[n], n == 6 ? 10 * tolerance : tolerance,
                      Example::names()[n]);
      }
    }
  }
}

TEST(Latent, GradientsAreDerivatives) {
  for (const LatentExecution execution : executions) {
    Example e(DType::f64);
    e.run(execution);
    const LatentPlan plan = e.plan(execution);
    const auto loss = [&] {
      attend_latent(plan, e.inputs(), e.output);
      return inner_product(e.output, e.d_output);
    };
    std::vector<Derivative> derivatives;
    for (std::size_t n = 0; n < e.gradients.size(); ++n)
      derivatives.push_back({Example::names()[n], e.operands()[n], e.gradients[n]});
    expect_derivatives(loss, derivatives);
  }
}

// 16-bit inputs are computed in f32 and rounded once. The tolerance is half an ulp of a result and the error
// of f32.
TEST(Latent, NarrowGradientsAreTheWideOnesRounded) {
  for (const LatentExecution execution : executions) {
    for (const auto& [dtype, half_ulp] : {std::pair{DType::f16, 0x1p-11}, {DType::bf16, 0x1p-8}}) {
      Example narrow(dtype), wide(DType::f32);
      narrow.run(execution);
      for (const auto& [to, from] : {std::pair{wide.query_content, narrow.query_content},
                                     {wide.query_rotary, narrow.query_rotary},
                                     {wide.cache, narrow.cache},
                                     {wide.d_output, narrow.d_output}}) {
        for (std::int64_t i = 0; i < to.count(); ++i) set_element(to, i, element(from, i));
      }
      wide.run(execution);
      for (std::size_t n = 0; n < wide.gradients.size(); ++n) {
        for (std::int64_t i = 0; i < wide.gradients[n].count(); ++i) {
          const double want = element(wide.gradients[n], i);
          ASSERT_NEAR(element(narrow.gradients[n], i), want, half_ulp * std::abs(want) + 1e-6)
              << Example::names()[n];
        }
      }
    }
  }
}

TEST(Latent, SameBitsForEveryThreadCount) {
  for (const LatentExecution execution : executions) {
    expect_same_bits_for_every_thread_count([&](Executor& executor) {
      Example e(DType::f32, 3, 8, 40);
      e.run(execution, executor);
      std::vector<Tensor> results = e.gradients;
      results.push_back(e.output);
      return results;
    });
  }
}

// Keys behind the lengths are NaN. In the entry of length 0 the queries and d_output are NaN too.
TEST(Latent, HiddenKeysNeverMatter) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const LatentExecution execution : executions) {
    Example clean(DType::f32), e(DType::f32);
    for (Example* x : {&clean, &e}) x->lengths = {6, 0};
    const std::int64_t width = e.cache.size(2);
    for (std::int64_t i = 6 * width; i < e.cache.count(); ++i) set_element(e.cache, i, nan);
    for (const Tensor& x : {e.query_content, e.query_rotary, e.d_output}) {
      for (std::int64_t i = x.count() / 2; i < x.count(); ++i) set_element(x, i, nan);
    }
    clean.run(execution);
    e.run(execution);
    for (std::size_t n = 0; n < e.gradients.size(); ++n)
      expect_near(e.gradients[n], clean.gradients[n], 0.0, Example::names()[n]);
    expect_near(e.output, clean.output, 0.0, "output");
  }
}

// A cache of larger pages, interleaved queries, and gradients with the same strides.
TEST(Latent, StridedOperandsGiveTheBitsOfPackedOnes) {
  for (const LatentExecution execution : executions) {
    Example packed(DType::f32), e(DType::f32);
    packed.run(execution);
    const auto wider = [](const Tensor& x) {
      const Tensor memory =
          unwritten(x.dtype(), x.rank() == 3 ? Shape{x.size(0), x.size(1) + 2, x.size(2) + 3}
                                             : Shape{x.size(0), x.size(1), x.size(2) + 2, x.size(3) + 3});
      TensorView view = memory;
      for (int axis = 0; axis < x.rank(); ++axis) view = view.slice(axis, 0, x.size(axis));
      return std::pair{memory, view};
    };
    const auto copied = [&](const Tensor& x) {
      const auto result = wider(x);
      const std::int64_t width = x.size(-1 + x.rank());
      for (std::int64_t i = 0; i < x.count(); ++i) {
        const std::int64_t row = i / width;
        if (x.rank() == 3)
          result.second.at<float>({row / x.size(1), row % x.size(1), i % width}) = x.data<float>()[i];
        else
          result.second.at<float>({row / x.size(2) / x.size(1), row / x.size(2) % x.size(1), row % x.size(2),
                                   i % width}) = x.data<float>()[i];
      }
      return result;
    };
    const auto content = copied(e.query_content), rotary = copied(e.query_rotary), cache = copied(e.cache),
               output = wider(e.output), d_content = wider(e.query_content), d_rotary = wider(e.query_rotary),
               d_cache = wider(e.cache), d_output = copied(e.d_output);
    LatentInputs in = e.inputs();
    in.query_content = content.second;
    in.query_rotary = rotary.second;
    in.cache = cache.second;
    const LatentState state = attend_latent(e.plan(execution), in, output.second);
    attend_latent_backward(e.plan(execution), in, state, d_output.second,
                           {d_content.second, d_rotary.second, d_cache.second, {}, {}});
    expect_same_bits({Tensor::copy_of(output.second), Tensor::copy_of(d_content.second),
                      Tensor::copy_of(d_rotary.second), Tensor::copy_of(d_cache.second)},
                     {packed.output, packed.gradients[0], packed.gradients[1], packed.gradients[2]});
  }
}

// Each gradient computed alone equals the one computed among all.
TEST(Latent, OneGradientAtATime) {
  for (const LatentExecution execution : executions) {
    Example e(DType::f32);
    e.run(execution);
    const LatentState state = attend_latent(e.plan(execution), e.inputs(), e.output);
    for (std::size_t n = 0; n < 5; ++n) {
      const Tensor alone = unwritten_like(e.gradients[n]);
      LatentGradients g;
      *std::array{&g.query_content, &g.query_rotary, &g.cache, &g.W_UK, &g.W_UV}[n] = alone;
      attend_latent_backward(e.plan(execution), e.inputs(), state, e.d_output, g);
      expect_same_bits({alone}, {e.gradients[n]});
    }
  }
}

TEST(Latent, RefusesInvalidArguments) {
  const Example e(DType::f32);
  const auto no_plan = [&](auto&& change, const char* argument, const char* function = "make_latent_plan") {
    AttentionSpec spec = e.spec;
    LatentShape shape = e.shape;
    change(spec, shape);
    expect_refused([&] { make_latent_plan(spec, shape, LatentExecution::absorbed); }, function, argument);
  };
  no_plan([](AttentionSpec& spec, LatentShape&) { spec.score = Dot{}; }, "spec.score");
  no_plan([](AttentionSpec& spec, LatentShape&) { spec.scale = 1.0; }, "spec.scale");
  no_plan([](AttentionSpec&, LatentShape& shape) { shape.latent_dim = 0; }, "shape.latent_dim");
  no_plan([](AttentionSpec&, LatentShape& shape) { shape.rotary_dim = -1; }, "shape.rotary_dim");
  no_plan([](AttentionSpec&, LatentShape& shape) { shape.batch = -1; }, "shape.batch", "make_plan");

  const LatentPlan plan = e.plan(LatentExecution::absorbed);
  const Tensor odd(DType::f32, {2, 2, 4, 6}), long_cache(DType::f32, {2, 41, 11}),
      wide(DType::f64, e.W_UK.shape());
  const auto refused = [&](auto&& change, const char* argument) {
    LatentInputs in = e.inputs();
    change(in);
    expect_refused([&] { attend_latent(plan, in, e.output); }, "attend_latent", argument);
  };
  refused([&](LatentInputs& in) { in.query_content = odd; }, "query_content");
  refused([&](LatentInputs& in) { in.query_rotary = odd; }, "query_rotary");
  refused([&](LatentInputs& in) { in.query_rotary = {}; }, "query_rotary");
  refused([&](LatentInputs& in) { in.cache = long_cache; }, "cache");
  refused([&](LatentInputs& in) { in.cache = odd; }, "cache");
  refused([&](LatentInputs& in) { in.W_UK = wide; }, "W_UK");
  refused([&](LatentInputs& in) { in.W_UV = e.W_UK; }, "W_UV");
  refused([&](LatentInputs& in) { in.attention.key = odd; }, "attention.key");
  refused([&](LatentInputs& in) { in.attention.arguments.set("mods[7].slope", e.slope); }, "mods[7].slope");
  expect_refused([&] { attend_latent(plan, e.inputs(), odd); }, "attend_latent", "output");

  const LatentState state = attend_latent(plan, e.inputs(), e.output);
  const auto backward = [&](const LatentState& s, const Tensor& d_output, const LatentGradients& g) {
    return [&plan, &e, s, d_output, g] { attend_latent_backward(plan, e.inputs(), s, d_output, g); };
  };
  const char* name = "attend_latent_backward";
  LatentGradients unknown;
  unknown.arguments = {{"mods[7].slope", e.slope}};
  expect_refused(backward(state, e.d_output, unknown), name, "gradients.mods[7].slope");
  expect_refused(backward({}, e.d_output, {}), name, "state.output");
  expect_refused(backward({e.output, state.log_sum_exp}, e.d_output, {}), name, "state.output");
  expect_refused(backward(state, odd, {}), name, "d_output");
  expect_refused(backward(state, e.d_output, {odd, {}, {}, {}, {}}), name, "gradients.query_content");
  expect_refused(backward(state, e.d_output, {{}, {}, odd, {}, {}}), name, "gradients.cache");
  expect_refused(backward(state, e.d_output, {{}, {}, {}, e.W_UK, {}}), name, "gradients.W_UK");
}

}  // namespace
}  // namespace fovea::testing
