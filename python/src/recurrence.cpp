// Recurrences: plans and their calls. Python passes arrays by the names of RecurrenceInputs ("log_decay",
// "beta"); a gradient has the name of its array.
#include "fovea/plan/recurrence.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arrays.h"
#include "fovea/core/error.h"
#include "interrupt.h"
#include "module.h"
#include "slots.h"

namespace fovea::python {
namespace {

// The value of Variant at the place that `name` has among `names`.
template <class Variant, std::size_t n, std::size_t at = 0>
Variant named_part(const char* argument, const std::array<const char*, n>& names, const std::string& name) {
  static_assert(n == std::variant_size_v<Variant>);
  if constexpr (at == n)
    throw InvalidArgument("make_recurrence_plan", argument, "a part of recurrences", name);
  else
    return name == names[at] ? Variant(std::in_place_index<at>)
                             : named_part<Variant, n, at + 1>(argument, names, name);
}

RecurrencePlan make(const std::vector<std::string>& parts, double epsilon, std::optional<double> scale,
                    const std::vector<std::int64_t>& sizes, const std::string& dtype,
                    const std::string& kernel) {
  if (parts.size() != 5)
    throw InvalidArgument("make_recurrence_plan", "parts", "5 names", std::to_string(parts.size()));
  if (sizes.size() != 7)
    throw InvalidArgument("make_recurrence_plan", "sizes", "7 sizes", std::to_string(sizes.size()));
  RecurrenceSpec spec{
      .feature_map = named_part<FeatureMap, 2>("feature_map", {"identity", "elu+1"}, parts[0]),
      .decay = named_part<Decay, 4>("decay", {"none", "constant", "scalar", "key"}, parts[1]),
      .write = named_part<Write, 3>("write", {"additive", "delta", "diagonal-plus-low-rank"}, parts[2]),
      .read = named_part<Read, 3>("read", {"after-write", "before-decay", "self-weight"}, parts[3]),
      .normalizer = named_part<StateNormalizer, 2>("normalizer", {"none", "sum"}, parts[4]),
      .scale = scale};
  if (auto* sum = std::get_if<KeySum>(&spec.normalizer)) sum->epsilon = epsilon;
  return make_recurrence_plan(spec,
                              {.batch = sizes[0],
                               .num_query_heads = sizes[1],
                               .num_key_heads = sizes[2],
                               .num_heads = sizes[3],
                               .len = sizes[4],
                               .key_dim = sizes[5],
                               .value_dim = sizes[6]},
                              {.dtype = dtype_named(dtype), .kernel = kernel});
}

constexpr std::array<Slot<RecurrenceInputs, ConstTensorView>, 11> input_slots{
    {{"query", &RecurrenceInputs::query},
     {"key", &RecurrenceInputs::key},
     {"value", &RecurrenceInputs::value},
     {"log_decay", &RecurrenceInputs::log_decay},
     {"beta", &RecurrenceInputs::beta},
     {"erase", &RecurrenceInputs::erase},
     {"a", &RecurrenceInputs::a},
     {"b", &RecurrenceInputs::b},
     {"bonus", &RecurrenceInputs::bonus},
     {"self_weight", &RecurrenceInputs::self_weight},
     {"initial_state", &RecurrenceInputs::initial_state}}};

constexpr std::array<Slot<RecurrenceGradients, TensorView>, 11> gradient_slots{
    {{"query", &RecurrenceGradients::query},
     {"key", &RecurrenceGradients::key},
     {"value", &RecurrenceGradients::value},
     {"log_decay", &RecurrenceGradients::log_decay},
     {"beta", &RecurrenceGradients::beta},
     {"erase", &RecurrenceGradients::erase},
     {"a", &RecurrenceGradients::a},
     {"b", &RecurrenceGradients::b},
     {"bonus", &RecurrenceGradients::bonus},
     {"self_weight", &RecurrenceGradients::self_weight},
     {"initial_state", &RecurrenceGradients::initial_state}}};

constexpr std::array<Slot<RecurrenceOutputs, TensorView>, 4> output_slots{
    {{"output", &RecurrenceOutputs::output},
     {"final_state", &RecurrenceOutputs::final_state},
     {"denominator", &RecurrenceOutputs::denominator},
     {"saved_states", &RecurrenceOutputs::saved_states}}};

constexpr std::array<Slot<RecurrenceLoss, ConstTensorView>, 5> loss_slots{
    {{"d_output", &RecurrenceLoss::d_output},
     {"d_final_state", &RecurrenceLoss::d_final_state},
     {"output", &RecurrenceLoss::output},
     {"denominator", &RecurrenceLoss::denominator},
     {"saved_states", &RecurrenceLoss::saved_states}}};

std::int64_t saved_size(const RecurrencePlan& plan, const std::string& function, const nb::dict& given,
                        const Starts& starts, const std::optional<Present>& present) {
  Arrays arrays(function);
  RecurrenceInputs inputs = filled(arrays, input_slots, given);
  set_tokens(inputs, starts, present);
  return saved_states_size(plan, inputs);
}

void run(const RecurrencePlan& plan, const std::string& function, const nb::dict& given,
         const nb::dict& wanted, const Starts& starts, const std::optional<Present>& present) {
  Arrays arrays(function);
  RecurrenceInputs inputs = filled(arrays, input_slots, given);
  set_tokens(inputs, starts, present);
  const RecurrenceOutputs outputs = filled(arrays, output_slots, wanted);
  interruptible([&](Executor& executor) { recur(plan, inputs, outputs, {.executor = &executor}); });
}

void run_backward(const RecurrencePlan& plan, const std::string& function, const nb::dict& given,
                  const nb::dict& loss_given, const nb::dict& wanted, const Starts& starts,
                  const std::optional<Present>& present) {
  Arrays arrays(function);
  RecurrenceInputs inputs = filled(arrays, input_slots, given);
  set_tokens(inputs, starts, present);
  const RecurrenceLoss loss = filled(arrays, loss_slots, loss_given);
  const RecurrenceGradients gradients = filled(arrays, gradient_slots, wanted);
  interruptible(
      [&](Executor& executor) { recur_backward(plan, inputs, loss, gradients, {.executor = &executor}); });
}

}  // namespace

void bind_recurrence(nb::module_& module) {
  nb::class_<RecurrencePlan>(module, "RecurrencePlan",
                             "make_recurrence_plan's result: a spec, a shape, and the kernel that runs.")
      .def_prop_ro("kernel", [](const RecurrencePlan& plan) { return std::string(plan.kernel()); })
      .def_prop_ro("chunk", &RecurrencePlan::chunk)
      .def("explain", [](const RecurrencePlan& plan) { return explain(plan); })
      .def("saved_states_size", saved_size, nb::arg("function"), nb::arg("inputs"), nb::arg("starts"),
           nb::arg("present").none())
      .def("recur", run, nb::arg("function"), nb::arg("inputs"), nb::arg("outputs"), nb::arg("starts"),
           nb::arg("present").none())
      .def("recur_backward", run_backward, nb::arg("function"), nb::arg("inputs"), nb::arg("loss"),
           nb::arg("gradients"), nb::arg("starts"), nb::arg("present").none());
  module.def("make_recurrence_plan", make, nb::arg("parts"), nb::arg("epsilon"), nb::arg("scale").none(),
             nb::arg("sizes"), nb::arg("dtype"), nb::arg("kernel"));
  module.def("list_recurrence_kernels", list_recurrence_kernels);
}

}  // namespace fovea::python
