// Copies, gathers, losses and sums of embeddings that are large enough to be shared by threads: each against
// plain loops, and with the same bits for any number of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "autograd/by_threads.h"
#include "autograd/rows.h"
#include "fovea/autograd/ops.h"

namespace fovea::autograd {
namespace {

// More than one piece of 2^15 elements, whose ends lie within rows.
constexpr std::int64_t B = 7, T = 113, D = 130;

TEST(SharedPasses, Concat) {
  constexpr std::int64_t widths[] = {130, 1, 90, 0, 37};
  std::vector<Tensor> parts;
  for (const std::int64_t width : widths) parts.push_back(drawn({B, width, T}, parts.size() + 1));
  const auto results = run_by_threads(parts, [](const auto& v) { return concat(v, 1); });
  const Tensor& whole = results[0];
  const Tensor d = drawn(whole.shape(), 99);
  std::int64_t begin = 0;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const std::int64_t width = widths[p];
    const auto place = [&](std::int64_t i) {
      return (i / (width * T) * whole.size(1) + begin + i / T % width) * T + i % T;
    };
    for (std::int64_t i = 0; i < parts[p].count(); ++i)
      ASSERT_EQ(whole.data<float>()[place(i)], parts[p].data<float>()[i]) << p << ", " << i;
    expect_elements(results[p + 1], [&](std::int64_t i) { return d.data<float>()[place(i)]; });
    begin += width;
  }
}

TEST(SharedPasses, SlicesAddUpWhereTheyOverlap) {
  const Tensor x = drawn({B, T, D}, 1);
  const auto results =
      run_by_threads({x}, [](const auto& v) { return add(slice(v[0], 1, 3, 100), slice(v[0], 1, 10, 100)); });
  const auto at = [&](const Tensor& of, std::int64_t b, std::int64_t t, std::int64_t rows, std::int64_t j) {
    return of.data<float>()[(b * rows + t) * D + j];
  };
  const Tensor d = drawn({B, 100, D}, 99);
  expect_elements(results[0], [&](std::int64_t i) {
    const std::int64_t b = i / (100 * D), t = i / D % 100;
    return at(x, b, t + 3, T, i % D) + at(x, b, t + 10, T, i % D);
  });
  expect_elements(results[1], [&](std::int64_t i) {
    const std::int64_t b = i / (T * D), t = i / D % T;
    float sum = 0.0f;
    for (const std::int64_t first : {10, 3}) {
      if (t >= first && t < first + 100) sum += at(d, b, t - first, 100, i % D);
    }
    return sum;
  });
}

TEST(SharedPasses, GatheredRowsAddTheirGradientsInOrder) {
  constexpr std::int64_t count = 60, width = 300;  // more columns than a unit has
  const Tensor x = drawn({B, T, width}, 1);
  std::vector<std::int64_t> index;
  for (std::int64_t i = 0; i < B * count; ++i) index.push_back(i * i % 31);  // with repetitions
  const auto results = run_by_threads({x}, [&](const auto& v) { return gather_rows(v[0], index, count); });
  const auto row = [&](std::int64_t i) { return i / count * T + index[static_cast<std::size_t>(i)]; };
  expect_elements(results[0],
                  [&](std::int64_t i) { return x.data<float>()[row(i / width) * width + i % width]; });
  const Tensor d = drawn(results[0].shape(), 99);
  Tensor expected = Tensor::zeros(DType::f32, x.shape());
  for (std::int64_t i = 0; i < d.count(); ++i)
    expected.data<float>()[row(i / width) * width + i % width] += d.data<float>()[i];
  expect_elements(results[1], [&](std::int64_t i) { return expected.data<float>()[i]; });
}

TEST(SharedPasses, BlendedRows) {
  const Tensor a = drawn({T, 1000}, 1), b = drawn({T, 1000}, 2);
  std::vector<float> mask;
  for (std::int64_t r = 0; r < T; ++r) mask.push_back(r % 3 == 0 ? 1.0f : 0.0f);
  const auto results = run_by_threads({a, b}, [&](const auto& v) { return blend_rows(mask, v[0], v[1]); });
  const Tensor d = drawn(a.shape(), 99);
  const auto first = [&](std::int64_t i) { return mask[static_cast<std::size_t>(i / 1000)] != 0.0f; };
  expect_elements(results[0], [&](std::int64_t i) { return (first(i) ? a : b).data<float>()[i]; });
  expect_elements(results[1], [&](std::int64_t i) { return first(i) ? d.data<float>()[i] : 0.0f; });
  expect_elements(results[2], [&](std::int64_t i) { return first(i) ? 0.0f : d.data<float>()[i]; });
}

// The gradient of a reshaped value becomes that of the value without a copy. What else is added to it later
// must not reach the gradient of another.
TEST(SharedPasses, AReshapedValueHasAGradientOfItsOwn) {
  const Tensor x = drawn({T, D}, 1);
  const auto results = run_by_threads({x}, [](const auto& v) {
    const Var twice = scale(v[0], 2.0f);
    return add(reshape(twice, {T * D}), reshape(add(twice, twice), {T * D}));
  });
  const Tensor d = drawn({T * D}, 99);
  expect_elements(results[1], [&](std::int64_t i) { return 2.0f * (3.0f * d.data<float>()[i]); });
}

TEST(SharedPasses, SumsOfEmbeddings) {
  constexpr std::int64_t vocabulary = 91, bags = 150, width = 270;
  const Tensor table = drawn({vocabulary, width}, 1);
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> counts;
  std::vector<float> weights;
  for (std::int64_t bag = 0; bag < bags; ++bag) {
    counts.push_back(bag % 5 == 4 ? 0 : bag % 13);
    for (std::int64_t n = 0; n < counts.back(); ++n) {
      ids.push_back(static_cast<std::int32_t>((bag * 7 + n * n) % vocabulary));
      weights.push_back(0.1f + static_cast<float>(n));
    }
  }
  const auto results =
      run_by_threads({table}, [&](const auto& v) { return embedding_sums(v[0], ids, counts, weights); });
  const Tensor d = drawn(results[0].shape(), 99);
  std::vector<float> sums(static_cast<std::size_t>(bags * width)),
      gradient(static_cast<std::size_t>(table.count()));
  std::size_t i = 0;
  for (std::int64_t bag = 0; bag < bags; ++bag) {
    for (std::int64_t n = 0; n < counts[static_cast<std::size_t>(bag)]; ++n, ++i) {
      for (std::int64_t j = 0; j < width; ++j) {
        // A product is rounded before it is added: volatile keeps compilers from fusing the two.
        const volatile float forward = weights[i] * table.data<float>()[ids[i] * width + j],
                             backward = weights[i] * d.data<float>()[bag * width + j];
        sums[static_cast<std::size_t>(bag * width + j)] += forward;
        gradient[static_cast<std::size_t>(ids[i] * width + j)] += backward;
      }
    }
  }
  expect_elements(results[0], [&](std::int64_t n) { return sums[static_cast<std::size_t>(n)]; });
  expect_elements(results[1], [&](std::int64_t n) { return gradient[static_cast<std::size_t>(n)]; });
}

std::vector<std::int32_t> some_targets(std::int64_t rows, std::int64_t classes) {
  std::vector<std::int32_t> targets;
  for (std::int64_t r = 0; r < rows; ++r)
    targets.push_back(r % 7 == 3 ? -1 : static_cast<std::int32_t>(r * 31 % classes));
  return targets;
}

// Losses of many rows, in double.
TEST(SharedPasses, LossesOfManyRows) {
  constexpr std::int64_t rows = 900, classes = 75;
  const std::vector<std::int32_t> targets = some_targets(rows, classes);
  Tensor x = drawn({rows, classes}, 1);
  for (std::int64_t i = 0; i < x.count(); ++i) x.data<float>()[i] = std::abs(x.data<float>()[i]) + 0.01f;
  double entropy = 0.0, likelihood = 0.0, squares = 0.0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* row = x.data<float>() + r * classes;
    double sum = 0.0;
    for (std::int64_t j = 0; j < classes; ++j) {
      sum += std::exp(static_cast<double>(row[j]));
      squares += static_cast<double>(row[j]) * row[j];
    }
    if (targets[static_cast<std::size_t>(r)] < 0) continue;
    const double given = row[targets[static_cast<std::size_t>(r)]];
    entropy += std::log(sum) - given;
    likelihood -= std::log(given);
  }
  const auto expect_loss = [&](double expected, const Op& op) {
    const auto results = run_by_threads({x}, op);
    EXPECT_NEAR(*results[0].data<float>(), expected, 1e-6 * expected);
    return results[1];
  };
  CrossEntropyStats stats;
  const Tensor d =
      expect_loss(entropy, [&](const auto& v) { return cross_entropy(v[0], targets, {}, &stats); });
  EXPECT_EQ(stats.tokens, std::ranges::count_if(targets, [](std::int32_t target) { return target >= 0; }));
  EXPECT_NEAR(stats.loss, entropy, 1e-6 * entropy);
  for (std::int64_t j = 0; j < classes; ++j) EXPECT_EQ(d.data<float>()[3 * classes + j], 0.0f);
  expect_loss(likelihood, [&](const auto& v) { return negative_log_likelihood(v[0], targets); });
  expect_loss(squares,
              [&](const auto& v) { return squared_error(v[0], Tensor::zeros(DType::f32, x.shape())); });
}

