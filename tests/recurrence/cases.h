// Calls of recurrences for the tests: a case, its operands drawn from a seed, and its results on a kernel.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fovea/core/philox.h"
#include "fovea/plan/recurrence.h"
#include "plan/differences.h"

namespace fovea::testing {

enum class DeltaBy { beta, erase, both };
enum class Packing { padded, packed, masked, packed_and_masked };
enum class Placed { contiguous, heads_inside };  ///< [B, H, T, D] or [B, T, H, D] in memory

struct RecurrenceCase {
  std::string name;
  RecurrenceSpec spec;
  RecurrenceShape shape;  // batch and len of padded calls; a packed call has the same number of tokens
  DType dtype = DType::f32;
  DeltaBy delta_by = DeltaBy::beta;
  double weakest_gate = -0.02, strongest_gate = -2;
  Packing packing = Packing::padded;
  Placed placed = Placed::contiguous;
  bool has_state = true;  // an initial state, and a loss that depends on the final one
  std::uint64_t seed = 1;

  bool packed() const { return packing == Packing::packed || packing == Packing::packed_and_masked; }
  bool masked() const { return packing == Packing::masked || packing == Packing::packed_and_masked; }
  std::int64_t entries() const { return packed() ? 1 : shape.batch; }
  std::int64_t len() const { return packed() ? shape.batch * shape.len : shape.len; }
  /// Sequences of a packed call: one empty, the others of several lengths. They hold all tokens.
  std::vector<std::int64_t> starts() const {
    if (!packed()) return {};
    const std::int64_t tokens = len();
    return {0, tokens / 5, tokens / 5, tokens - tokens / 3, tokens};
  }
  std::int64_t sequences() const {
    return packed() ? static_cast<std::int64_t>(starts().size()) - 1 : shape.batch;
  }
  RecurrenceShape plan_shape() const {
    RecurrenceShape planned = shape;
    planned.batch = std::max(sequences(), shape.batch);
    planned.len = len();
    return planned;
  }
  DType wide_dtype() const { return dtype == DType::f64 ? DType::f64 : DType::f32; }
};

/// A tensor and a view of the same shape that places its elements in another order.
struct PlacedTensor {
  Tensor storage;
  ConstTensorView view;
  TensorView written;

  PlacedTensor() = default;
  PlacedTensor(DType dtype, Shape shape, Placed placed) {
    if (placed == Placed::contiguous || shape.rank() != 4) {
      storage = Tensor::zeros(dtype, shape);
      written = storage.view();
    } else {
      const std::int64_t b = shape[0], h = shape[1], t = shape[2], d = shape[3];
      storage = Tensor::zeros(dtype, {b, t, h, d});
      const std::int64_t strides[]{t * h * d, d, h * d, 1};
      written = TensorView(storage.raw(), dtype, shape, strides);
    }
    view = written;
  }
  Tensor values() const { return storage ? Tensor::copy_of(view) : Tensor(); }
};

/// All tensors of a call by the names of RecurrenceInputs; the same struct holds their gradients.
struct RecurrenceTensors {
  PlacedTensor query, key, value, log_decay, beta, erase, a, b, bonus, self_weight, initial_state;

  std::vector<std::pair<const char*, const PlacedTensor*>> all() const {
    return {{"query", &query},
            {"key", &key},
            {"value", &value},
            {"log_decay", &log_decay},
            {"beta", &beta},
            {"erase", &erase},
            {"a", &a},
            {"b", &b},
            {"bonus", &bonus},
            {"self_weight", &self_weight},
            {"initial_state", &initial_state}};
  }
};

inline RecurrenceTensors tensors_of(const RecurrenceCase& c) {
  const RecurrenceShape s = checked_shape(c.spec, c.shape);
  const auto rows = [&](std::int64_t heads) {
    return PlacedTensor(c.dtype, {c.entries(), heads, c.len(), s.key_dim}, c.placed);
  };
  const auto weights = [&] {
    return PlacedTensor(c.wide_dtype(), {c.entries(), s.num_heads, c.len()}, c.placed);
  };
  RecurrenceTensors t{.query = rows(s.num_query_heads), .key = rows(s.num_key_heads)};
  t.value = PlacedTensor(c.dtype, {c.entries(), s.num_heads, c.len(), s.value_dim}, c.placed);
  switch (c.spec.decay.index()) {
    case 1:
      t.log_decay = PlacedTensor(c.wide_dtype(), {s.num_heads}, c.placed);
      break;
    case 2:
      t.log_decay = weights();
      break;
    case 3:
      t.log_decay = PlacedTensor(c.wide_dtype(), {c.entries(), s.num_heads, c.len(), s.key_dim}, c.placed);
      break;
    default:
      break;
  }
  if (std::holds_alternative<DeltaWrite>(c.spec.write)) {
    if (c.delta_by != DeltaBy::erase) t.beta = weights();
    if (c.delta_by != DeltaBy::beta) t.erase = rows(s.num_heads);
  }
  if (std::holds_alternative<DiagonalPlusLowRankWrite>(c.spec.write)) {
    t.a = rows(s.num_heads);
    t.b = rows(s.num_heads);
  }
  if (std::holds_alternative<BeforeDecay>(c.spec.read))
    t.bonus = PlacedTensor(c.wide_dtype(), {s.num_heads, s.key_dim}, c.placed);
  if (std::holds_alternative<SelfWeight>(c.spec.read)) t.self_weight = weights();
  if (c.has_state)
    t.initial_state = PlacedTensor(c.wide_dtype(), state_shape(c.spec, s, c.sequences()), Placed::contiguous);
  return t;
}

/// Draws elements for `draw(index)`, in the order of the storage.
template <class Draw>
void fill_each(const PlacedTensor& tensor, Draw draw) {
  for (std::int64_t i = 0; tensor.storage && i < tensor.storage.count(); ++i)
    set_element(tensor.storage, i, draw());
}

struct RecurrenceData {
  RecurrenceTensors inputs;
  PlacedTensor d_output;
  Tensor d_final_state;
  std::vector<std::int64_t> starts;
  std::vector<std::uint8_t> present;

