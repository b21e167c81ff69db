// Gates, pooling and norms of rows that are large enough to be shared by threads: each against plain loops in
// double, and with the same bits for any number of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "autograd/by_threads.h"
#include "fovea/autograd/recurrence.h"
#include "fovea/autograd/row_groups.h"

namespace fovea::autograd::shared_gates {
namespace {

// More than one piece of 2^15 elements, whose ends lie within rows.
constexpr std::int64_t B = 7, T = 113, D = 132;

double at(const Tensor& x, std::int64_t i) {
  return x.data<float>()[i];
}

// Relative to the largest of the terms that were added.
void expect_near(const Tensor& got, const std::function<double(std::int64_t)>& expected, double error) {
  for (std::int64_t i = 0; i < got.count(); ++i) {
    const double wanted = expected(i);
    ASSERT_NEAR(at(got, i), wanted, error * std::max(1.0, std::abs(wanted)))
        << "element " << i << " of " << to_string(got.shape());
  }
}

Tensor spread(const Shape& shape, float factor) {
  Tensor x = drawn(shape, 1);
  for (std::int64_t i = 0; i < x.count(); ++i) x.data<float>()[i] *= factor;
  return x;
}

TEST(SharedGates, Softplus) {
  const Tensor x = spread({B, T, D}, 30.0f);
  const auto results = run_by_threads({x}, [](const auto& v) { return softplus(v[0]); });
  const Tensor d = drawn(x.shape(), 99);
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const double expected = std::max(at(x, i), 0.0) + std::log1p(std::exp(-std::abs(at(x, i))));
    ASSERT_NEAR(at(results[0], i), expected, 5e-7 * expected) << at(x, i);
    const double slope = at(d, i) / (1.0 + std::exp(-at(x, i)));
    ASSERT_NEAR(at(results[1], i), slope, 1e-6 * std::abs(slope)) << at(x, i);
  }
}

TEST(SharedGates, Exponentials) {
  const Tensor x = spread({B, T, D}, 90.0f);
  const auto results = run_by_threads({x}, [](const auto& v) { return exp(v[0]); });
  const Tensor d = drawn(x.shape(), 99);
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const auto expected = static_cast<float>(std::exp(at(x, i)));
    if (std::isinf(expected)) {
      ASSERT_EQ(at(results[0], i), expected) << at(x, i);
      continue;
    }
    // The last term is one subnormal number.
    ASSERT_NEAR(at(results[0], i), expected, 5e-7 * static_cast<double>(expected) + 1.5e-45) << at(x, i);
    ASSERT_EQ(at(results[1], i), d.data<float>()[i] * results[0].data<float>()[i]);
  }
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const float ends[] = {-infinity, -200.0f, 0.0f, 200.0f, infinity, std::numeric_limits<float>::quiet_NaN()};
  const Tensor y = exp(Tensor::from<float>(ends, {6})).value();
  EXPECT_EQ(at(y, 0), 0.0);
  EXPECT_EQ(at(y, 1), 0.0);
  EXPECT_EQ(at(y, 2), 1.0);
  EXPECT_EQ(at(y, 3), infinity);
  EXPECT_EQ(at(y, 4), infinity);
  EXPECT_TRUE(std::isnan(at(y, 5)));
  const Tensor z = softplus(Tensor::from<float>(ends, {6})).value();
  EXPECT_EQ(at(z, 0), 0.0);
  EXPECT_EQ(at(z, 1), 0.0);
  EXPECT_FLOAT_EQ(z.data<float>()[2], std::log(2.0f));
  EXPECT_EQ(at(z, 3), 200.0);
  EXPECT_EQ(at(z, 4), infinity);
  EXPECT_TRUE(std::isnan(at(z, 5)));
}

TEST(SharedGates, Clamps) {
  const Tensor x = drawn({B, T, D}, 1);
  const auto results = run_by_threads({x}, [](const auto& v) { return clamp(v[0], -0.3f, 0.4f); });
  const Tensor d = drawn(x.shape(), 99);
  expect_elements(results[0], [&](std::int64_t i) { return std::clamp(x.data<float>()[i], -0.3f, 0.4f); });
  expect_elements(results[1], [&](std::int64_t i) {
    const float value = x.data<float>()[i];
    return value < -0.3f || value > 0.4f ? 0.0f : d.data<float>()[i];
  });
}