// The gradient of a loss that is scaled after it, over more rows than one chunk of logits has.
TEST(SharedPasses, AScaledLossScalesItsGradients) {
  constexpr std::int64_t rows = 300, dim = 40, classes = 1000;
  const std::vector<std::int32_t> targets = some_targets(rows, classes);
  const std::vector<Tensor> inputs{drawn({rows, dim}, 1), drawn({classes, dim}, 2), drawn({classes}, 3)};
  const auto by = [&](float factor) {
    return run_by_threads(inputs, [&](const auto& v) {
      return scale(linear_cross_entropy(v[0], v[1], v[2], targets), factor);
    });
  };
  const auto one = by(1.0f), four = by(4.0f);
  const auto apart =
      run_by_threads(inputs, [&](const auto& v) { return cross_entropy(linear(v[0], v[1], v[2]), targets); });
  for (std::size_t i = 1; i < one.size(); ++i) {
    expect_elements(four[i], [&](std::int64_t n) { return 4.0f * one[i].data<float>()[n]; });
    // Sums of at most 1,000 numbers below 1, each sum rounded as often.
    for (std::int64_t n = 0; n < one[i].count(); ++n)
      ASSERT_NEAR(one[i].data<float>()[n], apart[i].data<float>()[n], 1000 * 6e-8) << i << ", " << n;
  }
}

