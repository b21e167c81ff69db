#include "fovea/nn/resampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "nn/parameter_gradients.h"

namespace fovea::nn {
namespace {

constexpr std::int64_t dim = 8, rows = 9;

struct Resampled {
  ParameterSet set{3};
  Resampler resampler{set, "resampler", dim, {.latents = 3, .layers = 2, .num_heads = 2, .feed_forward = 12}};
  Context context;
  Resampled() { disturb(set); }
};

void expect_near(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.shape(), b.shape());
  for (std::int64_t i = 0; i < a.count(); ++i) ASSERT_NEAR(a.data<float>()[i], b.data<float>()[i], 1e-5) << i;
}

TEST(Resampler, HasTheGradientOfEveryParameterAndOfItsInput) {
  Resampled r;
  Parameter& input = r.set.normal("x", {2, rows, dim}, 1.0f);
  const std::vector<std::int64_t> lengths{rows, 4};
  expect_gradients(r.set,
                   [&](Context& context) { return r.resampler(context, context.use(input), lengths); });
}

TEST(Resampler, DoesNotDependOnTheOrderOfRows) {
  Resampled r;
  const Tensor x = Tensor::normal({1, rows, dim}, 1);
  const std::vector<std::int64_t> order{3, 1, 4, 0, 8, 2, 6, 5, 7};
  const Tensor other = autograd::gather_rows(x, order, rows).value();
  expect_near(r.resampler(r.context, x).value(), r.resampler(r.context, other).value());
}

TEST(Resampler, ReadsAPaddedEntryAsItIsAlone) {
  Resampled r;
  Tensor x = Tensor::normal({2, rows, dim}, 1);
  for (std::int64_t i = 4 * dim; i < rows * dim; ++i)
    x.data<float>()[rows * dim + i] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::int64_t> lengths{rows, 4};
  const Tensor y = r.resampler(r.context, x, lengths).value();
  const Var second = autograd::slice(autograd::slice(x, 0, 1, 1), 1, 0, 4);
  expect_near(autograd::slice(y, 0, 1, 1).value(), r.resampler(r.context, second).value());
}

TEST(Resampler, ReturnsTheWeightsOfItsLastLayer) {
  Resampled r;
  Tensor weights;
  r.resampler(r.context, Tensor::normal({2, rows, dim}, 1), {}, &weights);
  ASSERT_EQ(weights.shape(), (Shape{2, 2, 3, 3 + rows}));
  for (std::int64_t row = 0; row < 2 * 2 * 3; ++row) {
    float sum = 0.0f;
    for (std::int64_t i = 0; i < 3 + rows; ++i) sum += weights.data<float>()[row * (3 + rows) + i];
    EXPECT_NEAR(sum, 1.0f, 1e-5);
  }
}

TEST(Resampler, RefusesWrongSizes) {
  ParameterSet set(1);
  for (const ResamplerOptions& wrong :
       {ResamplerOptions{.latents = 0}, ResamplerOptions{.layers = 0}, ResamplerOptions{.num_heads = 3},
        ResamplerOptions{.num_heads = 0}, ResamplerOptions{.feed_forward = 0}})
    EXPECT_THROW(Resampler(set, "refused", dim, wrong), InvalidArgument);
  Resampled r;
  EXPECT_THROW(r.resampler(r.context, Tensor::normal({1, rows, dim + 1}, 1)), InvalidArgument);
  EXPECT_THROW(r.resampler(r.context, Tensor::normal({rows, dim}, 1)), InvalidArgument);
}

}  // namespace
}  // namespace fovea::nn
