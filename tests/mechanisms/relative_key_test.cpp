// Relative keys: Transformer-XL's and Shaw's scores by a plain loop, central differences of the composition.
#include "fovea/mechanisms/relative_key.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "plan/draws.h"

namespace fovea::testing {
namespace {

// A random call with the tensors of relative keys.
struct Example {
  const Draw& draw;
  std::int64_t max_distance;
  bool each_head, biased;
  Tensor r, u, w, shifted, table;

  explicit Example(const Draw& d)
      : draw(d), max_distance(d.below(9)), each_head(d.below(2) == 1), biased(d.below(3) > 0) {
    r = draw.tensor({each_head ? draw.heads : 1, 2 * max_distance + 1, draw.head_dim});
    u = draw.tensor({draw.heads, draw.head_dim});
    w = draw.tensor({draw.heads, draw.head_dim});
    if (!biased) u.fill(0.0);
  }
  std::optional<double> scale() const {
    return draw.seed % 3 == 0 ? std::optional<double>(0.3) : std::nullopt;
  }
  AttentionSpec spec() const {
    return {.scale = scale(), .mods = {RelativeKeyBias{max_distance}}, .mask = draw.mask};
  }
  RelativeKeyInputs inputs() const {
    return {.query = draw.query,
            .offsets = r,
            .bias = biased ? ConstTensorView(w) : ConstTensorView(),
            .scale = scale()};
  }
  // Calls f(inputs) with inputs of attend, composed as a caller does.
  template <class F>
  auto compose(F&& f) {
    shifted = shifted_query(draw.query, u);
    table = relative_key_table(inputs());
    AttentionInputs in = draw.inputs();
    in.query = shifted;
    in.arguments = {{"mods[0].table", table}};
    return f(in);
  }
  Forward forward() {
    return compose([&](const AttentionInputs& in) { return draw.forward(spec(), in); });
  }
};

// Dai et al. 2019, section 3.3; Shaw et al. 2018, eq. 5, where there are no biases.
TEST(RelativeKey, IsItsDefinition) {
  for_draws(30, [](const Draw& draw) {
    Example e(draw);
    const Forward got = e.forward();
    const std::int64_t D = draw.head_dim, K = draw.key_len, far = e.max_distance;
    const double scale = e.scale().value_or(1 / std::sqrt(static_cast<double>(D)));
    draw.each_row([&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t row) {
      const std::int64_t kv = b * draw.kv_heads + h / (draw.heads / draw.kv_heads);
      std::vector<double> scores;
      for (std::int64_t j = 0; j < K; ++j) {
        const std::int64_t distance = std::clamp(i + draw.offset - j, -far, far) + far,
                           entry = ((e.each_head ? h : 0) * (2 * far + 1) + distance) * D;
        double score = 0.0;
        for (std::int64_t d = 0; d < D; ++d) {
          const double q = element(draw.query, row * D + d);
          score += (q + element(e.u, h * D + d)) * element(draw.key, (kv * K + j) * D + d);
          score += (q + (e.biased ? element(e.w, h * D + d) : 0.0)) * element(e.r, entry + d);
        }
        scores.push_back(draw.visible(b, h, i, j) ? scale * score : minus_infinity);
      }
      const std::vector<double> weights = softmax(scores);
      for (std::int64_t j = 0; j < K; ++j)
        ASSERT_NEAR(element(got.weights, row * K + j), weights[static_cast<std::size_t>(j)],
                    4 * draw.tolerance())
            << row << " " << j;
    });
  });
}

// The derivatives by query (through the products and through the table), r, u, w, key and value.
TEST(RelativeKey, GradientsAreDerivatives) {
  for_draws(14, [](const Draw& draw) {
    if (draw.dtype != DType::f64 || draw.key_len > 20 || draw.query_len > 20) return;
    Example e(draw);
    Forward result = e.forward();
    const Backward d = e.compose(
        [&](const AttentionInputs& in) { return draw.backward(e.spec(), in, result, draw.d_output); });
    const Tensor d_query = unwritten_like(draw.query), dr = unwritten_like(e.r), du = unwritten_like(e.u),
                 dw = unwritten_like(e.w);
    relative_key_table_backward(e.inputs(), d["mods[0].table"],
                                {.query = d_query,
                                 .offsets = dr,
                                 .bias = e.biased ? dw.view() : TensorView(),
                                 .query_before = d.query});
    shifted_query_backward(d.query, du);
    const Tensor in_place = d.query.clone();
    relative_key_table_backward(e.inputs(), d["mods[0].table"],
                                {.query = in_place, .offsets = {}, .bias = {}, .query_before = in_place});
    expect_same_bits({in_place}, {d_query});
    std::vector<Derivative> derivatives{{"query", draw.query, d_query},
                                        {"r", e.r, dr},
                                        {"u", e.u, du},
                                        {"key", draw.key, d.key},
                                        {"value", draw.value, d.value}};
    if (e.biased) derivatives.push_back({"w", e.w, dw});
    expect_derivatives([&] { return inner_product(e.forward().output, draw.d_output); }, derivatives, 12);
  });
}

// Strided queries and offsets, and 16-bit queries, agree with contiguous f64 ones.
TEST(RelativeKey, OtherLayoutsAndDtypes) {
  const std::int64_t B = 2, H = 3, Q = 40, D = 5, far = 4;
  for (const auto& [dtype, tolerance] :
       {std::pair{DType::f64, 1e-13}, {DType::f32, 1e-4}, {DType::f16, 0.02}, {DType::bf16, 0.15}}) {
    const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
    const auto as = [](const Tensor& x, DType to) {
      const Tensor y(to, x.shape());
      for (std::int64_t i = 0; i < x.count(); ++i) set_element(y, i, element(x, i));
      return y;
    };
    const Tensor query = random_tensor(dtype, {B, Q, H, D}, 1),
                 r = random_tensor(wide, {H, 2 * far + 1, D + 2}, 2), w = random_tensor(wide, {H, D}, 3),
                 d_table = random_tensor(wide, {B, H, Q, 2 * far + 1}, 4);
    const std::int64_t strides[] = {Q * H * D, D, H * D, 1};
    const ConstTensorView queries(query.raw(), dtype, {B, H, Q, D}, strides);
    const RelativeKeyInputs in{.query = queries, .offsets = ConstTensorView(r).slice(2, 0, D), .bias = w};
    const Tensor query64 = as(Tensor::copy_of(in.query), DType::f64),
                 r64 = as(Tensor::copy_of(in.offsets), DType::f64), w64 = as(w, DType::f64),
                 d_table64 = as(d_table, DType::f64);
    const RelativeKeyInputs in64{.query = query64, .offsets = r64, .bias = w64};
    expect_near(relative_key_table(in), relative_key_table(in64), wide == dtype ? tolerance : 1e-5, "table");
    const Tensor d_memory = unwritten_like(query);
    const TensorView d_query(d_memory.raw(), dtype, {B, H, Q, D}, strides);
    const Tensor dr = unwritten(wide, r64.shape()), dw = unwritten_like(w),
                 d_query64 = unwritten_like(query64), dr64 = unwritten_like(r64), dw64 = unwritten_like(w64),
                 du = unwritten_like(w), du64 = unwritten_like(w64);
    relative_key_table_backward(in, d_table, {.query = d_query, .offsets = dr, .bias = dw});
    relative_key_table_backward(in64, d_table64, {.query = d_query64, .offsets = dr64, .bias = dw64});
    expect_near(Tensor::copy_of(d_query), d_query64, tolerance, "d_query");
    expect_near(dr, dr64, dtype == DType::f64 ? 1e-13 : 1e-4, "d_offsets");
    expect_near(dw, dw64, dtype == DType::f64 ? 1e-13 : 1e-4, "d_bias");
    const Tensor shifted = shifted_query(in.query, w);
    expect_near(shifted, shifted_query(query64, w64), tolerance, "shifted");
    shifted_query_backward(in.query, du);
    shifted_query_backward(query64, du64);
    expect_near(du, du64, dtype == DType::f64 ? 1e-13 : 1e-4, "d_u");
  }
}

TEST(RelativeKey, SameBitsForEveryThreadCount) {
  expect_same_bits_for_every_thread_count([](Executor& executor) {
    const Tensor query = random_tensor(DType::f32, {2, 3, 70, 5}, 1),
                 r = random_tensor(DType::f32, {1, 9, 5}, 2), w = random_tensor(DType::f32, {3, 5}, 3),
                 d_table = random_tensor(DType::f32, {2, 3, 70, 9}, 4), d_query = unwritten_like(query),
                 dr = unwritten_like(r), dw = unwritten_like(w), du = unwritten_like(w);
    const RelativeKeyInputs in{.query = query, .offsets = r, .bias = w};
    const CallResources resources{.executor = &executor};
    relative_key_table_backward(in, d_table, {.query = d_query, .offsets = dr, .bias = dw}, resources);
    shifted_query_backward(query, du, resources);
    return std::vector<Tensor>{
        relative_key_table(in, resources), shifted_query(query, w, resources), d_query, dr, dw, du};
  });
}

// A padding query may be NaN. If nothing depends on its row, no parameter's gradient changes.
TEST(RelativeKey, NaNQueriesWithoutInfluence) {
  const Tensor query = random_tensor(DType::f32, {1, 2, 3, 4}, 1),
               r = random_tensor(DType::f32, {1, 5, 4}, 2), w = random_tensor(DType::f32, {2, 4}, 3),
               d_table = random_tensor(DType::f32, {1, 2, 3, 5}, 4);
  for (std::int64_t i = 5; i < 10; ++i) set_element(d_table, i, 0.0);
  const auto gradients = [&] {
    const std::vector<Tensor> g{unwritten_like(query), unwritten_like(r), unwritten_like(w)};
    relative_key_table_backward({.query = query, .offsets = r, .bias = w}, d_table,
                                {.query = g[0], .offsets = g[1], .bias = g[2]});
    return g;
  };
  const std::vector<Tensor> clean = gradients();
  for (std::int64_t i = 4; i < 8; ++i) set_element(query, i, std::numeric_limits<double>::quiet_NaN());
  expect_same_bits(gradients(), clean);
}

TEST(RelativeKey, RefusesInvalidArguments) {
  const Tensor query(DType::f32, {2, 3, 4, 5}), r(DType::f32, {3, 7, 5}), w(DType::f32, {3, 5}),
      even(DType::f32, {3, 6, 5}), two(DType::f32, {2, 7, 5}), wide(DType::f64, {3, 7, 5}),
      wide_bias(DType::f64, {3, 5}), d_table(DType::f32, {2, 3, 4, 7}), longer(DType::f32, {2, 3, 5, 5});
  const TensorView d_query = longer.view().slice(2, 0, 4), aside(longer.raw(), DType::f32, {2, 3, 4, 5});
  const auto refused = [&](auto&& change, const char* argument) {
    RelativeKeyInputs in{.query = query, .offsets = r, .bias = w};
    change(in);
    expect_refused([&] { relative_key_table(in); }, "relative_key_table", argument);
    expect_refused([&] { relative_key_table_backward(in, d_table, {}); }, "relative_key_table_backward",
                   argument);
  };
  using In = RelativeKeyInputs;
  refused([&](In& in) { in.query = r; }, "query");
  refused([&](In& in) { in.query = {}; }, "query");
  for (const Tensor& wrong : {even, two, wide, w}) refused([&](In& in) { in.offsets = wrong; }, "offsets");
  refused([&](In& in) { in.offsets = {}; }, "offsets");
  for (const Tensor& wrong : {wide_bias, r}) refused([&](In& in) { in.bias = wrong; }, "bias");
  for (const double scale : {std::numeric_limits<double>::infinity(), 1e39})
    refused([&](In& in) { in.scale = scale; }, "scale");
  const char* name = "relative_key_table_backward";
  const auto backward = [&](const ConstTensorView& d, const RelativeKeyGradients& g, bool biased = true) {
    return [&, d, g, biased] {
      relative_key_table_backward(
          {.query = query, .offsets = r, .bias = biased ? ConstTensorView(w) : ConstTensorView()}, d, g);
    };
  };
  expect_refused(backward(query, {}), name, "d_table");
  expect_refused(backward(d_table, {.query = r, .offsets = {}, .bias = {}}), name, "gradients.query");
  expect_refused(backward(d_table, {.query = query, .offsets = {}, .bias = {}}), name, "gradients.query");
  expect_refused(backward(d_table, {.query = d_query, .offsets = {}, .bias = {}, .query_before = r}), name,
                 "gradients.query_before");
  expect_refused(backward(d_table, {.query = d_query, .offsets = {}, .bias = {}, .query_before = aside}),
                 name, "gradients.query");
  expect_refused(backward(d_table, {.query = {}, .offsets = two, .bias = {}}), name, "gradients.offsets");
  expect_refused(backward(d_table, {.query = {}, .offsets = r, .bias = {}}), name, "gradients.offsets");
  expect_refused(backward(d_table, {.query = {}, .offsets = {}, .bias = w.view()}, false), name,
                 "gradients.bias");
  expect_refused([&] { shifted_query(r, w); }, "shifted_query", "query");
  expect_refused([&] { shifted_query(query, wide_bias); }, "shifted_query", "bias");
  expect_refused([&] { shifted_query_backward(r, w); }, "shifted_query_backward", "d_shifted");
  expect_refused([&] { shifted_query_backward(query, wide_bias); }, "shifted_query_backward", "d_bias");
}

}  // namespace
}  // namespace fovea::testing
