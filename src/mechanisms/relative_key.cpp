#include "fovea/mechanisms/relative_key.h"

#include <algorithm>
#include <cmath>

#include "core/shortest.h"
#include "mechanisms/gradient_checks.h"
#include "plan/small_calls.h"

namespace fovea {
namespace {

constexpr const char* query_axes = "[batch, heads, query_len, head_dim]";

struct RelativeKeySizes {
  std::int64_t batch = 0, heads = 0, rows = 0, dim = 0, entries = 0;
  double scale = 1.0;
  RowSizes queries() const { return {batch, heads, rows}; }
  Shape table() const { return {batch, heads, rows, entries}; }
};

void check_query(const char* function, const char* argument, const ConstTensorView& query) {
  check_four_axes(function, argument, query, query_axes);
  check_view(function, argument, query, query.dtype(), query.shape());
}

RelativeKeySizes check_inputs(const char* function, const RelativeKeyInputs& in) {
  check_query(function, "query", in.query);
  RelativeKeySizes s{in.query.size(0), in.query.size(1), in.query.size(2), in.query.size(3)};
  const DType wide = wide_dtype(in.query.dtype());
  if (in.offsets.rank() != 3 || in.offsets.size(1) % 2 != 1)
    throw InvalidArgument(function, "offsets", "[heads or 1, 2·max_distance + 1, head_dim]",
                          described(in.offsets));
  s.entries = in.offsets.size(1);
  check_view(function, "offsets", in.offsets, wide,
             {in.offsets.size(0) == 1 ? 1 : s.heads, s.entries, s.dim});
  if (in.bias) check_view(function, "bias", in.bias, wide, {s.heads, s.dim});
  s.scale = in.scale.value_or(1.0 / std::sqrt(static_cast<double>(std::max<std::int64_t>(s.dim, 1))));
  if (!std::isfinite(s.scale) || (wide == DType::f32 && !std::isfinite(static_cast<float>(s.scale))))
    throw InvalidArgument(function, "scale", "a finite number of the table's dtype", shortest(s.scale));
  return s;
}

// scale·(q + w), and r as the matrix of the product that gives the table.
template <class Element>
struct Shifted {
  using T = Wide<Element>;
  Tensor memory;
  kernels::Operand<const T*> values;
  Projection<T> projection;

