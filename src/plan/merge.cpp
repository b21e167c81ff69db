#include "fovea/plan/merge.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "plan/call.h"
#include "plan/rows.h"
#include "plan/small_calls.h"

namespace fovea {
namespace {

constexpr const char* function = "merge_attention";

void check(std::span<const AttentionPart> parts, const TensorView& output, const TensorView& log_sum_exp) {
  check_four_axes(function, "output", output, "[batch, heads, query_len, value_dim]");
  const DType wide = wide_dtype(output.dtype());
  const Shape rows{output.size(0), output.size(1), output.size(2)};
  check_output(function, "output", output, output.dtype(), output.shape(), {});
  if (log_sum_exp) check_output(function, "log_sum_exp", log_sum_exp, wide, rows, {});
  for (std::size_t n = 0; n < parts.size(); ++n) {
    const std::string name = "parts[" + std::to_string(n) + "]";
    check_view(function, (name + ".output").c_str(), parts[n].output, output.dtype(), output.shape());
    check_view(function, (name + ".log_sum_exp").c_str(), parts[n].log_sum_exp, wide, rows);
    OverlapCheck memory(function);
    memory.writes("output", output);
    memory.writes("log_sum_exp", log_sum_exp);
    // A row is read before it is written, so the output may be the same view as one part's.
    if (!same_view(parts[n].output, output)) memory.reads("parts.output", parts[n].output);
    if (!same_view(parts[n].log_sum_exp, log_sum_exp))
      memory.reads("parts.log_sum_exp", parts[n].log_sum_exp);
    memory.check();
  }
}

struct RowIndex {
  std::int64_t b = 0, h = 0, r = 0;
};

template <class W>
W log_sum_exp_of(const AttentionPart& part, const RowIndex& at) {
  const ConstTensorView& view = part.log_sum_exp;
  return view.data<W>()[at.b * view.stride(0) + at.h * view.stride(1) + at.r * view.stride(2)];
}

// The maximum, ignoring NaN, and the sum relative to it; the sum is 0 if all are -inf.
template <class W>
struct RowState {
  W greatest = -std::numeric_limits<W>::infinity(), sum{0};
};

template <class W>
bool absent(W log_sum_exp) {
  return log_sum_exp == -std::numeric_limits<W>::infinity();
}

template <class W>
RowState<W> row_state(std::span<const AttentionPart> parts, const RowIndex& at) {
  RowState<W> state;
  for (const AttentionPart& part : parts)
    state.greatest = std::max(state.greatest, log_sum_exp_of<W>(part, at));
  for (const AttentionPart& part : parts) {
    if (const W lse = log_sum_exp_of<W>(part, at); !absent(lse)) state.sum += std::exp(lse - state.greatest);
  }
  return state;
}

// The number of elements of a row that are summed at once, on the stack. The weights of the parts are
// computed again for each chunk.
constexpr std::int64_t chunk = 128;

template <class T>
void merge_row(std::span<const AttentionPart> parts, const RowIndex& at, const RowState<Wide<T>>& state,
               std::int64_t dim, T* output) {
  using W = Wide<T>;
  const W scale = state.sum == W{0} ? W{0} : W{1} / state.sum;
  for (std::int64_t begin = 0; begin < dim; begin += chunk) {
    const std::int64_t count = std::min(chunk, dim - begin);
    std::array<W, chunk> sums{};
    for (const AttentionPart& part : parts) {
      const W lse = log_sum_exp_of<W>(part, at);
      if (absent(lse)) continue;
      const W weight = std::exp(lse - state.greatest) * scale;
      const T* from = operand_of<T>(part.output).row(at.b, at.h, at.r) + begin;
#pragma omp simd
      for (std::int64_t d = 0; d < count; ++d)
        sums[static_cast<std::size_t>(d)] += weight * static_cast<W>(from[d]);
    }
#pragma omp simd
    for (std::int64_t d = 0; d < count; ++d)
      output[begin + d] = static_cast<T>(sums[static_cast<std::size_t>(d)]);
  }
}

}  // namespace

void merge_attention(std::span<const AttentionPart> parts, TensorView output, TensorView log_sum_exp,
                     const CallResources& resources) {
  check(parts, output, log_sum_exp);
  Executor& executor = executor_of(resources);
  with_type(output.dtype(), [&](auto zero) {
    using T = decltype(zero);
    using W = Wide<T>;
    const auto rows = operand_of<T>(output);
    for_rows(rows_of(output), executor, [&](std::int64_t b, std::int64_t h, std::int64_t r) {
      const RowIndex at{b, h, r};
      const RowState<W> state = row_state<W>(parts, at);
      merge_row<T>(parts, at, state, output.size(3), rows.row(b, h, r));
      if (!log_sum_exp) return;
      W* to = log_sum_exp.data<W>() + b * log_sum_exp.stride(0) + h * log_sum_exp.stride(1) +
              r * log_sum_exp.stride(2);
      *to = state.sum == W{0} ? -std::numeric_limits<W>::infinity() : state.greatest + std::log(state.sum);
    });
  });
}

}  // namespace fovea
