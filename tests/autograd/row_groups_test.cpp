// Fewer rows: learned sums, means of groups, and the groups of token merging.
#include "fovea/autograd/row_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "autograd/central_differences.h"

namespace fovea::autograd {
namespace {

const std::vector<std::int64_t> lengths{5, 0, 3};

TEST(RowGroups, HaveGradients) {
  check({parameter({2, 7}, 1), parameter({3, 5, 4}, 2)}, [](const auto& v) { return mix_rows(v[0], v[1]); });
  check({parameter({2, 7}, 1), parameter({3, 5, 4}, 2)},
        [](const auto& v) { return mix_rows(v[0], v[1], lengths); });
  const RowGroups neighbours = neighbour_groups(3, 5, 2, lengths);
  const RowGroups matched = matched_groups(Tensor::normal({3, 5, 4}, 3), 0.5, {}, lengths);
  for (const RowGroups& groups : {neighbours, matched}) {
    check({parameter({3, 5, 4}, 1)}, [&](const auto& v) { return merge_rows(v[0], groups); });
    check({parameter({3, groups.kept, 4}, 1)}, [&](const auto& v) { return spread_rows(v[0], groups); });
  }
}

TEST(MixRows, IsTheSumOfItsDefinition) {
  const Tensor weight = Tensor::normal({2, 6}, 1), x = Tensor::normal({3, 5, 4}, 2);
  const Tensor y = mix_rows(weight, x, lengths).value();
  ASSERT_EQ(y.shape(), (Shape{3, 2, 4}));
  for (std::int64_t b = 0; b < 3; ++b) {
    for (std::int64_t i = 0; i < 2; ++i) {
      for (std::int64_t d = 0; d < 4; ++d) {
        double sum = 0.0;
        for (std::int64_t j = 0; j < lengths[static_cast<std::size_t>(b)]; ++j)
          sum += static_cast<double>(weight.data<float>()[i * 6 + j]) *
                 static_cast<double>(x.data<float>()[(b * 5 + j) * 4 + d]);
        // Five products of numbers of order 1.
        EXPECT_NEAR(y.data<float>()[(b * 2 + i) * 4 + d], sum, 1e-5);
      }
    }
  }
}

TEST(NeighbourGroups, EndWithASmallerOne) {
  const RowGroups groups = neighbour_groups(3, 5, 2, lengths);
  EXPECT_EQ(groups.kept, 3);
  EXPECT_EQ(groups.lengths, (KeptVector<std::int64_t>{3, 0, 2}));
  EXPECT_EQ(groups.group, (KeptVector<std::int64_t>{0, 0, 1, 1, 2, -1, -1, -1, -1, -1, 0, 0, 1, -1, -1}));
  const float sizes[] = {2, 2, 1, 1, 1, 1, 2, 1, 1};
  for (std::size_t i = 0; i < 9; ++i) EXPECT_EQ(groups.sizes.data<float>()[i], sizes[i]) << i;
  EXPECT_FLOAT_EQ(log_sizes(groups).data<float>()[0], std::log(2.0f));
  const Tensor x = Tensor::normal({3, 5, 4}, 1), means = merge_rows(x, groups).value();
  for (std::int64_t d = 0; d < 4; ++d) {
    EXPECT_FLOAT_EQ(means.data<float>()[d], (x.data<float>()[d] + x.data<float>()[4 + d]) / 2);
    EXPECT_EQ(means.data<float>()[2 * 4 + d], x.data<float>()[4 * 4 + d]);
    EXPECT_EQ(means.data<float>()[3 * 4 + d], 0.0f);
  }
}

// The definition, without blocks of cosines, sorts and shares.
std::set<std::pair<std::int64_t, std::int64_t>> pairs_by_definition(const float* rows, std::int64_t count,
                                                                    std::int64_t dim, double share) {
  struct Found {
    double cosine;
    std::int64_t from, to;
  };
  const auto cosine = [&](std::int64_t a, std::int64_t b) {
    double product = 0.0, aa = 0.0, bb = 0.0;
    for (std::int64_t d = 0; d < dim; ++d) {
      const double x = rows[a * dim + d], y = rows[b * dim + d];
      product += x * y;
      aa += x * x;
      bb += y * y;
    }
    return product / std::sqrt(aa * bb);
  };
  std::vector<Found> found;
  for (std::int64_t from = 0; from < count; from += 2) {
    Found best{-2.0, from, 1};
    for (std::int64_t to = 1; to < count; to += 2)
      if (cosine(from, to) > best.cosine) best = {cosine(from, to), from, to};
    found.push_back(best);
  }
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.cosine > b.cosine; });
  found.resize(static_cast<std::size_t>(share * static_cast<double>(count)));
  std::set<std::pair<std::int64_t, std::int64_t>> pairs;
  for (const Found& pair : found) pairs.emplace(pair.from, pair.to);
  return pairs;
}

