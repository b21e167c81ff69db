// The scan of Mamba-1 and the short convolution: plans and their calls, with arrays by name as in
// recurrence.cpp.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "fovea/plan/causal_conv.h"
#include "fovea/plan/selective_scan.h"
#include "interrupt.h"
#include "module.h"
#include "slots.h"

namespace fovea::python {
namespace {

void expect_sizes(const char* function, const std::vector<std::int64_t>& sizes, std::size_t count) {
  if (sizes.size() != count)
    throw InvalidArgument(function, "sizes", std::to_string(count) + " sizes", std::to_string(sizes.size()));
}

SelectiveScanPlan make_scan(const std::string& step_size, const std::vector<std::int64_t>& sizes,
                            const std::string& dtype) {
  expect_sizes("make_selective_scan_plan", sizes, 5);
  if (step_size != "softplus" && step_size != "as_given")
    throw InvalidArgument("make_selective_scan_plan", "step_size", "softplus or as_given", step_size);
  return make_selective_scan_plan(
      {.step_size = step_size == "softplus" ? StepSize::softplus : StepSize::as_given},
      {.batch = sizes[0], .len = sizes[1], .channels = sizes[2], .groups = sizes[3], .state_dim = sizes[4]},
      {.dtype = dtype_named(dtype)});
}

CausalConvPlan make_conv(const std::string& activation, const std::vector<std::int64_t>& sizes,
                         const std::string& dtype) {
  expect_sizes("make_causal_conv_plan", sizes, 4);
  if (activation != "none" && activation != "silu")
    throw InvalidArgument("make_causal_conv_plan", "activation", "none or silu", activation);
  return make_causal_conv_plan(
      {.width = sizes[3], .activation = activation == "silu" ? ConvActivation::silu : ConvActivation::none},
      {.batch = sizes[0], .len = sizes[1], .channels = sizes[2]}, {.dtype = dtype_named(dtype)});
}

constexpr std::array<Slot<SelectiveScanInputs, ConstTensorView>, 9> scan_inputs{
    {{"x", &SelectiveScanInputs::x},
     {"delta", &SelectiveScanInputs::delta},
     {"a", &SelectiveScanInputs::a},
     {"b", &SelectiveScanInputs::b},
     {"c", &SelectiveScanInputs::c},
     {"d", &SelectiveScanInputs::d},
     {"z", &SelectiveScanInputs::z},
     {"delta_bias", &SelectiveScanInputs::delta_bias},
     {"initial_state", &SelectiveScanInputs::initial_state}}};
constexpr std::array<Slot<SelectiveScanGradients, TensorView>, 9> scan_gradients{
    {{"x", &SelectiveScanGradients::x},
     {"delta", &SelectiveScanGradients::delta},
     {"a", &SelectiveScanGradients::a},
     {"b", &SelectiveScanGradients::b},
     {"c", &SelectiveScanGradients::c},
     {"d", &SelectiveScanGradients::d},
     {"z", &SelectiveScanGradients::z},
     {"delta_bias", &SelectiveScanGradients::delta_bias},
     {"initial_state", &SelectiveScanGradients::initial_state}}};
constexpr std::array<Slot<CausalConvInputs, ConstTensorView>, 4> conv_inputs{
    {{"x", &CausalConvInputs::x},
     {"weight", &CausalConvInputs::weight},
     {"bias", &CausalConvInputs::bias},
     {"initial_state", &CausalConvInputs::initial_state}}};
constexpr std::array<Slot<CausalConvGradients, TensorView>, 4> conv_gradients{
    {{"x", &CausalConvGradients::x},
     {"weight", &CausalConvGradients::weight},
     {"bias", &CausalConvGradients::bias},
     {"initial_state", &CausalConvGradients::initial_state}}};

// Both calls have these outputs and losses.
template <class Outputs>
constexpr std::array<Slot<Outputs, TensorView>, 2> output_slots{
    {{"output", &Outputs::output}, {"final_state", &Outputs::final_state}}};
template <class Loss>
constexpr std::array<Slot<Loss, ConstTensorView>, 2> loss_slots{
    {{"d_output", &Loss::d_output}, {"d_final_state", &Loss::d_final_state}}};

void run_scan(const SelectiveScanPlan& plan, const std::string& function, const nb::dict& given,
              const nb::dict& wanted, const Starts& starts, const std::optional<Present>& present) {
  Arrays arrays(function);
  SelectiveScanInputs inputs = filled(arrays, scan_inputs, given);
  set_tokens(inputs, starts, present);
  const SelectiveScanOutputs outputs = filled(arrays, output_slots<SelectiveScanOutputs>, wanted);
  interruptible([&](Executor& executor) { selective_scan(plan, inputs, outputs, {.executor = &executor}); });
}

void run_scan_backward(const SelectiveScanPlan& plan, const std::string& function, const nb::dict& given,
                       const nb::dict& loss_given, const nb::dict& wanted, const Starts& starts,
                       const std::optional<Present>& present) {
  Arrays arrays(function);
  SelectiveScanInputs inputs = filled(arrays, scan_inputs, given);
  set_tokens(inputs, starts, present);
  const SelectiveScanLoss loss = filled(arrays, loss_slots<SelectiveScanLoss>, loss_given);
  const SelectiveScanGradients gradients = filled(arrays, scan_gradients, wanted);
  interruptible([&](Executor& executor) {
    selective_scan_backward(plan, inputs, loss, gradients, {.executor = &executor});
  });
}

void run_conv(const CausalConvPlan& plan, const std::string& function, const nb::dict& given,
              const nb::dict& wanted, const Starts& starts, const std::optional<Present>& present) {
  Arrays arrays(function);
  CausalConvInputs inputs = filled(arrays, conv_inputs, given);
  set_tokens(inputs, starts, present);
  const CausalConvOutputs outputs = filled(arrays, output_slots<CausalConvOutputs>, wanted);
  interruptible([&](Executor& executor) { causal_conv(plan, inputs, outputs, {.executor = &executor}); });
}

void run_conv_backward(const CausalConvPlan& plan, const std::string& function, const nb::dict& given,
                       const nb::dict& loss_given, const nb::dict& wanted, const Starts& starts,
                       const std::optional<Present>& present) {
  Arrays arrays(function);
  CausalConvInputs inputs = filled(arrays, conv_inputs, given);
  set_tokens(inputs, starts, present);
  const CausalConvLoss loss = filled(arrays, loss_slots<CausalConvLoss>, loss_given);
  const CausalConvGradients gradients = filled(arrays, conv_gradients, wanted);
  interruptible([&](Executor& executor) {
    causal_conv_backward(plan, inputs, loss, gradients, {.executor = &executor});
  });
}

// The methods of a plan, the same for both.
template <class Plan, class Run, class Backward>
void bind_plan(nb::module_& module, const char* name, const char* about, Run run, Backward backward) {
  nb::class_<Plan>(module, name, about)
      .def_prop_ro("kernel", [](const Plan& plan) { return std::string(plan.kernel()); })
      .def("explain", [](const Plan& plan) { return explain(plan); })
      .def("run", run, nb::arg("function"), nb::arg("inputs"), nb::arg("outputs"), nb::arg("starts"),
           nb::arg("present").none())
      .def("run_backward", backward, nb::arg("function"), nb::arg("inputs"), nb::arg("loss"),
           nb::arg("gradients"), nb::arg("starts"), nb::arg("present").none());
}

}  // namespace

void bind_scans(nb::module_& module) {
  bind_plan<SelectiveScanPlan>(module, "SelectiveScanPlan", "make_selective_scan_plan's result.", run_scan,
                               run_scan_backward);
  bind_plan<CausalConvPlan>(module, "CausalConvPlan", "make_causal_conv_plan's result.", run_conv,
                            run_conv_backward);
  module.def("make_selective_scan_plan", make_scan, nb::arg("step_size"), nb::arg("sizes"), nb::arg("dtype"));
  module.def("make_causal_conv_plan", make_conv, nb::arg("activation"), nb::arg("sizes"), nb::arg("dtype"));
}

}  // namespace fovea::python