  Shifted(const RelativeKeyInputs& in, const RelativeKeySizes& s, Executor& executor)
      : memory(dtype_of<T>, {s.batch, s.heads, s.rows, s.dim}),
        values(operand_of<T>(ConstTensorView(memory))),
        projection{in.offsets.data<T>(),
                   s.entries,
                   s.dim,
                   in.offsets.stride(1),
                   in.offsets.size(0) > 1 ? in.offsets.stride(0) : 0,
                   nullptr,
                   in.offsets.size(0) > 1} {
    const auto query = operand_of<Element>(in.query);
    const auto to = operand_of<T>(memory.view());
    const T scale = static_cast<T>(s.scale);
    for_rows(s.queries(), executor, [&](std::int64_t b, std::int64_t h, std::int64_t r) {
      const Element* from = query.row(b, h, r);
      const T* bias = in.bias ? in.bias.data<T>() + h * in.bias.stride(0) : nullptr;
      T* row = to.row(b, h, r);
      for (std::int64_t d = 0; d < s.dim; ++d)
        row[d] = scale * (static_cast<T>(from[d]) + (bias ? bias[d] : T{0}));
    });
  }
};

// Sums over entries and rows for each head.
template <class Element, class T>
void sum_rows(const ConstTensorView& from, T* to, Executor& executor) {
  const auto rows = operand_of<Element>(from);
  const std::int64_t dim = from.size(3);
  executor.parallel_for(from.size(1), [&](std::int64_t h, int) {
    T* sum = to + h * dim;
    std::fill_n(sum, dim, T{0});
    for (std::int64_t b = 0; b < from.size(0); ++b) {
      for (std::int64_t r = 0; r < from.size(2); ++r) {
        const Element* row = rows.row(b, h, r);
        for (std::int64_t d = 0; d < dim; ++d) sum[d] += static_cast<T>(row[d]);
      }
    }
  });
}

template <class Element>
void backward(const RelativeKeyInputs& in, const RelativeKeySizes& s, const ConstTensorView& d_table,
              const RelativeKeyGradients& gradients, Executor& executor) {
  using T = Wide<Element>;
  const Shifted<Element> shifted(in, s, executor);
  const auto dy = operand_of<T>(d_table);
  if (gradients.offsets)
    weight_gradient(s.queries(), shifted.projection, dy, shifted.values, gradients.offsets.data<T>(),
                    executor);
  if (!gradients.query && !gradients.bias) return;
  // Overwrites scale·(q + w) with the derivative by it.
  const auto d_shifted = operand_of<T>(shifted.memory.view());
  project_back(s.queries(), shifted.projection, dy, d_shifted, executor);
  for_rows(s.queries(), executor, [&](std::int64_t b, std::int64_t h, std::int64_t r) {
    T* row = d_shifted.row(b, h, r);
    for (std::int64_t d = 0; d < s.dim; ++d) row[d] *= static_cast<T>(s.scale);
  });
  if (gradients.bias) sum_rows<T>(shifted.memory, gradients.bias.data<T>(), executor);
  if (!gradients.query) return;
  Tensor before;
  if (gradients.query_before)
    add_rows(widened(gradients.query_before, before, executor), shifted.memory, executor);
  copy_rows(shifted.memory, gradients.query, executor);
}

void check_gradients(const char* function, const RelativeKeyInputs& in, const ConstTensorView& d_table,
                     const RelativeKeyGradients& gradients) {
  GradientChecks checks(function, {.query = in.query, .key = {}, .value = {}});
  checks.gradient("gradients.query", gradients.query, in.query);
  checks.contiguous_gradient("gradients.offsets", gradients.offsets, in.offsets);
  checks.contiguous_gradient("gradients.bias", gradients.bias, in.bias);
  checks.memory.reads("offsets", in.offsets);
  checks.memory.reads("bias", in.bias);
  checks.memory.reads("d_table", d_table);
  checks.query_before(gradients.query_before, gradients.query);
  checks.memory.check();
}

}  // namespace

Tensor relative_key_table(const RelativeKeyInputs& inputs, const CallResources& resources) {
  const RelativeKeySizes s = check_inputs("relative_key_table", inputs);
  Executor& executor = executor_of(resources);
  Tensor table(wide_dtype(inputs.query.dtype()), s.table());
  with_type(inputs.query.dtype(), [&](auto zero) {
    using Element = decltype(zero);
    const Shifted<Element> shifted(inputs, s, executor);
    project(s.queries(), shifted.projection, shifted.values, operand_of<Wide<Element>>(table.view()),
            executor);
  });
  return table;
}

void relative_key_table_backward(const RelativeKeyInputs& inputs, ConstTensorView d_table,
                                 const RelativeKeyGradients& gradients, const CallResources& resources) {
  const char* function = "relative_key_table_backward";
  const RelativeKeySizes s = check_inputs(function, inputs);
  check_contiguous(function, "d_table", d_table, wide_dtype(inputs.query.dtype()), s.table());
  check_gradients(function, inputs, d_table, gradients);
  with_type(inputs.query.dtype(), [&](auto zero) {
    backward<decltype(zero)>(inputs, s, d_table, gradients, executor_of(resources));
  });
}

Tensor shifted_query(ConstTensorView query, ConstTensorView bias, const CallResources& resources) {
  const char* function = "shifted_query";
  check_query(function, "query", query);
  check_view(function, "bias", bias, wide_dtype(query.dtype()), {query.size(1), query.size(3)});
  Tensor shifted(query.dtype(), query.shape());
  with_type(query.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto from = operand_of<T>(query);
    const auto to = operand_of<T>(shifted.view());
    for_rows(rows_of(query), executor_of(resources), [&](std::int64_t b, std::int64_t h, std::int64_t r) {
      const Wide<T>* u = bias.data<Wide<T>>() + h * bias.stride(0);
      for (std::int64_t d = 0; d < query.size(3); ++d)
        to.row(b, h, r)[d] = static_cast<T>(static_cast<Wide<T>>(from.row(b, h, r)[d]) + u[d]);
    });
  });
  return shifted;
}

void shifted_query_backward(ConstTensorView d_shifted, TensorView d_bias, const CallResources& resources) {
  const char* function = "shifted_query_backward";
  check_query(function, "d_shifted", d_shifted);
  check_contiguous(function, "d_bias", d_bias, wide_dtype(d_shifted.dtype()),
                   {d_shifted.size(1), d_shifted.size(3)});
  check_output(function, "d_bias", d_bias, d_bias.dtype(), d_bias.shape(),
               {.query = d_shifted, .key = {}, .value = {}});
  with_type(d_shifted.dtype(), [&](auto zero) {
    using T = decltype(zero);
    sum_rows<T>(d_shifted, d_bias.data<Wide<T>>(), executor_of(resources));
  });
}

}  // namespace fovea
