#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "autograd/gemm.h"
#include "autograd/linear_shapes.h"
#include "autograd/packed_products.h"
#include "autograd/product_rows.h"
#include "autograd/record.h"
#include "autograd/row_products.h"
#include "autograd/rows.h"
#include "autograd/vector_math.h"
#include "fovea/autograd/ops.h"
#include "fovea/core/executor.h"
#include "fovea/core/kept_vector.h"
#include "fovea/core/profile.h"

namespace fovea::autograd {

Var linear(const Var& x, const Var& weight, const Var& bias, Products products) {
  static constexpr ProfileLabel label{"linear", ProfilePart::elementwise};
  const ProfileSpan span(label);
  expect_elements("linear", "x", x.value());
  check_linear("linear", x.shape(), {weight, bias});
  Tensor y(DType::f32, with_last(x.shape(), weight.size(0)));
  const std::int64_t in = weight.size(1), out = weight.size(0), rows = out > 0 ? y.count() / out : 0;
  Tape* tape = tape_of({&x, &weight, &bias});
  const bool recorded = tape != nullptr;
  const Operands operands = operands_of(tape);
  if (!recorded && weight.packed()) {
    const PackedProducts product{.weight = weight.packed(),
                                 .bias = bias.empty() ? nullptr : bias.value().data<float>(),
                                 .y = y.data<float>(),
                                 .rows = rows};
    packed_products(product, product_rows("linear", x, *weight.packed()), default_executor());
    return Var(y);
  }
  expect_elements("linear", "weight", weight.value());
  if (x.value().dtype() == DType::bf16)
    throw InvalidArgument("linear", "x", "f32 rows beside weights that are recorded or not packed",
                          "rows of bf16");
  if (!recorded && (products == Products::by_row || rows <= most_few_rows)) {
    row_products({.x = x.value().data<float>(),
                  .weight = weight.value().data<float>(),
                  .bias = bias.empty() ? nullptr : bias.value().data<float>(),
                  .y = y.data<float>(),
                  .rows = rows,
                  .in = in,
                  .out = out},
                 default_executor());
    return Var(y);
  }
  gemm(rows, out, in, {x.value().data<float>(), in}, {weight.value().data<float>(), in, Transpose::yes},
       RowBias{bias.empty() ? nullptr : bias.value().data<float>()}, y.data<float>(), out, operands);
  return result_of(tape, y, [=](const Tensor& dy) {
    const float* d = dy.data<float>();
    // A residual or another layer may have begun the gradient of x, which dx is then added to. x and the
    // weight may be one parameter, even as two nodes (autograd/recompute.h). Both products would then add to
    // one memory at the same time, so dx gets memory of its own.
    const bool add = x.recorded() && x.node()->gradient &&
                     !(weight.recorded() && x.node()->gradient.raw() == gradient_of(weight).raw());
    Tensor dx;
    ProductBlock of_x, of_weight;
    if (x.recorded()) {
      if (!add) dx = Tensor(DType::f32, x.shape());
      of_x = {.m = rows,
              .n = in,
              .k = out,
              .a = {d, out},
              .b = {weight.value().data<float>(), in},
              .add = add,
              .c = (add ? gradient_of(x) : dx).data<float>(),
              .leading = in};
    }
    if (weight.recorded())
      of_weight = {.m = out,
                   .n = in,
                   .k = rows,
                   .a = {d, out, Transpose::yes},
                   .b = {x.value().data<float>(), in},
                   .add = true,
                   .c = gradient_of(weight).data<float>(),
                   .leading = in};
    gemm(of_x, of_weight, operands);
    if (x.recorded() && !add) accumulate(x, dx);
    if (bias.recorded()) {
      add_columns(d, rows, out, gradient_of(bias).data<float>());
    }
  });
}

namespace {

// Rows of a table that lies in a file, each of them once: the entries of a batch have the same positions, and
// a row takes a call of the system.
void read_rows(const TableRows& read, std::span<const std::int32_t> ids, float factor, std::int64_t dim,
               Executor& executor, float* out) {
  KeptVector<std::int64_t> order(ids.size()), runs;
  const auto id = [&](std::int64_t place) { return ids[static_cast<std::size_t>(place)]; };
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](std::int64_t place) { return std::pair(id(place), place); });
  for (std::size_t n = 0; n < order.size(); ++n) {
    if (n == 0 || id(order[n]) != id(order[n - 1])) runs.push_back(static_cast<std::int64_t>(n));
  }
  runs.push_back(std::ssize(order));
  constexpr std::int64_t group = 16;
  const std::int64_t count = std::ssize(runs) - 1;
  executor.parallel_for((count + group - 1) / group, [&](std::int64_t unit, int) {
    for (std::int64_t run = unit * group; run < std::min(count, (unit + 1) * group); ++run) {
      const std::span places(order.begin() + runs[static_cast<std::size_t>(run)],
                             order.begin() + runs[static_cast<std::size_t>(run + 1)]);
      float* const first = out + places[0] * dim;
      read(id(places[0]), first);
      scale_row(first, factor, dim, first);
      for (const std::int64_t place : places.subspan(1)) std::copy_n(first, dim, out + place * dim);
    }
  });
}

}  // namespace