// Groups of one element and of several; factors of each row, and of all rows.
TEST(SharedGates, MultipliedGroups) {
  const Tensor x = drawn({B, T, D}, 1);
  for (const std::int64_t groups : {std::int64_t{1}, std::int64_t{12}, D}) {
    for (const bool shared : {false, true}) {
      const std::int64_t size = D / groups;
      const Tensor factors = drawn(shared ? Shape{groups} : Shape{B, T, groups}, 2);
      const auto results =
          run_by_threads({x, factors}, [](const auto& v) { return multiply_groups(v[0], v[1]); });
      const Tensor d = drawn(x.shape(), 99);
      const auto factor = [&](std::int64_t i) {
        return factors.data<float>()[(shared ? 0 : i / D * groups) + i % D / size];
      };
      expect_elements(results[0], [&](std::int64_t i) { return x.data<float>()[i] * factor(i); });
      expect_elements(results[1], [&](std::int64_t i) { return d.data<float>()[i] * factor(i); });
      std::vector<double> sums(static_cast<std::size_t>(factors.count()));
      for (std::int64_t i = 0; i < x.count(); ++i)
        sums[static_cast<std::size_t>((shared ? 0 : i / D * groups) + i % D / size)] += at(x, i) * at(d, i);
      expect_near(
          results[2], [&](std::int64_t i) { return sums[static_cast<std::size_t>(i)]; }, 2e-5);
    }
  }
}

TEST(SharedGates, RowsOfLengthOne) {
  const Tensor x = drawn({B, T, D}, 1);
  const auto results = run_by_threads({x}, [](const auto& v) { return normalize_rows(v[0]); });
  const Tensor d = drawn(x.shape(), 99);
  std::vector<double> length(B * T), along(B * T);
  for (std::int64_t i = 0; i < x.count(); ++i) length[i / D] += at(x, i) * at(x, i);
  for (double& one : length) one = std::sqrt(one);
  for (std::int64_t i = 0; i < x.count(); ++i) along[i / D] += at(x, i) / length[i / D] * at(d, i);
  expect_near(
      results[0], [&](std::int64_t i) { return at(x, i) / length[i / D]; }, 1e-6);
  expect_near(
      results[1],
      [&](std::int64_t i) { return (at(d, i) - at(x, i) / length[i / D] * along[i / D]) / length[i / D]; },
      1e-6);
}

TEST(SharedGates, Pooling) {
  constexpr std::int64_t width = 530;  // more columns than a unit has
  const std::vector<std::int64_t> lengths{1, T, 17, 3, T, 64, 2};
  const Tensor x = drawn({B, T, width}, 1);
  const auto row = [&](std::int64_t i) { return lengths[static_cast<std::size_t>(i / (T * width))]; };
  const auto is_padding = [&](std::int64_t i) { return i / width % T >= row(i); };
  for (const Pool kind : {Pool::mean, Pool::max}) {
    const auto results = run_by_threads({x}, [&](const auto& v) { return pool(kind, v[0], lengths); });
    const Tensor d = drawn({B, width}, 99);
    std::vector<double> pooled(B * width, kind == Pool::mean ? 0.0 : -2.0);
    for (std::int64_t i = 0; i < x.count(); ++i) {
      double& to = pooled[static_cast<std::size_t>(i / (T * width) * width + i % width)];
      if (!is_padding(i))
        to = kind == Pool::mean ? to + at(x, i) / static_cast<double>(row(i)) : std::max(to, at(x, i));
    }
    expect_near(
        results[0], [&](std::int64_t i) { return pooled[static_cast<std::size_t>(i)]; }, 1e-6);
    expect_near(
        results[1],
        [&](std::int64_t i) {
          const std::int64_t column = i / (T * width) * width + i % width;
          if (is_padding(i)) return 0.0;
          if (kind == Pool::mean) return at(d, column) / static_cast<double>(row(i));
          return at(x, i) == pooled[static_cast<std::size_t>(column)] ? at(d, column) : 0.0;
        },
        1e-6);
  }
}

TEST(SharedGates, GatedRows) {
  const std::vector<Tensor> inputs{drawn({B, T, D}, 1), drawn({B, T, D}, 2)};
  const auto results =
      run_by_threads(inputs, [](const auto& v) { return gated(Activation::relu, v[0], v[1]); });
  const Tensor d = drawn(inputs[0].shape(), 99);
  const auto gate = [&](std::int64_t i) { return std::max(inputs[0].data<float>()[i], 0.0f); };
  const auto x = [&](std::int64_t i) { return inputs[1].data<float>()[i]; };
  expect_elements(results[0], [&](std::int64_t i) { return gate(i) * x(i); });
  expect_elements(results[1],
                  [&](std::int64_t i) { return gate(i) > 0.0f ? d.data<float>()[i] * x(i) : 0.0f; });
  expect_elements(results[2], [&](std::int64_t i) { return d.data<float>()[i] * gate(i); });
}

