#include "fovea/autograd/row_groups.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "autograd/gemm.h"
#include "autograd/record.h"
#include "autograd/row_lengths.h"
#include "autograd/rows.h"
#include "fovea/core/kept_vector.h"
#include "fovea/core/profile.h"

namespace fovea::autograd {

Var mix_rows(const Var& weight, const Var& x, std::span<const std::int64_t> lengths) {
  static constexpr ProfileLabel label{"mix rows", ProfilePart::products};
  const ProfileSpan span(label);
  const bool shaped = weight.shape().rank() == 2 && x.shape().rank() == 3;
  if (!shaped || weight.size(1) < x.size(1))
    throw InvalidArgument("mix_rows", "weight, x", "[kept, M] and [B, L, D] with M >= L",
                          to_string(weight.shape()) + " and " + to_string(x.shape()));
  const std::int64_t batch = x.size(0), rows = x.size(1), dim = x.size(2), kept = weight.size(0),
                     columns = weight.size(1);
  const KeptVector<std::int64_t> counts =
      checked_row_lengths("mix_rows", lengths, {.batch = batch, .most = rows});
  Tape* const tape = tape_of({&weight, &x});
  const Operands operands = operands_of(tape);
  Tensor out(DType::f32, {batch, kept, dim});
  for (std::int64_t b = 0; b < batch; ++b) {
    if (counts[b] == 0) {
      std::fill_n(out.data<float>() + b * kept * dim, kept * dim, 0.0f);
      continue;
    }
    gemm(kept, dim, counts[b], {weight.value().data<float>(), columns},
         {x.value().data<float>() + b * rows * dim, dim}, 0.0f, out.data<float>() + b * kept * dim, dim,
         operands);
  }
  return result_of(tape, out, [=](const Tensor& d) {
    for (std::int64_t b = 0; b < batch; ++b) {
      const float* gradient = d.data<float>() + b * kept * dim;
      const std::int64_t begin = b * rows * dim;
      if (weight.recorded())
        gemm(kept, counts[b], dim, {gradient, dim}, {x.value().data<float>() + begin, dim, Transpose::yes},
             1.0f, gradient_of(weight).data<float>(), columns, operands);
      if (x.recorded())
        gemm(counts[b], dim, kept, {weight.value().data<float>(), columns, Transpose::yes}, {gradient, dim},
             1.0f, gradient_of(x).data<float>() + begin, dim, operands);
    }
  });
}

RowGroups neighbour_groups(std::int64_t batch, std::int64_t rows, std::int64_t size,
                           std::span<const std::int64_t> lengths) {
  if (size < 1) throw InvalidArgument("neighbour_groups", "size", "at least 1", std::to_string(size));
  RowGroups groups{.batch = batch, .rows = rows};
  const KeptVector<std::int64_t> counts =
      checked_row_lengths("neighbour_groups", lengths, {.batch = batch, .most = rows});
  for (const std::int64_t count : counts) {
    groups.lengths.push_back(count / size + (count % size != 0 ? 1 : 0));
    groups.kept = std::max(groups.kept, groups.lengths.back());
  }
  groups.group.assign(static_cast<std::size_t>(batch * rows), -1);
  groups.share.assign(groups.group.size(), 0.0f);
  groups.sizes = Tensor(DType::f32, {batch, groups.kept});
  groups.sizes.fill(1.0f);
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t row = 0; row < counts[b]; ++row) {
      const std::int64_t group = row / size;
      const auto members = static_cast<float>(std::min(size, counts[b] - group * size));
      groups.group[b * rows + row] = group;
      groups.share[b * rows + row] = 1.0f / members;
      groups.sizes.data<float>()[b * groups.kept + group] = members;
    }
  }
  return groups;
}

Tensor log_sizes(const RowGroups& groups) {
  Tensor logs = groups.sizes.clone();
  float* x = logs.data<float>();
  std::transform(x, x + logs.count(), x, [](float size) { return std::log(size); });
  return logs;
}

