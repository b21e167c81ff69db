#include "plan/recurrence/prepare.h"

#include <algorithm>
#include <array>

#include "kernels/recurrence/features.h"

namespace fovea {
namespace {

using kernels::Operand;
using kernels::StoredOperand;
using kernels::TokenSequence;

// Operands that the kernel sees as copies, in the type of arithmetic, which are all made in one parallel
// pass.
template <class T>
class OperandCopies {
 public:
  enum class Change { features, ones };

  void add(const ConstTensorView& from, const Operand<T*>& to, Change change) {
    list_[static_cast<std::size_t>(count_++)] = {from, to, change};
    heads_ += from.size(1);
  }
  void make(const RecurrencePlan::Impl& plan, std::span<const TokenSequence> sequences,
            Executor& executor) const {
    const std::int64_t key_dim = plan.shape.key_dim;
    for_token_runs({sequences, heads_, std::max(key_dim, plan.columns())}, executor,
                   [&](std::int64_t b, std::int64_t h, std::int64_t first, std::int64_t count) {
                     const Copy* copy = list_.data();
                     for (; h >= copy->from.size(1); ++copy) h -= copy->from.size(1);
                     const bool features = copy->change == Change::features,
                                is_t = copy->from.dtype() == dtype_of<T>;
                     // Rows side by side are mapped by one call, without a call and a rest for each.
                     if (features && is_t && copy->from.stride(2) == key_dim)
                       return kernels::elu_plus_one(row_pointer<T>(copy->from, b, h, first), count * key_dim,
                                                    copy->to.row(b, h, first));
                     for (std::int64_t r = first; r < first + count; ++r) {
                       T* row = copy->to.row(b, h, r);
                       if (features && is_t) {
                         kernels::elu_plus_one(row_pointer<T>(copy->from, b, h, r), key_dim, row);
                         continue;
                       }
                       read_row(copy->from, b, h, r, row);
                       if (features) kernels::elu_plus_one(row, key_dim, row);
                       if (copy->change == Change::ones) row[plan.shape.value_dim] = T(1);
                     }
                   });
  }

 private:
  struct Copy {
    ConstTensorView from;
    Operand<T*> to;
    Change change = Change::features;
  };
  std::array<Copy, 3> list_;
  int count_ = 0;
  std::int64_t heads_ = 0;
};

}  // namespace

template <class T>
kernels::RecurrenceProblem<T> prepare_recurrence(const RecurrencePlan::Impl& plan,
                                                 const RecurrenceInputs& inputs, const RecurrenceSizes& sizes,
                                                 const TokenRows& rows,
                                                 std::span<const TokenSequence> sequences, Carver& carver,
                                                 Executor* executor) {
  using Change = typename OperandCopies<T>::Change;
  const RecurrenceShape& s = plan.shape;
  const bool maps = plan.maps_features() && !plan.kernel_maps, ones = plan.sums_keys() && !plan.kernel_maps;
  const std::int64_t columns = ones ? plan.columns() : s.value_dim;
  kernels::RecurrenceProblem<T> p{.write = plan.write(),
                                  .decay = plan.decay(),
                                  .read = plan.read(),
                                  .query_heads = s.num_query_heads,
                                  .key_heads = s.num_key_heads,
                                  .heads = s.num_heads,
                                  .key_dim = s.key_dim,
                                  .value_dim = columns,
                                  .scale = plan.scale,
                                  .sequences = sequences.data(),
                                  .sequence_count = sizes.sequences,
                                  .len = sizes.len,
                                  .rows = sizes.entries * sizes.len,
                                  .longest = std::min(sizes.len, s.len)};
  if (plan.maps_features() && !maps) p.features = kernels::RowFeatures::elu_plus_one;
  if (plan.sums_keys() && !ones) {
    p.sums_keys = true;
    p.epsilon = plan.epsilon();
  }
  OperandCopies<T> all;
  const auto operand = [&](const ConstTensorView& view, std::int64_t heads, std::int64_t dim, bool changes,
                           Change change) -> StoredOperand<const std::byte> {
    if (!changes) return stored_operand(view);
    const Operand<T*> copy = take_operand<T>(sizes, rows, heads, dim, carver);
    if (!executor || !view) return {};
    all.add(view, copy, change);
    return read_only(stored_operand(copy));
  };
  p.query = operand(inputs.query, s.num_query_heads, s.key_dim, maps, Change::features);
  p.key = operand(inputs.key, s.num_key_heads, s.key_dim, maps, Change::features);
  p.value = operand(inputs.value, s.num_heads, columns, ones, Change::ones);
  p.erase = stored_operand(inputs.erase);
  p.a = stored_operand(inputs.a);
  p.b = stored_operand(inputs.b);
  if (executor) all.make(plan, sequences, *executor);
  p.log_decay = weight_operand<T>(inputs.log_decay);
  p.beta = weight_operand<T>(inputs.beta);
  p.self_weight = weight_operand<T>(inputs.self_weight);
  if (inputs.bonus) p.bonus = inputs.bonus.data<T>();
  if (inputs.initial_state) p.initial_state.data = inputs.initial_state.data<T>();
  return p;
}

template <class T>
void features_backward(const RecurrencePlan::Impl& plan, const ConstTensorView& x,
                       const Operand<T*>& d_features, const TensorView& d_x,
                       std::span<const TokenSequence> sequences, Executor& executor) {
  const std::int64_t dim = plan.shape.key_dim;
  for_token_rows({sequences, x.size(1), dim}, executor, [&](std::int64_t b, std::int64_t h, std::int64_t r) {
    T* row = d_features.row(b, h, r);
    if (x.dtype() == dtype_of<T> && d_x.dtype() == dtype_of<T>)
      return kernels::times_elu_slope(row_pointer<T>(x, b, h, r), row, dim, row_pointer<T>(d_x, b, h, r));
    constexpr std::int64_t most = 64;
    for (std::int64_t d = 0; d < dim; d += most) {
      T piece[most];
      const std::int64_t count = std::min(most, dim - d);
      read_row(x.slice(3, d, count), b, h, r, piece);
      kernels::times_elu_slope(piece, row + d, count, row + d);
    }
    write_row(static_cast<const T*>(row), d_x, b, h, r);
  });
}

template kernels::RecurrenceProblem<float> prepare_recurrence(const RecurrencePlan::Impl&,
                                                              const RecurrenceInputs&, const RecurrenceSizes&,
                                                              const TokenRows&,
                                                              std::span<const TokenSequence>, Carver&,
                                                              Executor*);
template kernels::RecurrenceProblem<double> prepare_recurrence(const RecurrencePlan::Impl&,
                                                               const RecurrenceInputs&,
                                                               const RecurrenceSizes&, const TokenRows&,
                                                               std::span<const TokenSequence>, Carver&,
                                                               Executor*);
template void features_backward(const RecurrencePlan::Impl&, const ConstTensorView&, const Operand<float*>&,
                                const TensorView&, std::span<const TokenSequence>, Executor&);
template void features_backward(const RecurrencePlan::Impl&, const ConstTensorView&, const Operand<double*>&,
                                const TensorView&, std::span<const TokenSequence>, Executor&);

}  // namespace fovea
