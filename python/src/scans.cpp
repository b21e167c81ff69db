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

// What differs between both calls.
struct Scan {
  using Plan = SelectiveScanPlan;
  using Outputs = SelectiveScanOutputs;
  using Loss = SelectiveScanLoss;
  static constexpr auto& inputs = scan_inputs;
  static constexpr auto& gradients = scan_gradients;
  static constexpr auto forward = [](const auto&... of_call) { selective_scan(of_call...); };
  static constexpr auto backward = [](const auto&... of_call) { selective_scan_backward(of_call...); };
};
struct Conv {
  using Plan = CausalConvPlan;
  using Outputs = CausalConvOutputs;
  using Loss = CausalConvLoss;
  static constexpr auto& inputs = conv_inputs;
  static constexpr auto& gradients = conv_gradients;
  static constexpr auto forward = [](const auto&... of_call) { causal_conv(of_call...); };
  static constexpr auto backward = [](const auto&... of_call) { causal_conv_backward(of_call...); };
};

template <class Call>
void run(const typename Call::Plan& plan, const std::string& function, const nb::dict& given,
         const nb::dict& wanted, const Starts& starts, const std::optional<Present>& present) {
  Arrays arrays(function);
  auto inputs = filled(arrays, Call::inputs, given);
  set_tokens(inputs, starts, present);
  const auto outputs = filled(arrays, output_slots<typename Call::Outputs>, wanted);
  interruptible([&](Executor& executor) {
    Call::forward(plan, inputs, outputs, CallResources{.executor = &executor});
  });
}

template <class Call>
void run_backward(const typename Call::Plan& plan, const std::string& function, const nb::dict& given,
                  const nb::dict& loss_given, const nb::dict& wanted, const Starts& starts,
                  const std::optional<Present>& present) {
  Arrays arrays(function);
  auto inputs = filled(arrays, Call::inputs, given);
  set_tokens(inputs, starts, present);
  const auto loss = filled(arrays, loss_slots<typename Call::Loss>, loss_given);
  const auto gradients = filled(arrays, Call::gradients, wanted);
  interruptible([&](Executor& executor) {
    Call::backward(plan, inputs, loss, gradients, CallResources{.executor = &executor});
  });
}

// The methods of a plan, the same for both.
template <class Call>
void bind_plan(nb::module_& module, const char* name, const char* about) {
  using Plan = typename Call::Plan;
  nb::class_<Plan>(module, name, about)
      .def_prop_ro("kernel", [](const Plan& plan) { return std::string(plan.kernel()); })
      .def("explain", [](const Plan& plan) { return explain(plan); })
      .def("run", run<Call>, nb::arg("function"), nb::arg("inputs"), nb::arg("outputs"), nb::arg("starts"),
           nb::arg("present").none())
      .def("run_backward", run_backward<Call>, nb::arg("function"), nb::arg("inputs"), nb::arg("loss"),
           nb::arg("gradients"), nb::arg("starts"), nb::arg("present").none());
}

}  // namespace

void bind_scans(nb::module_& module) {
  bind_plan<Scan>(module, "SelectiveScanPlan", "make_selective_scan_plan's result.");
  bind_plan<Conv>(module, "CausalConvPlan", "make_causal_conv_plan's result.");
  module.def("make_selective_scan_plan", make_scan, nb::arg("step_size"), nb::arg("sizes"), nb::arg("dtype"));
  module.def("make_causal_conv_plan", make_conv, nb::arg("activation"), nb::arg("sizes"), nb::arg("dtype"));
}

}  // namespace fovea::python
