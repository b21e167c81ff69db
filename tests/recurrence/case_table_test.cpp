// Every kernel against the reference on the case table, forward and backward.
#include "recurrence/case_table.h"

#include <gtest/gtest.h>

#include "recurrence/kernels.h"

namespace fovea::testing {
namespace {

// A result is a sum of at most len · key_dim (or value_dim) products of numbers near 1, each rounded to eps.
// A state carries the errors of the tokens before; delta and low-rank writes multiply them by at most 1. The
// errors are independent, so they grow with the root of their number; the factor covers a chain of products
// through the solve. With a normaliser, the denominator may be far below its terms. A delta write whose
// erasure is not its key brings it near 0: the worst case of those takes 65 of the 128, in f64 without fused
// multiply-adds.
double tolerance(const RecurrenceCase& c) {
  const double eps = c.dtype == DType::f64   ? 0x1p-52
                     : c.dtype == DType::f32 ? 0x1p-23
                     : c.dtype == DType::f16 ? 0x1p-10
                                             : 0x1p-7;
  const auto terms = static_cast<double>(c.len() + c.shape.key_dim + c.shape.value_dim);
  const bool sums = std::holds_alternative<KeySum>(c.spec.normalizer),
             erases = std::holds_alternative<DeltaWrite>(c.spec.write) && c.delta_by != DeltaBy::beta;
  return (!sums ? 16.0 : erases ? 128.0 : 64.0) * eps * std::sqrt(terms);
}

// Describes where results differ by more than the tolerance times the largest element; empty if nowhere.
std::string difference(const RecurrenceRun& got, const RecurrenceRun& want, double tolerance) {
  const auto a = got.all(), b = want.all();
  for (std::size_t n = 0; n < b.size(); ++n) {
    double largest = 1;
    for (std::int64_t i = 0; i < b[n].second.count(); ++i)
      largest = std::max(largest, std::abs(element(b[n].second, i)));
    for (std::int64_t i = 0; i < b[n].second.count(); ++i) {
      const double x = element(a[n].second, i), y = element(b[n].second, i);
      if (!(std::abs(x - y) <= tolerance * largest))
        return b[n].first + "[" + std::to_string(i) + "] is " + std::to_string(x) + ", the reference says " +
               std::to_string(y) + "; the largest is " + std::to_string(largest);
    }
  }
  return {};
}

class RecurrenceKernels : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Kernel, RecurrenceKernels, ::testing::ValuesIn(runnable_recurrence_kernels()),
                         kernel_name);

TEST_P(RecurrenceKernels, AgreeWithTheReference) {
  if (GetParam() == "reference") GTEST_SKIP() << "it is compared with central differences";
  for (const RecurrenceCase& c : recurrence_case_table()) {
    const RecurrenceData data(c);
    EXPECT_EQ(difference(run_case(c, data, GetParam()), run_case(c, data, "reference"), tolerance(c)), "")
        << c.name;
  }
}

// Sums of gates grow without bound, and a running f32 sum of them would lose the decays of single tokens. The
// state forgets, so that errors of old tokens fade: the tolerance does not grow with the length.
TEST_P(RecurrenceKernels, AgreeOverLongSequencesOfWeakAndStrongDecays) {
  if (GetParam() == "reference") GTEST_SKIP() << "it is compared with central differences";
  for (const Decay& decay : {Decay(ScalarDecay{}), Decay(KeyDecay{})}) {
    for (const double strongest : {-0.02, -8.0}) {
      RecurrenceCase c{.spec = {.decay = decay}, .weakest_gate = -0.001, .strongest_gate = strongest};
      c.shape = {.len = 65536, .key_dim = 8, .value_dim = 4};
      const RecurrenceData data(c);
      EXPECT_EQ(difference(run_case(c, data, GetParam()), run_case(c, data, "reference"), 64 * 0x1p-23), "")
          << to_string(c.spec) << " to " << strongest;
    }
  }
}

}  // namespace
}  // namespace fovea::testing