// All tokens read one of few rows, whose columns are shared out.
TEST(SharedGates, EmbeddingsOfFewRows) {
  for (const std::int64_t vocabulary : {1, 3, 70}) {
    const Tensor table = drawn({vocabulary, D}, 1);
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < B * T; ++i) ids.push_back(static_cast<std::int32_t>(i * i % vocabulary));
    const auto results = run_by_threads({table}, [&](const auto& v) { return embedding(v[0], ids, 0.5f); });
    const auto id = [&](std::int64_t i) { return ids[static_cast<std::size_t>(i / D)]; };
    expect_elements(results[0],
                    [&](std::int64_t i) { return 0.5f * table.data<float>()[id(i) * D + i % D]; });
    const Tensor d = drawn(results[0].shape(), 99);
    std::vector<float> expected(static_cast<std::size_t>(table.count()));
    for (std::int64_t i = 0; i < d.count(); ++i)
      expected[static_cast<std::size_t>(id(i) * D + i % D)] += 0.5f * d.data<float>()[i];
    expect_elements(results[1], [&](std::int64_t i) { return expected[static_cast<std::size_t>(i)]; });
  }
}

// Rows of padding belong to no group, and entries have different numbers of groups.
TEST(SharedGates, MergedAndSpreadRows) {
  const std::vector<std::int64_t> lengths{1, T, 17, 3, T, 64, 2};
  const RowGroups groups = neighbour_groups(B, T, 4, lengths);
  const auto at_group = [&](std::int64_t i) {
    return groups.group[static_cast<std::size_t>(i / D)] < 0
               ? -1
               : (i / (T * D) * groups.kept + groups.group[static_cast<std::size_t>(i / D)]) * D + i % D;
  };
  const auto share = [&](std::int64_t i) { return groups.share[static_cast<std::size_t>(i / D)]; };
  const Tensor x = drawn({B, T, D}, 1), few = drawn({B, groups.kept, D}, 2);
  const auto merged = run_by_threads({x}, [&](const auto& v) { return merge_rows(v[0], groups); });
  const Tensor d_merged = drawn(few.shape(), 99);
  std::vector<double> sums(static_cast<std::size_t>(few.count()));
  for (std::int64_t i = 0; i < x.count(); ++i) {
    if (at_group(i) >= 0) sums[static_cast<std::size_t>(at_group(i))] += at(x, i) * share(i);
  }
  expect_near(
      merged[0], [&](std::int64_t i) { return sums[static_cast<std::size_t>(i)]; }, 1e-6);
  expect_elements(merged[1], [&](std::int64_t i) {
    return at_group(i) < 0 ? 0.0f : share(i) * d_merged.data<float>()[at_group(i)];
  });
  const auto spread = run_by_threads({few}, [&](const auto& v) { return spread_rows(v[0], groups); });
  const Tensor d_spread = drawn(x.shape(), 99);
  expect_elements(spread[0],
                  [&](std::int64_t i) { return at_group(i) < 0 ? 0.0f : few.data<float>()[at_group(i)]; });
  std::fill(sums.begin(), sums.end(), 0.0);
  for (std::int64_t i = 0; i < x.count(); ++i) {
    if (at_group(i) >= 0) sums[static_cast<std::size_t>(at_group(i))] += at(d_spread, i);
  }
  expect_near(
      spread[1], [&](std::int64_t i) { return sums[static_cast<std::size_t>(i)]; }, 1e-6);
}

// Values are those of tests/autograd/gradient_test.cpp; here the rows of a step are shared by threads.
TEST(SharedGates, RecurrentCells) {
  constexpr std::int64_t batch = 70, steps = 5, hidden = 240;
  std::vector<std::int64_t> lengths;
  for (std::int64_t b = 0; b < batch; ++b) lengths.push_back(b % (steps + 1));
  for (const Cell cell : {Cell::rnn, Cell::gru, Cell::lstm}) {
    const std::int64_t gates = gate_count(cell) * hidden, state = state_count(cell) * hidden;
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      const auto results = run_by_threads(
          {drawn({batch, steps, gates}, 1), drawn({batch, state}, 2), spread({gates, hidden}, 0.05f),
           drawn({gates}, 4)},
          [&](const auto& v) { return cell_sequence(cell, direction, v[0], v[1], v[2], v[3], lengths); });
      // A sequence without steps keeps its first state.
      const Tensor first = drawn({batch, state}, 2);
      for (std::int64_t i = 0; i < steps * state; ++i)
        ASSERT_EQ(results[0].data<float>()[i], first.data<float>()[i % state]) << i;
    }
  }
}

TEST(SharedGates, Sums) {
  const Tensor x = drawn({B, T, D}, 1);
  const auto results = run_by_threads({x}, [](const auto& v) { return sum(v[0]); });
  double expected = 0.0;
  for (std::int64_t i = 0; i < x.count(); ++i) expected += at(x, i);
  EXPECT_FLOAT_EQ(*results[0].data<float>(), static_cast<float>(expected));
  const float d = *drawn({1}, 99).data<float>();
  expect_elements(results[1], [&](std::int64_t) { return d; });
}

}  // namespace
}  // namespace fovea::autograd::shared_gates