  explicit RecurrenceData(const RecurrenceCase& c) : inputs(tensors_of(c)), starts(c.starts()) {
    PhiloxStream random(c.seed);
    const RecurrenceShape s = checked_shape(c.spec, c.shape);
    const auto uniform = [&](double low, double high) {
      return low + (high - low) * static_cast<double>(random.next_uniform());
    };
    d_output = PlacedTensor(c.dtype, {c.entries(), s.num_output_heads(), c.len(), s.value_dim}, c.placed);
    d_final_state = Tensor(c.wide_dtype(), state_shape(c.spec, s, c.sequences()));
    // Rows of keys have a length below 1, so that delta and low-rank writes do not grow.
    const double reach = 1.0 / std::sqrt(static_cast<double>(s.key_dim));
    for (const PlacedTensor* rows : {&inputs.key, &inputs.erase, &inputs.a, &inputs.b})
      fill_each(*rows, [&] { return uniform(-reach, reach); });
    for (const PlacedTensor* rows :
         {&inputs.query, &inputs.value, &inputs.self_weight, &inputs.bonus, &inputs.initial_state, &d_output})
      fill_each(*rows, [&] { return uniform(-1, 1); });
    if (std::holds_alternative<KeySum>(
            c.spec.normalizer)) {  // no term of a sum is negative, so none is near 0
      if (std::holds_alternative<IdentityFeatures>(c.spec.feature_map)) {
        fill_each(inputs.query, [&] { return uniform(0.1, 1); });
        fill_each(inputs.key, [&] { return reach * uniform(0.1, 1); });
      }
      for (const PlacedTensor* terms : {&inputs.initial_state, &inputs.self_weight, &inputs.bonus})
        fill_each(*terms, [&] { return uniform(0.3, 1); });
    }
    // Features near 1 have a squared length near key_dim, and beta·|k|² must stay below 2.
    const bool features = !std::holds_alternative<IdentityFeatures>(c.spec.feature_map);
    const double strength = features ? 1.0 / static_cast<double>(s.key_dim) : 1.0;
    fill_each(inputs.beta, [&] { return strength * uniform(0.1, 1); });
    fill_each(inputs.log_decay, [&] { return uniform(c.strongest_gate, c.weakest_gate); });
    for (std::int64_t i = 0; i < d_final_state.count(); ++i) set_element(d_final_state, i, uniform(-1, 1));
    if (c.masked()) mask(c, random);
  }

  /// Leaves some tokens out, and poisons them.
  void mask(const RecurrenceCase& c, PhiloxStream& random) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (std::int64_t i = 0; i < c.entries() * c.len(); ++i) present.push_back(random.next_below(4) > 0);
    auto all = inputs.all();
    all.emplace_back("d_output", &d_output);
    for (const auto& [name, tensor] : all) {
      const Shape& shape = tensor->view.shape();
      if (shape.rank() < 3 || tensor == &inputs.initial_state) continue;
      for (std::int64_t e = 0; e < shape[0] * shape[1] * shape[2]; ++e) {
        const std::int64_t b = e / (shape[1] * shape[2]), h = e / shape[2] % shape[1], t = e % shape[2];
        if (present[static_cast<std::size_t>(b * shape[2] + t)]) continue;
        const std::int64_t dim = shape.rank() == 4 ? shape[3] : 1;
        const TensorView& view = tensor->written;
        for (std::int64_t d = 0; d < dim; ++d)
          set_element(tensor->storage, b * view.stride(0) + h * view.stride(1) + t * view.stride(2) + d, nan);
      }
    }
  }

  RecurrenceInputs views() const {
    return {.query = inputs.query.view,
            .key = inputs.key.view,
            .value = inputs.value.view,
            .log_decay = inputs.log_decay.view,
            .beta = inputs.beta.view,
            .erase = inputs.erase.view,
            .a = inputs.a.view,
            .b = inputs.b.view,
            .bonus = inputs.bonus.view,
            .self_weight = inputs.self_weight.view,
            .initial_state = inputs.initial_state.view,
            .sequence_starts = starts,
            .present = present};
  }
};

