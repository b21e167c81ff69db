// The reference against central differences: every gradient of every case.
#include <gtest/gtest.h>

#include "recurrence/case_table.h"

namespace fovea::testing {
namespace {

// Tokens that are left out hold NaN, which must not be perturbed.
void expect_differences(const RecurrenceCase& c, const RecurrenceData& data, const RecurrenceRun& run) {
  const RecurrencePlan plan =
      make_recurrence_plan(c.spec, c.plan_shape(), {.dtype = DType::f64, .kernel = "reference"});
  const auto loss = [&] {
    RecurrenceRun again;
    run_forward(plan, c, data, again);
    double sum = 0;
    const Tensor output = again.output.values(), d_output = data.d_output.values();
    for (std::int64_t i = 0; i < output.count(); ++i) {
      if (std::isfinite(element(d_output, i))) sum += element(output, i) * element(d_output, i);
    }
    return c.has_state ? sum + inner_product(again.final_state, data.d_final_state) : sum;
  };
  const auto inputs = data.inputs.all(), gradients = run.gradients.all();
  for (std::size_t n = 0; n < inputs.size(); ++n) {
    const Tensor& operand = inputs[n].second->storage;
    const Tensor& gradient = gradients[n].second->storage;
    for (std::int64_t i = 0; operand && i < operand.count(); i += 1 + operand.count() / 11) {
      const double at = element(operand, i), h = 1e-5;
      if (std::isnan(at)) {
        ASSERT_EQ(element(gradient, i), 0) << c.name << ": " << inputs[n].first << "[" << i << "]";
        continue;
      }
      set_element(operand, i, at + h);
      const double up = loss();
      set_element(operand, i, at - h);
      const double down = loss();
      set_element(operand, i, at);
      ASSERT_NEAR((up - down) / (2 * h), element(gradient, i), 1e-6 * (1 + std::abs(element(gradient, i))))
          << c.name << ": " << inputs[n].first << "[" << i << "]";
    }
  }
}

TEST(RecurrenceReference, GradientsAreCentralDifferences) {
  for (const RecurrenceCase& c : recurrence_difference_cases()) {
    const RecurrenceData data(c);
    expect_differences(c, data, run_case(c, data, "reference"));
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace fovea::testing