Var embedding(const Var& table, std::span<const std::int32_t> ids, float factor) {
  static constexpr ProfileLabel label{"embedding", ProfilePart::embeddings};
  const ProfileSpan span(label);
  if (table.shape().rank() != 2)
    throw InvalidArgument("embedding", "table", "[V, D]", to_string(table.shape()));
  if (!table.rows()) expect_elements("embedding", "table", table.value());
  const std::int64_t dim = table.size(1), count = static_cast<std::int64_t>(ids.size());
  ProfileSpan::add(moved({}, 2 * count * dim));
  for (std::int64_t i = 0; i < count; ++i) {
    if (ids[i] < 0 || ids[i] >= table.size(0)) {
      throw InvalidArgument("embedding", "ids", "ids in [0, " + std::to_string(table.size(0)) + ")",
                            std::to_string(ids[i]));
    }
  }
  Tensor out(DType::f32, {count, dim});
  constexpr std::int64_t least_parallel = 1 << 15, group = 128;
  const auto executor = [work = count * dim]() -> Executor& {
    return work < least_parallel ? serial_executor() : default_executor();
  };
  if (table.rows()) {
    read_rows(*table.rows(), ids, factor, dim, executor(), out.data<float>());
  } else {
    executor().parallel_for((count + group - 1) / group, [&](std::int64_t unit, int) {
      for (std::int64_t i = unit * group; i < std::min(count, (unit + 1) * group); ++i)
        scale_row(table.value().data<float>() + ids[i] * dim, factor, dim, out.data<float>() + i * dim);
    });
  }
  return result_of(
      tape_of({&table}), out, [=, kept = KeptVector<std::int32_t>(ids.begin(), ids.end())](const Tensor& d) {
        // A unit has every 16th row of the table, so each row adds its gradients in order. A
        // table of few rows is cut across them: all tokens may read one of them.
        constexpr std::int64_t units = 16, few_rows = 4 * units;
        const std::int64_t columns = table.size(0) < few_rows ? 64 : dim,
                           across = (dim + columns - 1) / std::max<std::int64_t>(columns, 1);
        float* gradient = gradient_of(table).data<float>();
        executor().parallel_for(units * across, [&](std::int64_t unit, int) {
          const std::int64_t begin = unit / units * columns, width = std::min(columns, dim - begin);
          for (std::int64_t i = 0; i < count; ++i) {
            if (kept[i] % units != unit % units) continue;
            add_scaled_row(d.data<float>() + i * dim + begin, factor, width,
                           gradient + kept[i] * dim + begin);
          }
        });
      });
}

}  // namespace fovea::autograd