TEST(SharedPasses, NoRowWithATargetHasNoGradient) {
  const std::vector<std::int32_t> targets(5, -1);
  const auto results = run_by_threads({drawn({5, 4}, 1), drawn({9, 4}, 2)}, [&](const auto& v) {
    return linear_cross_entropy(v[0], v[1], {}, targets);
  });
  for (const Tensor& result : results) expect_elements(result, [](std::int64_t) { return 0.0f; });
}

TEST(SharedPasses, TheFirstOfTheLargestIsFound) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN(),
                  never = -std::numeric_limits<float>::infinity();
  for (const std::int64_t classes : {1, 2, 511, 512, 513, 1500}) {
    Tensor rows = drawn({200, classes}, static_cast<std::uint64_t>(classes));
    float* x = rows.data<float>();
    for (std::int64_t i = 0; i < rows.count(); ++i) x[i] = std::floor(x[i] * 3.0f);  // with equals
    x[classes - 1] = 9.0f;
    for (std::int64_t j = 0; j < classes; ++j) x[classes + j] = never;
    for (std::int64_t j = 0; j < classes; ++j) x[2 * classes + j] = nan;
    x[3 * classes] = nan;
    x[5 * classes - 1] = nan;
    std::vector<std::int32_t> expected;
    for (std::int64_t r = 0; r < 200; ++r)
      expected.push_back(static_cast<std::int32_t>(std::max_element(x + r * classes, x + (r + 1) * classes) -
                                                   (x + r * classes)));
    EXPECT_EQ(argmax_rows(rows), expected) << classes;
  }
}

}  // namespace
}  // namespace fovea::autograd
