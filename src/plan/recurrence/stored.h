// Views [entries, len, dim] as kernels that go channel by channel take them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/recurrence/stored_rows.h"
#include "plan/operand.h"
#include "plan/recurrence/sequences.h"
#include "plan/recurrence/states.h"
#include "plan/rows.h"
#include "plan/workspace.h"

namespace fovea {

inline kernels::StoredRows<const std::byte> stored_rows(const ConstTensorView& view) {
  if (!view) return {};
  return {view.raw(), view.dtype(), view.stride(0), view.stride(1)};
}
inline kernels::StoredRows<std::byte> stored_rows(const TensorView& view) {
  if (!view) return {};
  return {view.raw(), view.dtype(), view.stride(0), view.stride(1)};
}
enum class Pass : std::uint8_t { forward, backward };

/// Bytes of the workspace of a call. problem(T()) is the call's problem for numbers of T, of which only the
/// sizes are read.
template <class Plan, class MakeProblem>
std::size_t channel_call_bytes(const Plan& plan, const RecurrenceSizes& sizes, int threads, Pass pass,
                               MakeProblem&& problem) {
  Carver counting;
  make_sequences({}, sizes, counting);
  return with_wide_type(plan.dtype, [&](auto t) {
    make_state_places<decltype(t)>({}, sizes.sequences, counting);
    const auto& code = plan.candidate->template code<decltype(t)>();
    return counting.used_before_rest() + (pass == Pass::forward ? code.forward_bytes(problem(t), threads)
                                                                : code.backward_bytes(problem(t), threads));
  });
}

/// The sizes of a plan's largest call. A packed call has one entry of all tokens, so they bound those too.
template <class Shape>
RecurrenceSizes largest_call(const Shape& shape) {
  return {shape.batch, shape.len, shape.batch};
}

}  // namespace fovea
