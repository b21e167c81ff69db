#include "plan/recurrence/prepare.h"

#include <algorithm>

#include "kernels/recurrence/features.h"

namespace fovea {
namespace {

using kernels::Operand;
using kernels::TokenSequence;

// Copies the rows of a view, and changes each copy by `map(row)`.
template <class T, class Map>
Operand<const T*> copied(const ConstTensorView& view, const Operand<T*>& to,
                         std::span<const TokenSequence> sequences, Executor& executor, Map map) {
  for_token_rows(sequences, view.size(1), executor, [&](std::int64_t b, std::int64_t h, std::int64_t r) {
    read_row(view, b, h, r, to.row(b, h, r));
    map(to.row(b, h, r));
  });
  return {to.data, to.batch_stride, to.head_stride, to.row_stride};
}

}  // namespace

template <class T>
kernels::RecurrenceProblem<T> prepare_recurrence(const RecurrencePlan::Impl& plan,
                                                 const RecurrenceInputs& inputs, const RecurrenceSizes& sizes,
                                                 std::span<const TokenSequence> sequences, Carver& carver,
                                                 Executor* executor) {
  const RecurrenceShape& s = plan.shape;
  kernels::RecurrenceProblem<T> p{.write = plan.write(),
                                  .decay = plan.decay(),
                                  .read = plan.read(),
                                  .query_heads = s.num_query_heads,
                                  .key_heads = s.num_key_heads,
                                  .heads = s.num_heads,
                                  .key_dim = s.key_dim,
                                  .value_dim = plan.columns(),
                                  .scale = plan.scale,
                                  .sequences = sequences.data(),
                                  .sequence_count = sizes.sequences,
                                  .len = sizes.len,
                                  .rows = sizes.entries * sizes.len,
                                  .longest = std::min(sizes.len, s.len)};
  const auto plain = [](T*) {};
  const auto features = [&](T* row) {
    if (plan.maps_features()) kernels::elu_plus_one(s.key_dim, row);
  };
  const auto ones = [&](T* row) {
    if (plan.sums_keys()) row[s.value_dim] = T(1);
  };
  const auto operand = [&](const ConstTensorView& view, std::int64_t heads, std::int64_t dim, bool copies,
                           auto map) -> Operand<const T*> {
    if (!copies) return view ? operand_of<T>(view) : Operand<const T*>{};
    const Operand<T*> copy = take_operand<T>(sizes, heads, dim, carver);
    if (!executor || !view) return {};
    return copied(view, copy, sequences, *executor, map);
  };
  p.query = operand(inputs.query, s.num_query_heads, s.key_dim, copies_keys(plan), features);
  p.key = operand(inputs.key, s.num_key_heads, s.key_dim, copies_keys(plan), features);
  p.value = operand(inputs.value, s.num_heads, plan.columns(), copies_values(plan), ones);
  p.erase = operand(inputs.erase, s.num_heads, s.key_dim, plan.in_16_bits(), plain);
  p.a = operand(inputs.a, s.num_heads, s.key_dim, plan.in_16_bits(), plain);
  p.b = operand(inputs.b, s.num_heads, s.key_dim, plan.in_16_bits(), plain);
  p.log_decay = weight_operand<T>(inputs.log_decay);
  p.beta = weight_operand<T>(inputs.beta);
  p.self_weight = weight_operand<T>(inputs.self_weight);
  if (inputs.bonus) p.bonus = inputs.bonus.data<T>();
  if (inputs.initial_state) p.initial_state = inputs.initial_state.data<T>();
  return p;
}

template <class T>
void features_backward(const RecurrencePlan::Impl& plan, const ConstTensorView& x,
                       const Operand<T*>& d_features, const TensorView& d_x,
                       std::span<const TokenSequence> sequences, Executor& executor) {
  const std::int64_t dim = plan.shape.key_dim;
  for_token_rows(sequences, x.size(1), executor, [&](std::int64_t b, std::int64_t h, std::int64_t r) {
    T* row = d_features.row(b, h, r);
    if (plan.maps_features()) {
      constexpr std::int64_t most = 64;
      for (std::int64_t d = 0; d < dim; d += most) {
        T piece[most];
        const std::int64_t count = std::min(most, dim - d);
        read_row(x.slice(3, d, count), b, h, r, piece);
        kernels::times_elu_slope(piece, count, row + d);
      }
    }
    write_row(static_cast<const T*>(row), d_x, b, h, r);
  });
}

template kernels::RecurrenceProblem<float> prepare_recurrence(const RecurrencePlan::Impl&,
                                                              const RecurrenceInputs&, const RecurrenceSizes&,
                                                              std::span<const TokenSequence>, Carver&,
                                                              Executor*);
template kernels::RecurrenceProblem<double> prepare_recurrence(const RecurrencePlan::Impl&,
                                                               const RecurrenceInputs&,
                                                               const RecurrenceSizes&,
                                                               std::span<const TokenSequence>, Carver&,
                                                               Executor*);
template void features_backward(const RecurrencePlan::Impl&, const ConstTensorView&, const Operand<float*>&,
                                const TensorView&, std::span<const TokenSequence>, Executor&);
template void features_backward(const RecurrencePlan::Impl&, const ConstTensorView&, const Operand<double*>&,
                                const TensorView&, std::span<const TokenSequence>, Executor&);

}  // namespace fovea