struct RecurrenceRun {
  PlacedTensor output;
  Tensor final_state, denominator;
  Tensor saved_states;  ///< where the run saves
  RecurrenceTensors gradients;

  /// Everything that was written, in the order of the caller's elements.
  std::vector<std::pair<std::string, Tensor>> all() const {
    std::vector<std::pair<std::string, Tensor>> list{{"output", output.values()},
                                                     {"final state", final_state}};
    if (denominator) list.emplace_back("denominator", denominator);
    for (const auto& [name, tensor] : gradients.all()) {
      if (tensor->storage) list.emplace_back(std::string("gradient of ") + name, tensor->values());
    }
    return list;
  }
};

/// A workspace of NaN: what a kernel reads of it before it has written there is seen in its results.
class UnwrittenWorkspace {
 public:
  explicit UnwrittenWorkspace(std::size_t bytes)
      : memory_(DType::f64, {static_cast<std::int64_t>(bytes / sizeof(double)) + 1}) {
    memory_.fill(std::nan(""));
  }
  std::span<std::byte> bytes() {
    return {reinterpret_cast<std::byte*>(memory_.data<double>()),
            static_cast<std::size_t>(memory_.count()) * sizeof(double)};
  }

 private:
  Tensor memory_;
};
inline int threads_of(Executor* executor) {
  return (executor ? *executor : default_executor()).thread_count();
}

inline void run_forward(const RecurrencePlan& plan, const RecurrenceCase& c, const RecurrenceData& data,
                        RecurrenceRun& run, Executor* executor = nullptr) {
  const RecurrenceShape& s = plan.shape();
  run.output = PlacedTensor(c.dtype, {c.entries(), s.num_output_heads(), c.len(), s.value_dim}, c.placed);
  run.output.storage.fill(std::nan(""));
  run.final_state = unwritten_like(data.d_final_state);
  RecurrenceOutputs outputs{.output = run.output.written, .final_state = run.final_state};
  if (std::holds_alternative<KeySum>(c.spec.normalizer)) {
    run.denominator = unwritten(c.wide_dtype(), {c.entries(), s.num_output_heads(), c.len()});
    outputs.denominator = run.denominator;
  }
  if (run.saved_states) outputs.saved_states = run.saved_states;
  UnwrittenWorkspace workspace(workspace_bytes(plan, threads_of(executor)));
  recur(plan, data.views(), outputs, {.executor = executor, .workspace = workspace.bytes()});
}

/// The gradients of ⟨output, d_output⟩, where that is not empty, and with states of ⟨final_state,
/// d_final_state⟩.
inline void run_backward(const RecurrencePlan& plan, const RecurrenceCase& c, const RecurrenceData& data,
                         const ConstTensorView& d_output, RecurrenceRun& run, Executor* executor = nullptr) {
  run.gradients = tensors_of(c);
  for (const auto& [name, tensor] : run.gradients.all()) {
    if (tensor->storage) const_cast<PlacedTensor*>(tensor)->storage.fill(std::nan(""));
  }
  const RecurrenceTensors& g = run.gradients;
  UnwrittenWorkspace workspace(backward_workspace_bytes(plan, threads_of(executor)));
  recur_backward(plan, data.views(),
                 {.d_output = d_output,
                  .d_final_state = c.has_state ? ConstTensorView(data.d_final_state) : ConstTensorView(),
                  .output = run.output.view,
                  .denominator = run.denominator ? ConstTensorView(run.denominator) : ConstTensorView(),
                  .saved_states = run.saved_states ? ConstTensorView(run.saved_states) : ConstTensorView()},
                 {.query = g.query.written,
                  .key = g.key.written,
                  .value = g.value.written,
                  .log_decay = g.log_decay.written,
                  .beta = g.beta.written,
                  .erase = g.erase.written,
                  .a = g.a.written,
                  .b = g.b.written,
                  .bonus = g.bonus.written,
                  .self_weight = g.self_weight.written,
                  .initial_state = g.initial_state.written},
                 {.executor = executor, .workspace = workspace.bytes()});
}

enum class States : std::uint8_t { computed_again, saved };

/// Forward and backward. The loss is ⟨output, d_output⟩, and with states + ⟨final_state, d_final_state⟩.
inline RecurrenceRun run_case(const RecurrenceCase& c, const RecurrenceData& data, const std::string& kernel,
                              Executor* executor = nullptr, States states = States::computed_again) {
  const RecurrencePlan plan =
      make_recurrence_plan(c.spec, c.plan_shape(), {.dtype = c.dtype, .kernel = kernel});
  RecurrenceRun run;
  if (states == States::saved)
    run.saved_states = unwritten(c.wide_dtype(), {saved_states_size(plan, data.views())});
  run_forward(plan, c, data, run, executor);
  run_backward(plan, c, data, data.d_output.view, run, executor);
  return run;
}

}  // namespace fovea::testing
