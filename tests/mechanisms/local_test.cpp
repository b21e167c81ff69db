// The centers of local-p attention: their definition, and central differences by query, W and v.
#include "fovea/mechanisms/local.h"

#include <gtest/gtest.h>

#include "fovea/core/executor.h"
#include "plan/differences.h"

namespace fovea::testing {
namespace {

constexpr std::int64_t B = 2, H = 3, Q = 35, D = 5, hidden = 4, key_len = 20;
const std::int64_t lengths[] = {20, 7};

// Parameters are shared by the heads, or there is one set a head.
struct Example {
  Tensor query, W, v, d_centers;
  Tensor d_query, dW, dv;

  Example(DType dtype, bool each_head) {
    const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
    query = random_tensor(dtype, {B, H, Q, D}, 1);
    W = random_tensor(wide, each_head ? Shape{H, hidden, D} : Shape{hidden, D}, 2);
    v = random_tensor(wide, each_head ? Shape{H, hidden} : Shape{hidden}, 3);
    d_centers = random_tensor(wide, {B, H, Q, 1}, 4);
  }
  LocalInputs inputs() const {
    return {.query = query, .W = W, .v = v, .key_len = key_len, .key_lengths = lengths};
  }
  void backward(Executor& executor = default_executor()) {
    d_query = unwritten_like(query);
    dW = unwritten_like(W);
    dv = unwritten_like(v);
    local_centers_backward(inputs(), d_centers, {.query = d_query, .W = dW, .v = dv},
                           {.executor = &executor});
  }
};

TEST(Local, CentersAreTheirDefinition) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    for (const bool each_head : {false, true}) {
      const Example e(dtype, each_head);
      const Tensor centers = local_centers(e.inputs());
      for (std::int64_t row = 0; row < B * H * Q; ++row) {
        const std::int64_t h = each_head ? row / Q % H : 0;
        double sum = 0.0;
        for (std::int64_t k = 0; k < hidden; ++k) {
          double product = 0.0;
          for (std::int64_t d = 0; d < D; ++d)
            product += element(e.W, (h * hidden + k) * D + d) * element(e.query, row * D + d);
          sum += element(e.v, h * hidden + k) * std::tanh(product);
        }
        const double want = static_cast<double>(lengths[row / Q / H]) / (1 + std::exp(-sum));
        // key_len times eps; 16-bit queries are exact in f32
        ASSERT_NEAR(element(centers, row), want, dtype == DType::f64 ? 1e-13 : 2e-5) << row;
      }
    }
  }
}

TEST(Local, WithoutLengthsEveryEntryHasKeyLen) {
  const Example e(DType::f64, false);
  LocalInputs in = e.inputs();
  in.key_lengths = {};
  const Tensor all = local_centers(in), each = local_centers(e.inputs());
  for (std::int64_t row = 0; row < B * H * Q; ++row)
    ASSERT_NEAR(element(all, row) / key_len, element(each, row) / static_cast<double>(lengths[row / Q / H]),
                1e-15);
}

TEST(Local, GradientsAreDerivatives) {
  for (const bool each_head : {false, true}) {
    Example e(DType::f64, each_head);
    e.backward();
    const auto loss = [&] { return inner_product(local_centers(e.inputs()), e.d_centers); };
    expect_derivatives(loss, {{"query", e.query, e.d_query}, {"W", e.W, e.dW}, {"v", e.v, e.dv}});
  }
}

// query_before is added, whether it is the gradient's own view or another.
TEST(Local, GradientsOfTheQueryAddUp) {
  for (const auto& [dtype, tolerance] :
       {std::pair{DType::f64, 1e-15}, {DType::f32, 1e-6}, {DType::f16, 2e-2}}) {
    Example e(dtype, false);
    e.backward();
    const Tensor before = random_tensor(dtype, {B, H, Q, D}, 5), sum = before.clone(),
                 apart = unwritten_like(before);
    local_centers_backward(e.inputs(), e.d_centers, {.query = sum, .W = {}, .v = {}, .query_before = sum});
    local_centers_backward(e.inputs(), e.d_centers,
                           {.query = apart, .W = {}, .v = {}, .query_before = before});
    expect_same_bits({sum}, {apart});
    for (std::int64_t i = 0; i < sum.count(); ++i)
      ASSERT_NEAR(element(sum, i), element(before, i) + element(e.d_query, i), tolerance * 8) << i;
    const Tensor wrong(dtype, {B, H, Q, D + 1});
    EXPECT_THROW(local_centers_backward(e.inputs(), e.d_centers,
                                        {.query = sum, .W = {}, .v = {}, .query_before = wrong}),
                 InvalidArgument);
  }
}

