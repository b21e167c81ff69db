// Views [entries, len, dim] as kernels that go channel by channel take them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "fovea/core/error.h"
#include "kernels/recurrence/stored_rows.h"
#include "plan/checks.h"
#include "plan/recurrence/sequences.h"

namespace fovea {

inline kernels::StoredRows<const std::byte> stored_rows(const ConstTensorView& view) {
  if (!view) return {};
  return {view.raw(), view.dtype(), view.stride(0), view.stride(1)};
}
inline kernels::StoredRows<std::byte> stored_rows(const TensorView& view) {
  if (!view) return {};
  return {view.raw(), view.dtype(), view.stride(0), view.stride(1)};
}
/// The elements of a contiguous view, or null where there is none.
template <class T, class View>
auto* data_or_null(const View& view) {
  using Pointer = decltype(view.template data<T>());
  return view ? view.template data<T>() : Pointer(nullptr);
}

/// Sizes of a plan, and their product, are at most 2^40, so that no number of bytes overflows.
inline constexpr std::int64_t most_plan_size = std::int64_t{1} << 40;
inline void check_elements(const char* function, std::initializer_list<std::int64_t> sizes) {
  std::int64_t product = 1;
  for (const std::int64_t size : sizes) {
    if (size > 0 && product > most_plan_size / size)
      throw InvalidArgument(function, "shape", "at most 2^40 elements", "more");
    product *= size;
  }
}

enum class Pass : std::uint8_t { forward, backward };

/// Bytes of the workspace of a call. problem(T()) is the call's problem for numbers of T, of which only the
/// sizes are read.
template <class Plan, class MakeProblem>
std::size_t channel_call_bytes(const Plan& plan, const RecurrenceSizes& sizes, int threads, Pass pass,
                               MakeProblem&& problem) {
  Carver counting;
  make_sequences({}, sizes, counting);
  return counting.used() + 128 + with_wide_type(plan.dtype, [&](auto t) {
           const auto& code = plan.candidate->template code<decltype(t)>();
           return pass == Pass::forward ? code.forward_bytes(problem(t), threads)
                                        : code.backward_bytes(problem(t), threads);
         });
}

/// The sizes of a plan's largest call. A packed call has one entry of all tokens, so they bound those too.
template <class Shape>
RecurrenceSizes largest_call(const Shape& shape) {
  return {shape.batch, shape.len, shape.batch};
}

}  // namespace fovea
