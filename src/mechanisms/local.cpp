#include "fovea/mechanisms/local.h"

#include <algorithm>
#include <cmath>

#include "mechanisms/gradient_checks.h"
#include "plan/small_calls.h"

namespace fovea {
namespace {

struct LocalSizes {
  std::int64_t batch = 0, heads = 0, rows = 0, dim = 0, hidden = 0;
  RowSizes queries() const { return {batch, heads, rows}; }
};

LocalSizes check_inputs(const char* function, const LocalInputs& in) {
  check_four_axes(function, "query", in.query, "[batch, heads, query_len, head_dim]");
  check_view(function, "query", in.query, in.query.dtype(), in.query.shape());
  if (in.W.rank() != 2 && in.W.rank() != 3)
    throw InvalidArgument(function, "W", "[hidden, head_dim] or [heads, hidden, head_dim]", described(in.W));
  const LocalSizes s{in.query.size(0), in.query.size(1), in.query.size(2), in.query.size(3), in.W.size(-2)};
  const DType wide = wide_dtype(in.query.dtype());
  check_view(function, "W", in.W, wide,
             in.W.rank() == 3 ? Shape{s.heads, s.hidden, s.dim} : Shape{s.hidden, s.dim});
  check_view(function, "v", in.v, wide, in.v.rank() == 2 ? Shape{s.heads, s.hidden} : Shape{s.hidden});
  if (in.key_len < 0 || in.key_len > std::int64_t{1} << 40)
    throw InvalidArgument(function, "key_len", "a length in [0, 2^40]", std::to_string(in.key_len));
  if (!in.key_lengths.empty() && static_cast<std::int64_t>(in.key_lengths.size()) != s.batch)
    throw InvalidArgument(function, "key_lengths", "none, or one a batch entry, " + std::to_string(s.batch),
                          std::to_string(in.key_lengths.size()));
  for (const std::int64_t length : in.key_lengths) {
    if (length < 0 || length > in.key_len)
      throw InvalidArgument(function, "key_lengths",
                            "lengths in [0, key_len " + std::to_string(in.key_len) + "]",
                            std::to_string(length));
  }
  return s;
}

template <class T>
T length_of(const LocalInputs& in, std::int64_t b) {
  return static_cast<T>(in.key_lengths.empty() ? in.key_len : in.key_lengths[static_cast<std::size_t>(b)]);
}

// W and the projected queries tanh(W q), [batch, heads, query_len, hidden].
template <class T>
struct Hidden {
  Tensor copy, memory;
  kernels::Operand<const T*> query;
  kernels::Operand<T*> values;
  Projection<T> projection;
  const T* vector = nullptr;
  std::int64_t vector_stride = 0;

