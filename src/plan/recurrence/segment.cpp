// Maps of states: what is made of calls of recur, and the products that compose them.
#include "kernels/recurrence/segment.h"

#include <array>
#include <cmath>
#include <limits>
#include <memory>

#include "fovea/plan/recurrence_segment.h"
#include "plan/recurrence/prepare.h"
#include "plan/recurrence/states.h"
#include "plan/small_calls.h"

namespace fovea {
namespace {

bool is_diagonal(const RecurrencePlan::Impl& plan) {
  return plan.write() == WriteKind::additive;
}

void check_segment(const char* function, const char* transition, const char* contribution,
                   const RecurrencePlan& plan, const RecurrenceSegment& segment, std::int64_t sequences) {
  const DType dtype = plan.impl().compute_dtype();
  check_contiguous(function, transition, segment.transition, dtype, transition_shape(plan, sequences));
  check_contiguous(function, contribution, segment.contribution, dtype,
                   state_shape(plan.spec(), plan.shape(), sequences));
}

// The sum of all gates in double, whose exponential has the error of one rounding. As the kernels' decays, a
// number below the smallest normal one is 0.
template <class T>
void decay_products(const RecurrencePlan::Impl& plan, const RecurrenceInputs& inputs,
                    std::span<const kernels::TokenSequence> sequences, T* to) {
  const std::int64_t heads = plan.shape.num_heads, dim = plan.shape.key_dim;
  const kernels::Operand<const T*> gates = weight_operand<T>(inputs.log_decay);
  for (std::int64_t unit = 0; unit < static_cast<std::int64_t>(sequences.size()) * heads; ++unit) {
    const kernels::TokenSequence& sequence = sequences[static_cast<std::size_t>(unit / heads)];
    for (std::int64_t i = 0; i < dim; ++i) {
      double sum = 0;
      for (std::int64_t t = 0; plan.decay() != DecayKind::none && t < sequence.count; ++t)
        sum += static_cast<double>(
            gates.row(sequence.entry, unit % heads, sequence.row(t))[plan.decay() == DecayKind::key ? i : 0]);
      const T product = static_cast<T>(std::exp(sum));
      to[unit * dim + i] = product < std::numeric_limits<T>::min() ? T(0) : product;
    }
  }
}

Tensor diagonal_transition(const RecurrencePlan& plan, const RecurrenceInputs& inputs,
                           const RecurrenceSizes& sizes) {
  Carver counting;
  make_sequences(lists_of(inputs), sizes, counting);
  std::vector<std::byte> memory(counting.used() + workspace_alignment);
  Carver carver{std::span<std::byte>(memory)};
  const auto sequences = make_sequences(lists_of(inputs), sizes, carver);
  const Tensor transition(plan.impl().compute_dtype(), transition_shape(plan, sizes.sequences));
  with_wide_type(plan.dtype(), [&](auto t) {
    using T = decltype(t);
    decay_products<T>(plan.impl(), inputs, sequences, transition.data<T>());
  });
  return transition;
}

// The states that identities end in, where all values are 0: no token contributes.
Tensor dense_transition(const RecurrencePlan& plan, const RecurrenceInputs& inputs,
                        const RecurrenceSizes& sizes, const CallResources& resources) {
  RecurrenceSpec spec = plan.spec();
  spec.normalizer = NoNormalizer{};
  RecurrenceShape shape = plan.shape();
  shape.value_dim = shape.key_dim;
  const RecurrencePlan square =
      make_recurrence_plan(spec, shape, {.dtype = plan.dtype(), .kernel = std::string(plan.kernel())});
  const Tensor transition = identity_segment(square, sizes.sequences).transition,
               row = Tensor::zeros(plan.dtype(), {shape.key_dim});
  const std::array<std::int64_t, 4> strides{0, 0, 0, 1};
  RecurrenceInputs in = inputs;
  in.query = {};
  in.value = ConstTensorView(row.raw(), plan.dtype(),
                             {sizes.entries, shape.num_heads, sizes.len, shape.key_dim}, strides);
  in.initial_state = transition;
  recur(square, in, {.output = {}, .final_state = transition}, {.executor = resources.executor});
  return transition;
}

// m·x + add for every sequence and head.
template <class T>
void map_all(const RecurrencePlan& plan, const Tensor& transition, const T* x, const T* add,
             std::int64_t columns, T* to, Executor& executor) {
  const std::int64_t dim = plan.shape().key_dim, size = dim * columns,
                     units = transition.size(0) * transition.size(1);
  const T* m = transition.data<T>();
  if (is_diagonal(plan.impl())) {
    executor.parallel_for(units, [&](std::int64_t unit, int) {
      for (std::int64_t i = 0; i < dim; ++i) {
        const T factor = m[unit * dim + i];
        for (std::int64_t e = unit * size + i * columns; e < unit * size + (i + 1) * columns; ++e)
          to[e] = factor * x[e] + (add ? add[e] : T(0));
      }
    });
    return;
  }
  const std::size_t bytes = kernels::map_states_bytes(dim, columns);
  std::vector<std::byte> memory(bytes * static_cast<std::size_t>(executor.thread_count()) +
                                workspace_alignment);
  std::byte* first = workspace_of("map_states", memory, memory.size() - workspace_alignment).data();
  executor.parallel_for(units, [&](std::int64_t unit, int worker) {
    kernels::map_states(m + unit * dim * dim, x + unit * size, add ? add + unit * size : nullptr, dim,
                        columns, to + unit * size, first + bytes * static_cast<std::size_t>(worker));
  });
}

std::vector<std::int64_t> cuts_of(std::int64_t len, std::int64_t piece) {
  std::vector<std::int64_t> cuts{0};
  while (cuts.back() < len) cuts.push_back(std::min(cuts.back() + piece, len));
  return cuts;
}

// The states before every piece: one entry a piece.
Tensor states_before(const RecurrencePlan& pieces, const RecurrenceInputs& inputs,
                     const std::vector<std::int64_t>& cuts, const CallResources& resources) {
  const auto count = static_cast<std::int64_t>(cuts.size()) - 1;
  const Tensor states =
      Tensor::zeros(pieces.impl().compute_dtype(), state_shape(pieces.spec(), pieces.shape(), count));
  const auto state_of = [&](std::int64_t n) { return states.view().slice(0, n, 1); };
  if (inputs.initial_state) copy_rows(inputs.initial_state, state_of(0), executor_of(resources));
  RecurrenceInputs in = tokens_of(inputs, 0, cuts[cuts.size() - 2]);
  in.initial_state = {};
  in.sequence_starts = std::span(cuts).first(cuts.size() - 1);
  const RecurrenceSegment all = summarize(pieces, in, resources);
  for (std::int64_t n = 0; n + 1 < count; ++n) {
    const RecurrenceSegment one{Tensor::copy_of(all.transition.view().slice(0, n, 1)),
                                Tensor::copy_of(all.contribution.view().slice(0, n, 1))};
    copy_rows(advance(pieces, one, state_of(n), resources), state_of(n + 1), executor_of(resources));
  }
  return states;
}

}  // namespace

Shape transition_shape(const RecurrencePlan& plan, std::int64_t sequences) {
  const RecurrenceShape& s = plan.shape();
  if (is_diagonal(plan.impl())) return {sequences, s.num_heads, s.key_dim};
  return {sequences, s.num_heads, s.key_dim, s.key_dim};
}

RecurrenceSegment identity_segment(const RecurrencePlan& plan, std::int64_t sequences) {
  const DType dtype = plan.impl().compute_dtype();
  const std::int64_t dim = plan.shape().key_dim;
  RecurrenceSegment segment{Tensor::zeros(dtype, transition_shape(plan, sequences)),
                            Tensor::zeros(dtype, state_shape(plan.spec(), plan.shape(), sequences))};
  with_wide_type(dtype, [&](auto t) {
    using T = decltype(t);
    T* elements = segment.transition.data<T>();
    for (std::int64_t i = 0; i < sequences * plan.shape().num_heads * dim; ++i)
      elements[is_diagonal(plan.impl()) ? i : i * dim + i % dim] = T(1);
  });
  return segment;
}

RecurrenceSegment summarize(const RecurrencePlan& plan, const RecurrenceInputs& inputs,
                            const CallResources& resources) {
  constexpr const char* function = "summarize";
  if (is_given(inputs.initial_state))
    throw InvalidArgument(function, "initial_state", "nothing: a segment is a map of every state",
                          described(inputs.initial_state));
  const RecurrenceSizes sizes = check_recurrence_inputs(function, plan.impl(), inputs, false);
  RecurrenceSegment segment;
  segment.contribution =
      Tensor(plan.impl().compute_dtype(), state_shape(plan.spec(), plan.shape(), sizes.sequences));
  recur(plan, inputs, {.output = {}, .final_state = segment.contribution}, resources);
  segment.transition = is_diagonal(plan.impl()) ? diagonal_transition(plan, inputs, sizes)
                                                : dense_transition(plan, inputs, sizes, resources);
  return segment;
}

RecurrenceSegment compose(const RecurrencePlan& plan, const RecurrenceSegment& later,
                          const RecurrenceSegment& earlier, const CallResources& resources) {
  const std::int64_t sequences = later.contribution.rank() == 4 ? later.contribution.size(0) : 0;
  check_segment("compose", "later.transition", "later.contribution", plan, later, sequences);
  check_segment("compose", "earlier.transition", "earlier.contribution", plan, earlier, sequences);
  RecurrenceSegment result{Tensor(later.transition.dtype(), later.transition.shape()),
                           Tensor(later.contribution.dtype(), later.contribution.shape())};
  with_wide_type(plan.dtype(), [&](auto t) {
    using T = decltype(t);
    Executor& executor = executor_of(resources);
    map_all<T>(plan, later.transition, earlier.transition.data<T>(), nullptr,
               is_diagonal(plan.impl()) ? 1 : plan.shape().key_dim, result.transition.data<T>(), executor);
    map_all<T>(plan, later.transition, earlier.contribution.data<T>(), later.contribution.data<T>(),
               plan.impl().columns(), result.contribution.data<T>(), executor);
  });
  return result;
}

Tensor advance(const RecurrencePlan& plan, const RecurrenceSegment& segment, const ConstTensorView& states,
               const CallResources& resources) {
  const std::int64_t sequences = segment.contribution.rank() == 4 ? segment.contribution.size(0) : 0;
  check_segment("advance", "segment.transition", "segment.contribution", plan, segment, sequences);
  check_contiguous("advance", "states", states, plan.impl().compute_dtype(), segment.contribution.shape());
  const Tensor result(segment.contribution.dtype(), segment.contribution.shape());
  with_wide_type(plan.dtype(), [&](auto t) {
    using T = decltype(t);
    map_all<T>(plan, segment.transition, states.data<T>(), segment.contribution.data<T>(),
               plan.impl().columns(), result.data<T>(), executor_of(resources));
  });
  return result;
}

void recur_in_pieces(const RecurrencePlan& plan, const RecurrenceInputs& inputs,
                     const RecurrenceOutputs& outputs, std::int64_t piece, const CallResources& resources) {
  constexpr const char* function = "recur_in_pieces";
  if (piece < 1 || piece % plan.chunk() != 0)
    throw InvalidArgument(function, "piece", "a positive multiple of " + std::to_string(plan.chunk()),
                          std::to_string(piece));
  const RecurrenceSizes sizes =
      check_recurrence_inputs(function, plan.impl(), inputs, is_given(outputs.output));
  check_recurrence_outputs(function, plan.impl(), inputs, outputs, sizes);
  if (sizes.entries != 1 || !inputs.sequence_starts.empty())
    throw InvalidArgument(function, "key", "a batch of 1 without sequence_starts", described(inputs.key));
  refuse_state_list(function, "final_states", outputs.final_states.size());
  if (is_given(outputs.saved_states))
    throw InvalidArgument(function, "saved_states", "nothing, because pieces save none",
                          described(outputs.saved_states));
  if (sizes.len <= piece) return recur(plan, inputs, outputs, resources);
  const std::vector<std::int64_t> cuts = cuts_of(sizes.len, piece);
  RecurrenceShape shape = plan.shape();
  shape.batch = static_cast<std::int64_t>(cuts.size()) - 1;
  shape.len = piece;
  const RecurrencePlan pieces =
      make_recurrence_plan(plan.spec(), shape, {.dtype = plan.dtype(), .kernel = std::string(plan.kernel())});
  const CallResources own{.executor = resources.executor};
  const Tensor states = states_before(pieces, inputs, cuts, own);
  RecurrenceInputs in = inputs;
  in.initial_state = states;
  in.sequence_starts = cuts;
  RecurrenceOutputs out = outputs;
  if (outputs.final_state) out.final_state = states;
  recur(pieces, in, out, own);
  if (outputs.final_state)
    copy_rows(states.view().slice(0, shape.batch - 1, 1), outputs.final_state, executor_of(resources));
}

}  // namespace fovea
