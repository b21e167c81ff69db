// Token merging by bipartite soft matching (Bolya et al. 2022, arXiv 2210.09461).
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "autograd/gemm.h"
#include "autograd/record.h"
#include "autograd/row_lengths.h"
#include "autograd/vector_math.h"
#include "fovea/autograd/ops.h"
#include "fovea/autograd/row_groups.h"
#include "fovea/core/kept_vector.h"

namespace fovea::autograd {
namespace {

struct Pair {
  std::int64_t from = 0, to = 0;  // rows of the entry: an even one, and the odd one that it would join
  float cosine = 0.0f;
};

FOVEA_CLONES float largest(const float* values, std::int64_t count) {
  float most = -2.0f;  // below every cosine, so a NaN is never chosen
#pragma omp simd reduction(max : most)
  for (std::int64_t i = 0; i < count; ++i) most = values[i] > most ? values[i] : most;
  return most;
}

// Each even row of `unit` [rows, dim] with the odd row that is most like it. Rows have length 1.
KeptVector<Pair> best_pairs(const float* unit, std::int64_t rows, std::int64_t dim) {
  const std::int64_t evens = (rows + 1) / 2, odds = rows / 2;
  constexpr std::int64_t block = 128;  // even rows whose cosines stand in memory at a time
  KeptVector<Pair> pairs(static_cast<std::size_t>(evens));
  KeptVector<float> cosines(static_cast<std::size_t>(std::min(block, evens) * odds));
  for (std::int64_t begin = 0; begin < evens; begin += block) {
    const std::int64_t count = std::min(block, evens - begin);
    gemm(count, odds, dim, {unit + 2 * begin * dim, 2 * dim}, {unit + dim, 2 * dim, Transpose::yes}, 0.0f,
         cosines.data(), odds);
    default_executor().parallel_for(count, [&](std::int64_t i, int) {
      const float *row = cosines.data() + i * odds, most = largest(row, odds);
      const std::int64_t odd = std::find(row, row + odds, most) - row;
      pairs[begin + i] = {.from = 2 * (begin + i), .to = 2 * (odd < odds ? odd : 0) + 1, .cosine = most};
    });
  }
  return pairs;
}

// The rows that each of the first `rows` rows joins: itself, or an odd row.
KeptVector<std::int64_t> joined_rows(const float* unit, std::int64_t rows, std::int64_t dim, double share) {
  KeptVector<std::int64_t> joins(static_cast<std::size_t>(rows));
  std::iota(joins.begin(), joins.end(), std::int64_t{0});
  const auto merges = static_cast<std::int64_t>(std::floor(share * static_cast<double>(rows)));
  if (merges == 0) return joins;
  KeptVector<Pair> pairs = best_pairs(unit, rows, dim);
  std::partial_sort(pairs.begin(), pairs.begin() + merges, pairs.end(), [](const Pair& a, const Pair& b) {
    return a.cosine != b.cosine ? a.cosine > b.cosine : a.from < b.from;
  });
  for (std::int64_t i = 0; i < merges; ++i) joins[pairs[i].from] = pairs[i].to;
  return joins;
}

void check(const Tensor& metric, double share, const Tensor& sizes) {
  if (!(share >= 0.0 && share <= 0.5))
    throw InvalidArgument("matched_groups", "share", "in [0, 0.5]: half of the rows are proposed",
                          std::to_string(share));
  if (metric.shape().rank() != 3)
    throw InvalidArgument("matched_groups", "metric", "[B, L, D]", to_string(metric.shape()));
  const Shape rows{metric.size(0), metric.size(1)};
  if (sizes && !(sizes.shape() == rows))
    throw InvalidArgument("matched_groups", "sizes", to_string(rows), to_string(sizes.shape()));
}

}  // namespace

RowGroups matched_groups(const Tensor& metric, double share, const Tensor& sizes,
                         std::span<const std::int64_t> lengths) {
  check(metric, share, sizes);
  const std::int64_t batch = metric.size(0), rows = metric.size(1), dim = metric.size(2);
  const KeptVector<std::int64_t> counts =
      checked_row_lengths("matched_groups", lengths, {.batch = batch, .most = rows});
  const Tensor unit = normalize_rows(metric).value();
  RowGroups groups{.batch = batch, .rows = rows};
  groups.group.assign(static_cast<std::size_t>(batch * rows), -1);
  groups.share.assign(groups.group.size(), 0.0f);
  for (std::int64_t b = 0; b < batch; ++b) {
    const KeptVector<std::int64_t> joins =
        joined_rows(unit.data<float>() + b * rows * dim, counts[b], dim, share);
    std::int64_t* group = groups.group.data() + b * rows;
    std::int64_t kept = 0;
    for (std::int64_t row = 0; row < counts[b]; ++row) {
      if (joins[row] == row) group[row] = kept++;
    }
    for (std::int64_t row = 0; row < counts[b]; ++row) group[row] = group[joins[row]];
    groups.lengths.push_back(kept);
    groups.kept = std::max(groups.kept, kept);
  }
  groups.sizes = Tensor::zeros(DType::f32, {batch, groups.kept});
  const auto size_of = [&](std::int64_t row) { return sizes ? sizes.data<float>()[row] : 1.0f; };
  const auto group_size = [&](std::int64_t row) -> float& {
    return groups.sizes.data<float>()[row / rows * groups.kept + groups.group[row]];
  };
  for (std::int64_t row = 0; row < batch * rows; ++row) {
    if (groups.group[row] >= 0) group_size(row) += size_of(row);
  }
  for (std::int64_t row = 0; row < batch * rows; ++row) {
    if (groups.group[row] >= 0) groups.share[row] = size_of(row) / group_size(row);
  }
  for (std::int64_t b = 0; b < batch; ++b)
    std::fill(groups.sizes.data<float>() + b * groups.kept + groups.lengths[b],
              groups.sizes.data<float>() + (b + 1) * groups.kept, 1.0f);
  return groups;
}

}  // namespace fovea::autograd