  Hidden(const LocalInputs& in, const LocalSizes& s, Executor& executor)
      : memory(wide_dtype(in.query.dtype()), {s.batch, s.heads, s.rows, s.hidden}),
        query(operand_of<T>(widened(in.query, copy, executor))),
        values(operand_of<T>(memory.view())),
        projection(projection_of<T>(in.W, s.hidden, s.dim)),
        vector(in.v.data<T>()),
        vector_stride(in.v.rank() == 2 ? in.v.stride(0) : 0) {
    project(s.queries(), projection, query, values, executor);
    for_rows(s.queries(), executor, [&](std::int64_t b, std::int64_t h, std::int64_t r) {
      T* row = values.row(b, h, r);
      for (std::int64_t k = 0; k < s.hidden; ++k) row[k] = std::tanh(row[k]);
    });
  }
  const T* vector_of(std::int64_t head) const { return vector + head * vector_stride; }
  /// σ(vᵀ tanh(W q)).
  T share(const LocalSizes& s, std::int64_t b, std::int64_t h, std::int64_t r) const {
    const T *row = values.row(b, h, r), *v = vector_of(h);
    T sum{0};
    for (std::int64_t k = 0; k < s.hidden; ++k) sum += v[k] * row[k];
    return T{1} / (T{1} + std::exp(-sum));
  }
};

// dv = Σ dz·tanh(W q), where `dz` has one element a row.
template <class T>
void vector_gradient(const LocalSizes& s, const Hidden<T>& hidden, const T* dz, const TensorView& gradient,
                     Executor& executor) {
  const bool each_head = gradient.rank() == 2;
  executor.parallel_for(each_head ? s.heads : 1, [&](std::int64_t unit, int) {
    T* to = gradient.data<T>() + unit * s.hidden;
    std::fill_n(to, s.hidden, T{0});
    for (std::int64_t b = 0; b < s.batch; ++b) {
      for (std::int64_t h = each_head ? unit : 0; h < (each_head ? unit + 1 : s.heads); ++h) {
        for (std::int64_t r = 0; r < s.rows; ++r) {
          const T factor = dz[(b * s.heads + h) * s.rows + r];
          if (factor == T{0}) continue;
          for (std::int64_t k = 0; k < s.hidden; ++k) to[k] += factor * hidden.values.row(b, h, r)[k];
        }
      }
    }
  });
}

template <class T>
void backward(const LocalInputs& in, const LocalSizes& s, const T* d_centers, const LocalGradients& gradients,
              Executor& executor) {
  Hidden<T> hidden(in, s, executor);
  const Tensor memory(dtype_of<T>, {s.batch, s.heads, s.rows});
  T* dz = memory.data<T>();
  for_rows(s.queries(), executor, [&](std::int64_t b, std::int64_t h, std::int64_t r) {
    const std::int64_t row = (b * s.heads + h) * s.rows + r;
    const T share = hidden.share(s, b, h, r);
    // A row without influence may have a NaN query.
    dz[row] = d_centers[row] == T{0} ? T{0} : d_centers[row] * length_of<T>(in, b) * share * (T{1} - share);
  });
  if (gradients.v) vector_gradient(s, hidden, dz, gradients.v, executor);
  if (!gradients.query && !gradients.W) return;
  // Overwrites tanh(W q) with the derivative by W q.
  for_rows(s.queries(), executor, [&](std::int64_t b, std::int64_t h, std::int64_t r) {
    T* row = hidden.values.row(b, h, r);
    const T *v = hidden.vector_of(h), factor = dz[(b * s.heads + h) * s.rows + r];
    for (std::int64_t k = 0; k < s.hidden; ++k)
      row[k] = factor == T{0} ? T{0} : factor * v[k] * (T{1} - row[k] * row[k]);
  });
  const auto d_hidden = operand_of<T>(ConstTensorView(hidden.memory));
  if (gradients.W)
    weight_gradient(s.queries(), hidden.projection, d_hidden, hidden.query, gradients.W.data<T>(), executor);
  if (!gradients.query) return;
  const ConstTensorView& before = gradients.query_before;
  const bool detour = before || gradients.query.dtype() != dtype_of<T>;
  const Tensor wide = detour ? Tensor(dtype_of<T>, in.query.shape()) : Tensor();
  const TensorView to = detour ? wide.view() : gradients.query;
  project_back(s.queries(), hidden.projection, d_hidden, operand_of<T>(to), executor);
  Tensor wide_before;
  if (before) add_rows(widened(before, wide_before, executor), to, executor);
  if (detour) copy_rows(to, gradients.query, executor);
}

void check_gradients(const char* function, const LocalInputs& in, const ConstTensorView& d_centers,
                     const LocalGradients& gradients) {
  GradientChecks checks(function, {.query = in.query, .key = {}, .value = {}});
  checks.gradient("gradients.query", gradients.query, in.query);
  checks.contiguous_gradient("gradients.W", gradients.W, in.W);
  checks.contiguous_gradient("gradients.v", gradients.v, in.v);
  checks.memory.reads("W", in.W);
  checks.memory.reads("v", in.v);
  checks.memory.reads("d_centers", d_centers);
  checks.query_before(gradients.query_before, gradients.query);
  checks.memory.check();
}

}  // namespace

Tensor local_centers(const LocalInputs& inputs, const CallResources& resources) {
  const LocalSizes s = check_inputs("local_centers", inputs);
  Executor& executor = executor_of(resources);
  Tensor centers(wide_dtype(inputs.query.dtype()), {s.batch, s.heads, s.rows, 1});
  with_wide_type(inputs.query.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const Hidden<T> hidden(inputs, s, executor);
    for_rows(s.queries(), executor, [&](std::int64_t b, std::int64_t h, std::int64_t r) {
      centers.data<T>()[(b * s.heads + h) * s.rows + r] = length_of<T>(inputs, b) * hidden.share(s, b, h, r);
    });
  });
  return centers;
}

void local_centers_backward(const LocalInputs& inputs, ConstTensorView d_centers,
                            const LocalGradients& gradients, const CallResources& resources) {
  const char* function = "local_centers_backward";
  const LocalSizes s = check_inputs(function, inputs);
  check_contiguous(function, "d_centers", d_centers, wide_dtype(inputs.query.dtype()),
                   {s.batch, s.heads, s.rows, 1});
  check_gradients(function, inputs, d_centers, gradients);
  Executor& executor = executor_of(resources);
  with_wide_type(inputs.query.dtype(), [&](auto zero) {
    using T = decltype(zero);
    backward<T>(inputs, s, d_centers.data<T>(), gradients, executor);
  });
}

}  // namespace fovea