// Lengths around the 128 even rows of a block.
TEST(MatchedGroups, AreThoseOfTheDefinition) {
  constexpr std::int64_t dim = 6;
  for (const std::int64_t count : {1, 2, 3, 10, 255, 256, 257, 258, 300}) {
    const Tensor metric = Tensor::normal({1, count, dim}, 4);
    for (const double share : {0.0, 0.2, 0.5}) {
      SCOPED_TRACE(std::to_string(count) + " rows, share " + std::to_string(share));
      const auto pairs = pairs_by_definition(metric.data<float>(), count, dim, share);
      const RowGroups groups = matched_groups(metric, share);
      EXPECT_EQ(groups.kept, count - std::ssize(pairs));
      std::vector<std::int64_t> sizes(static_cast<std::size_t>(groups.kept));
      for (const std::int64_t group : groups.group) ++sizes[static_cast<std::size_t>(group)];
      for (const auto& [from, to] : pairs)
        EXPECT_EQ(groups.group[static_cast<std::size_t>(from)], groups.group[static_cast<std::size_t>(to)]);
      double total = 0.0;
      for (std::size_t g = 0; g < sizes.size(); ++g) {
        EXPECT_EQ(groups.sizes.data<float>()[g], static_cast<float>(sizes[g]));
        total += groups.sizes.data<float>()[g];
      }
      EXPECT_EQ(total, static_cast<double>(count));
    }
  }
}

// Of two merged rows that stand for three rows and for one, the first has three quarters of the mean.
TEST(MatchedGroups, WeighRowsByTheirSizes) {
  Tensor metric(DType::f32, {1, 2, 1}), sizes(DType::f32, {1, 2}), x(DType::f32, {1, 2, 1});
  metric.fill(1.0f);
  sizes.data<float>()[0] = 3.0f;
  sizes.data<float>()[1] = 1.0f;
  x.data<float>()[0] = 8.0f;
  x.data<float>()[1] = 4.0f;
  const RowGroups groups = matched_groups(metric, 0.5, sizes);
  ASSERT_EQ(groups.kept, 1);
  EXPECT_EQ(groups.sizes.data<float>()[0], 4.0f);
  EXPECT_EQ(merge_rows(x, groups).value().data<float>()[0], 7.0f);
}

TEST(MatchedGroups, BearRowsThatAreNotNumbers) {
  Tensor metric(DType::f32, {1, 6, 2});
  metric.fill(std::numeric_limits<float>::quiet_NaN());
  const RowGroups groups = matched_groups(metric, 0.5);
  EXPECT_EQ(groups.kept, 3);
}

// A row that is merged and given back to all that it stands for has the mean of these rows.
TEST(SpreadRows, TurnsMergedRowsBack) {
  const Tensor x = Tensor::normal({2, 9, 3}, 1);
  const RowGroups none = matched_groups(x, 0.0);
  const Tensor same = spread_rows(merge_rows(x, none), none).value();
  EXPECT_TRUE(std::equal(x.data<float>(), x.data<float>() + x.count(), same.data<float>()));
  const RowGroups groups = matched_groups(x, 0.5);
  const Tensor spread = spread_rows(merge_rows(x, groups), groups).value();
  const Tensor again = spread_rows(merge_rows(spread, groups), groups).value();
  for (std::int64_t i = 0; i < x.count(); ++i)
    EXPECT_NEAR(spread.data<float>()[i], again.data<float>()[i], 1e-6);
}

TEST(RowGroups, RefuseOtherShapes) {
  const Tensor x = Tensor::normal({2, 4, 3}, 1), wide = Tensor::normal({2, 5}, 1),
               narrow = Tensor::normal({2, 3}, 1);
  EXPECT_THROW(mix_rows(narrow, x), InvalidArgument);
  EXPECT_THROW(mix_rows(x, x), InvalidArgument);
  EXPECT_NO_THROW(mix_rows(wide, x));
  const std::vector<std::int64_t> long_one{4, 5}, one{4}, negative{4, -1};
  for (const auto& wrong : {long_one, one, negative}) {
    EXPECT_THROW(mix_rows(wide, x, wrong), InvalidArgument);
    EXPECT_THROW(neighbour_groups(2, 4, 2, wrong), InvalidArgument);
    EXPECT_THROW(matched_groups(x, 0.5, {}, wrong), InvalidArgument);
  }
  EXPECT_THROW(neighbour_groups(2, 4, 0), InvalidArgument);
  EXPECT_THROW(matched_groups(x, 0.6), InvalidArgument);
  EXPECT_THROW(matched_groups(x, -0.1), InvalidArgument);
  EXPECT_THROW(matched_groups(x, std::numeric_limits<double>::quiet_NaN()), InvalidArgument);
  EXPECT_THROW(matched_groups(wide, 0.5), InvalidArgument);
  EXPECT_THROW(matched_groups(x, 0.5, wide), InvalidArgument);
  const RowGroups groups = neighbour_groups(2, 4, 2);
  EXPECT_THROW(merge_rows(Tensor::normal({2, 5, 3}, 1), groups), InvalidArgument);
  EXPECT_THROW(merge_rows(Tensor::normal({1, 4, 3}, 1), groups), InvalidArgument);
  EXPECT_THROW(spread_rows(x, groups), InvalidArgument);
}

}  // namespace
}  // namespace fovea::autograd