TEST(Local, NarrowGradientsFollowTheWideOnes) {
  Example wide(DType::f64, true);
  for (const auto& [dtype, tolerance] :
       {std::pair{DType::f32, 1e-4}, {DType::f16, 1e-2}, {DType::bf16, 0.1}}) {
    Example e(dtype, true);
    for (std::int64_t i = 0; i < e.query.count(); ++i) set_element(wide.query, i, element(e.query, i));
    e.backward();
    wide.backward();
    expect_near(e.d_query, wide.d_query, tolerance, "d_query");
    expect_near(e.dW, wide.dW, 1e-4, "dW");  // f32 whatever the query is
    expect_near(e.dv, wide.dv, 1e-4, "dv");
  }
}

TEST(Local, SameBitsForEveryThreadCount) {
  for (const bool each_head : {false, true}) {
    expect_same_bits_for_every_thread_count([&](Executor& executor) {
      Example e(DType::f32, each_head);
      e.backward(executor);
      return std::vector<Tensor>{local_centers(e.inputs(), {.executor = &executor}), e.d_query, e.dW, e.dv};
    });
  }
}

// A padding query may be NaN. If nothing depends on its center, no parameter's gradient changes.
TEST(Local, NaNQueriesWithoutInfluence) {
  Example clean(DType::f32, false), e(DType::f32, false);
  set_element(clean.d_centers, 2, 0.0);
  set_element(e.d_centers, 2, 0.0);
  for (std::int64_t d = 0; d < D; ++d)
    set_element(e.query, 2 * D + d, std::numeric_limits<double>::quiet_NaN());
  clean.backward();
  e.backward();
  expect_same_bits({e.d_query, e.dW, e.dv}, {clean.d_query, clean.dW, clean.dv});
}

TEST(Local, RefusesInvalidArguments) {
  const Example e(DType::f32, false);
  const Tensor wide = random_tensor(DType::f64, {hidden, D}, 1), two(DType::f32, {2, hidden}),
               narrow(DType::f32, {hidden, D - 1});
  const std::int64_t too_long[] = {20, 21}, one[] = {20};
  const auto refused = [&](auto&& change, const char* argument) {
    LocalInputs in = e.inputs();
    change(in);
    expect_refused([&] { local_centers(in); }, "local_centers", argument);
  };
  refused([&](LocalInputs& in) { in.query = wide; }, "query");
  refused([&](LocalInputs& in) { in.W = wide; }, "W");
  refused([&](LocalInputs& in) { in.W = narrow; }, "W");
  refused([&](LocalInputs& in) { in.W = {}; }, "W");
  refused([&](LocalInputs& in) { in.v = two; }, "v");
  refused([&](LocalInputs& in) { in.key_len = -1; }, "key_len");
  refused([&](LocalInputs& in) { in.key_lengths = too_long; }, "key_lengths");
  refused([&](LocalInputs& in) { in.key_lengths = one; }, "key_lengths");
  const char* name = "local_centers_backward";
  const auto backward = [&](const ConstTensorView& d_centers, const LocalGradients& g) {
    return [&e, d_centers, g] { local_centers_backward(e.inputs(), d_centers, g); };
  };
  expect_refused(backward(e.query, {}), name, "d_centers");
  expect_refused(backward(e.d_centers, {.query = narrow, .W = {}, .v = {}}), name, "gradients.query");
  expect_refused(backward(e.d_centers, {.query = {}, .W = narrow, .v = {}}), name, "gradients.W");
  expect_refused(backward(e.d_centers, {.query = {}, .W = e.W, .v = {}}), name, "gradients.W");
  expect_refused(backward(e.d_centers, {.query = {}, .W = {}, .v = two}), name, "gradients.v");
}

}  // namespace
}  // namespace fovea::testing