namespace {

void check_grouped(const char* function, const char* argument, const Var& rows, const RowGroups& groups,
                   std::int64_t count) {
  if (rows.shape().rank() != 3 || rows.size(0) != groups.batch || rows.size(1) != count)
    throw InvalidArgument(function, argument,
                          "[" + std::to_string(groups.batch) + ", " + std::to_string(count) + ", D]",
                          to_string(rows.shape()));
}

// Calls body(b, begin, end) for columns [begin, end) of each entry. Rows of a group are added in order.
template <class Body>
void for_group_columns(const RowGroups& groups, std::int64_t dim, Body&& body) {
  constexpr std::int64_t columns = 64;
  const std::int64_t across = (dim + columns - 1) / columns;
  default_executor().parallel_for(groups.batch * across, [&](std::int64_t unit, int) {
    const std::int64_t begin = unit % across * columns;
    body(unit / across, begin, std::min(dim, begin + columns));
  });
}

// sums[b, group] = Σ factor · rows[b, row], with the factor share[row], or 1 without `share`.
void sum_groups(const Tensor& rows, const RowGroups& groups, const float* share, const Tensor& sums) {
  const std::int64_t dim = rows.size(2);
  for_group_columns(groups, dim, [&](std::int64_t b, std::int64_t begin, std::int64_t end) {
    float* to = sums.data<float>() + b * groups.kept * dim + begin;
    for (std::int64_t group = 0; group < groups.kept; ++group)
      std::fill_n(to + group * dim, end - begin, 0.0f);
    for (std::int64_t row = b * groups.rows; row < (b + 1) * groups.rows; ++row) {
      if (groups.group[row] < 0) continue;
      add_scaled_row(rows.data<float>() + row * dim + begin, share ? share[row] : 1.0f, end - begin,
                     to + groups.group[row] * dim);
    }
  });
}

// rows[b, row] = factor · sums[b, group], and 0 for a row without a group.
void read_groups(const Tensor& sums, const RowGroups& groups, const float* share, const Tensor& rows) {
  const std::int64_t dim = rows.size(2);
  for_group_columns(groups, dim, [&](std::int64_t b, std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = b * groups.rows; row < (b + 1) * groups.rows; ++row) {
      float* to = rows.data<float>() + row * dim + begin;
      if (groups.group[row] < 0)
        std::fill_n(to, end - begin, 0.0f);
      else
        scale_row(sums.data<float>() + (b * groups.kept + groups.group[row]) * dim + begin,
                  share ? share[row] : 1.0f, end - begin, to);
    }
  });
}

}  // namespace

Var merge_rows(const Var& x, const RowGroups& groups) {
  static constexpr ProfileLabel label{"merge rows", ProfilePart::elementwise};
  const ProfileSpan span(label, moved({&x}));
  check_grouped("merge_rows", "x", x, groups, groups.rows);
  Tensor out(DType::f32, {groups.batch, groups.kept, x.size(2)});
  sum_groups(x.value(), groups, groups.share.data(), out);
  return result_of(tape_of({&x}), out, [=](const Tensor& d) {
    Tensor dx(DType::f32, x.shape());
    read_groups(d, groups, groups.share.data(), dx);
    accumulate(x, dx);
  });
}

Var spread_rows(const Var& y, const RowGroups& groups) {
  static constexpr ProfileLabel label{"spread rows", ProfilePart::elementwise};
  const ProfileSpan span(label, moved({&y}));
  check_grouped("spread_rows", "y", y, groups, groups.kept);
  Tensor out(DType::f32, {groups.batch, groups.rows, y.size(2)});
  read_groups(y.value(), groups, nullptr, out);
  return result_of(tape_of({&y}), out, [=](const Tensor& d) {
    Tensor dy(DType::f32, y.shape());
    sum_groups(d, groups, nullptr, dy);
    accumulate(y, dy);
  });
}

}  // namespace fovea::autograd
