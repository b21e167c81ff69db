#include "fovea/plan/feature_maps.h"

#include <gtest/gtest.h>

#include <numbers>

#include "recurrence/channel_cases.h"

namespace fovea::testing {
namespace {

Tensor random_rows(DType dtype, const Shape& shape, std::uint64_t seed) {
  PhiloxStream random(seed);
  return drawn(dtype, shape, random);
}

TEST(Favor, ProjectionsAreOrthogonalInGroupsAndKeepNormalLengths) {
  const Tensor projection = favor_projection(20, 8, 3);
  double squares = 0;
  for (std::int64_t i = 0; i < 20; ++i) {
    for (std::int64_t j = i / 8 * 8; j <= i; ++j) {
      double sum = 0;
      for (std::int64_t d = 0; d < 8; ++d)
        sum += element(projection, i * 8 + d) * element(projection, j * 8 + d);
      if (i == j)
        squares += sum;
      else
        EXPECT_NEAR(sum, 0, 1e-12);
    }
  }
  // 160 squares of normal numbers: the mean is 1, its deviation sqrt(2 / 160).
  EXPECT_NEAR(squares / 160, 1, 4 * std::sqrt(2.0 / 160));
  expect_same_bits({favor_projection(20, 8, 3)}, {projection});
}

TEST(Favor, FeaturesAreTheirDefinition) {
  const Tensor projection = favor_projection(21, 6, 5);
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    const Tensor x = random_rows(dtype, {2, 3, 19, 6}, 7), features = unwritten(dtype, {2, 3, 19, 21});
    favor_features({.shift = 0.5}, x, projection, features);
    const double root = std::pow(6.0, -0.25);
    for (std::int64_t row = 0; row < 2 * 3 * 19; ++row) {
      double square = 0;
      for (std::int64_t d = 0; d < 6; ++d) square += std::pow(root * element(x, row * 6 + d), 2);
      for (std::int64_t j = 0; j < 21; ++j) {
        double exponent = -square / 2 - 0.5;
        for (std::int64_t d = 0; d < 6; ++d)
          exponent += element(projection, j * 6 + d) * root * element(x, row * 6 + d);
        const double want = std::exp(exponent) / std::sqrt(21.0);
        // The exponent, of some units, is a sum of 7 rounded terms.
        ASSERT_NEAR(element(features, row * 21 + j), want, 64 * epsilon_of(dtype) * want) << row << " " << j;
      }
    }
  }
}

// The variance of one product is about e^(|q+k|²) times the kernel; orthogonal rows have less.
TEST(Favor, ProductsOfFeaturesEstimateTheExponential) {
  const std::int64_t features = 1 << 14;
  const Tensor q = random_rows(DType::f64, {1, 1, 3, 4}, 1), k = random_rows(DType::f64, {1, 1, 3, 4}, 2),
               projection = favor_projection(features, 4, 11);
  const Tensor of_q(DType::f64, {1, 1, 3, features}), of_k(DType::f64, {1, 1, 3, features});
  favor_features({}, q, projection, of_q);
  favor_features({}, k, projection, of_k);
  for (std::int64_t row = 0; row < 3; ++row) {
    double product = 0, estimate = 0;
    for (std::int64_t d = 0; d < 4; ++d) product += element(q, row * 4 + d) * element(k, row * 4 + d);
    for (std::int64_t j = 0; j < features; ++j)
      estimate += element(of_q, row * features + j) * element(of_k, row * features + j);
    const double want = std::exp(product / 2);
    EXPECT_NEAR(estimate / want, 1, 6 * std::exp(1.0) / std::sqrt(static_cast<double>(features)));
  }
}

TEST(Favor, GradientsAreCentralDifferences) {
  const Tensor x = random_rows(DType::f64, {1, 2, 18, 5}, 1), projection = favor_projection(13, 5, 2),
               d_features = random_rows(DType::f64, {1, 2, 18, 13}, 3), d_x = unwritten_like(x);
  favor_features_backward({.shift = 0.2}, x, projection, d_features, d_x);
  const auto loss = [&] {
    const Tensor features(DType::f64, d_features.shape());
    favor_features({.shift = 0.2}, x, projection, features);
    return inner_product(features, d_features);
  };
  expect_derivatives(loss, {{"x", x, d_x}});
  // In f32 as in f64, on any number of threads.
  const auto single = [](const Tensor& tensor) {
    Tensor copy(DType::f32, tensor.shape());
    for (std::int64_t i = 0; i < tensor.count(); ++i) set_element(copy, i, element(tensor, i));
    return copy;
  };
  const Tensor x32 = single(x), d32 = single(d_features);
  expect_same_bits_for_every_thread_count([&](Executor& executor) {
    const Tensor got = unwritten_like(x32);
    favor_features_backward({.shift = 0.2}, x32, projection, d32, got, {.executor = &executor});
    for (std::int64_t i = 0; i < got.count(); ++i)
      EXPECT_NEAR(element(got, i), element(d_x, i), 64 * 0x1p-23 * 8);
    return std::vector<Tensor>{got};
  });
}

TEST(CosReweight, ProductsAreWeightedByTheCosineOfTheDistance) {
  const Tensor q = random_rows(DType::f64, {1, 1, 9, 4}, 1), k = random_rows(DType::f64, {1, 1, 9, 4}, 2);
  const Tensor of_q(DType::f64, {1, 1, 9, 8}), of_k(DType::f64, {1, 1, 9, 8});
  cos_features({.max_len = 20, .first_position = 5}, q, of_q);
  cos_features({.max_len = 20, .first_position = 2}, k, of_k);
  for (std::int64_t i = 0; i < 9; ++i) {
    for (std::int64_t j = 0; j < 9; ++j) {
      double product = 0, got = 0;
      for (std::int64_t d = 0; d < 4; ++d)
        product += std::max(element(q, i * 4 + d), 0.0) * std::max(element(k, j * 4 + d), 0.0);
      for (std::int64_t d = 0; d < 8; ++d) got += element(of_q, i * 8 + d) * element(of_k, j * 8 + d);
      EXPECT_NEAR(got, product * std::cos(std::numbers::pi / 40 * static_cast<double>(i + 5 - j - 2)), 1e-14);
    }
  }
}

TEST(CosReweight, GradientsAreCentralDifferences) {
  const Tensor x = random_rows(DType::f64, {2, 1, 7, 3}, 1),
               d_features = random_rows(DType::f64, {2, 1, 7, 6}, 2), d_x = unwritten_like(x);
  const CosReweight map{.max_len = 9, .first_position = 2};
  cos_features_backward(map, x, d_features, d_x);
  const auto loss = [&] {
    const Tensor features(DType::f64, d_features.shape());
    cos_features(map, x, features);
    return inner_product(features, d_features);
  };
  expect_derivatives(loss, {{"x", x, d_x}});
}

TEST(FeatureMaps, RefuseWhatDoesNotFit) {
  const Tensor x = random_rows(DType::f32, {1, 1, 4, 3}, 1), features = unwritten(DType::f32, {1, 1, 4, 5}),
               projection = favor_projection(5, 3, 1), other = favor_projection(5, 4, 1),
               turned = unwritten(DType::f32, {1, 1, 4, 6});
  expect_refused([] { favor_projection(0, 3, 1); }, "favor_projection", "num_features");
  expect_refused([&] { favor_features({}, {}, projection, features); }, "favor_features", "x");
  expect_refused([&] { favor_features({}, x, other, features); }, "favor_features", "projection");
  expect_refused([&] { favor_features({}, x, projection, turned); }, "favor_features", "features");
  expect_refused([&] { favor_features_backward({}, x, projection, turned, x); }, "favor_features_backward",
                 "d_features");
  expect_refused([&] { favor_features_backward({}, x, projection, features, x); }, "favor_features_backward",
                 "d_x");
  expect_refused([&] { cos_features({.max_len = 3}, x, turned); }, "cos_features", "map.max_len");
  expect_refused([&] { cos_features({.max_len = 4, .first_position = -1}, x, turned); }, "cos_features",
                 "map.first_position");
  expect_refused([&] { cos_features({.max_len = 4}, x, features); }, "cos_features", "features");
}

}  // namespace
}  // namespace fovea::testing
