// Every kernel against the reference on the case table, forward and backward.
#include "recurrence/case_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "recurrence/kernels.h"

namespace fovea::testing {
namespace {

double eps_of(const RecurrenceCase& c) {
  return c.dtype == DType::f64   ? 0x1p-52
         : c.dtype == DType::f32 ? 0x1p-23
         : c.dtype == DType::f16 ? 0x1p-10
                                 : 0x1p-7;
}

// How far the results of the reference move, as a share of the largest element of each, if every input is off
// by eps or is not.
double moved(const RecurrenceCase& c, const RecurrenceRun& reference) {
  const RecurrenceData off(c);
  PhiloxStream random(c.seed + 1);
  for (const auto& [name, tensor] : off.inputs.all()) {
    for (std::int64_t i = 0; tensor->storage && i < tensor->storage.count(); ++i) {
      const double sign = random.next_below(2) == 0 ? -1.0 : 1.0;
      set_element(tensor->storage, i, element(tensor->storage, i) * (1.0 + sign * eps_of(c)));
    }
  }
  const auto a = run_case(c, off, "reference").all(), b = reference.all();
  double most = 0;
  for (std::size_t n = 0; n < b.size(); ++n) {
    double largest = 1, distance = 0;
    for (std::int64_t i = 0; i < b[n].second.count(); ++i) {
      const double x = element(a[n].second, i), y = element(b[n].second, i);
      largest = std::max(largest, std::abs(y));
      distance = std::max(distance, std::abs(x - y));
    }
    most = std::max(most, distance / largest);
  }
  return most;
}

// A result is a sum of at most len · key_dim (or value_dim) products of numbers near 1, each rounded to eps.
// A state carries the errors of the tokens before; delta and low-rank writes multiply them by at most 1. The
// errors are independent, so they grow with the root of their number; the factor of 16 covers a chain of
// products through the solve.
//
// A normaliser divides by a denominator that may be near 0, where a delta write erases by other rows than its
// keys. How ill conditioned a case is follows from the reference: the same factor times what its results
// move by if its inputs are off by eps.
//
// In 16 bits that bound would pass results that are wrong by as much as the largest element. There inputs and
// results are rounded once, and one kernel rounds the operands of its products. So it is four times what the
// results move by if each input is off by two roundings. With a normaliser backward reads the rounded output
// too, and the factor is 16.
double tolerance(const RecurrenceCase& c, const RecurrenceRun& reference) {
  const auto terms = static_cast<double>(c.len() + c.shape.key_dim + c.shape.value_dim);
  const double rounding = eps_of(c) * std::sqrt(terms);
  const bool sums = std::holds_alternative<KeySum>(c.spec.normalizer);
  if (size_of(c.dtype) == 2) return (sums ? 16.0 : 4.0) * std::max(eps_of(c), moved(c, reference));
  return 16.0 * (sums ? std::max(rounding, moved(c, reference)) : rounding);
}

// The case table, in bf16 for a kernel that takes nothing else.
std::vector<RecurrenceCase> cases_for(const std::string& kernel) {
  std::vector<RecurrenceCase> cases = recurrence_case_table();
  for (RecurrenceCase& c : cases) {
    if (dtype_for(kernel) == DType::bf16) c.dtype = DType::bf16;
  }
  return cases;
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
  for (const RecurrenceCase& c : cases_for(GetParam())) {
    const RecurrenceData data(c);
    const RecurrenceRun reference = run_case(c, data, "reference");
    EXPECT_EQ(difference(run_case(c, data, GetParam()), reference, tolerance(c, reference)), "") << c.name;
  }
}

TEST_P(RecurrenceKernels, FeaturesAndSumsOfKeysAgreeWithTheReference) {
  if (GetParam() == "reference") GTEST_SKIP() << "it is compared with central differences";
  for (const RecurrenceCase& c : mapped_recurrence_cases()) {
    if (!runs(GetParam(), c.dtype)) continue;
    const RecurrenceData data(c);
    const RecurrenceRun reference = run_case(c, data, "reference");
    EXPECT_EQ(difference(run_case(c, data, GetParam()), reference, tolerance(c, reference)), "") << c.name;
    if (GetParam().find("chunked") == std::string::npos) continue;
    const RecurrenceRun saved = run_case(c, data, GetParam(), nullptr, States::saved);
    EXPECT_EQ(difference(saved, reference, tolerance(c, reference)), "") << c.name << " with saved states";
  }
}

// Rows that lie a KiB or more apart are copied, others are read where they are.
TEST_P(RecurrenceKernels, AgreeWhereRowsLieFarApart) {
  if (GetParam() == "reference") GTEST_SKIP() << "it is compared with central differences";
  for (const Write& write :
       {Write(AdditiveWrite{}), Write(DeltaWrite{}), Write(DiagonalPlusLowRankWrite{})}) {
    RecurrenceCase c{.spec = {.decay = ScalarDecay{}, .write = write}, .placed = Placed::heads_inside};
    c.dtype = dtype_for(GetParam());
    c.shape = {.num_query_heads = 4, .num_key_heads = 4, .num_heads = 4, .len = 40, .key_dim = 64};
    const RecurrenceData data(c);
    const RecurrenceRun reference = run_case(c, data, "reference");
    EXPECT_EQ(difference(run_case(c, data, GetParam()), reference, tolerance(c, reference)), "")
        << to_string(c.spec);
  }
}

TEST_P(RecurrenceKernels, SavedStatesGiveTheBitsOfStatesComputedAgain) {
  if (GetParam().find("chunked") == std::string::npos) GTEST_SKIP() << "it saves none";
  for (const RecurrenceCase& c : cases_for(GetParam())) {
    const RecurrenceData data(c);
    const auto results = [&](States states) {
      std::vector<Tensor> tensors;
      for (const auto& [name, tensor] : run_case(c, data, GetParam(), nullptr, states).all())
        tensors.push_back(tensor);
      return tensors;
    };
    SCOPED_TRACE(c.name);
    expect_same_bits(results(States::saved), results(States::computed_again));
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
      c.dtype = dtype_for(GetParam());
      const RecurrenceData data(c);
      const double tolerance = c.dtype == DType::f32 ? 64 * 0x1p-23 : 4 * 0x1p-7;
      EXPECT_EQ(difference(run_case(c, data, GetParam()), run_case(c, data, "reference"), tolerance), "")
          << to_string(c.spec) << " to " << strongest;
    }
  }
}

// Decays of a chunk down to 2^-20, by which rows are divided: products of quotients would be infinite where
// no result is. Reference and kernels agree as if the numbers were near 1.
// Where no number of the reference is near its limit, each tensor of the kernel is within 64 roundings of it.
void expect_the_reference(const RecurrenceCase& c, const RecurrenceData& data, const std::string& kernel) {
  const RecurrenceRun got = run_case(c, data, kernel), want = run_case(c, data, "reference");
  const auto a = got.all(), b = want.all();
  for (std::size_t n = 0; n < b.size(); ++n) {
    double largest = 0, distance = 0;
    for (std::int64_t i = 0; i < b[n].second.count(); ++i) {
      largest = std::max(largest, std::abs(element(b[n].second, i)));
      const double off = std::abs(element(a[n].second, i) - element(b[n].second, i));
      if (!(off <= distance) && !std::isnan(distance)) distance = off;  // NaN stays
    }
    ASSERT_LT(largest, 3e38) << b[n].first;
    EXPECT_LE(distance, 64 * eps_of(c) * largest) << b[n].first;
  }
}

// Products of a query's derivative with the values of later tokens overflow. Nothing reads them.
TEST_P(RecurrenceKernels, AgreeWhereProductsOutOfReachOverflow) {
  if (GetParam() == "reference") GTEST_SKIP() << "it is compared with central differences";
  RecurrenceCase c{.spec = {.decay = KeyDecay{}}, .strongest_gate = -0.8};
  c.weakest_gate = -0.7;
  c.has_state = false;
  c.dtype = dtype_for(GetParam());
  c.shape = {.batch = 1, .num_query_heads = 1, .num_key_heads = 1, .num_heads = 1, .len = 40, .key_dim = 16};
  const RecurrenceData data(c);
  const auto scale = [&](const PlacedTensor& tensor, auto&& factor_of) {
    const std::int64_t width = tensor.storage.count() / 40;
    for (std::int64_t i = 0; i < tensor.storage.count(); ++i)
      set_element(tensor.storage, i, element(tensor.storage, i) * factor_of(i / width));
  };
  scale(data.d_output, [](std::int64_t token) { return token < 2 ? 1e10 : 1e-20; });
  scale(data.inputs.value, [](std::int64_t token) { return token == 2 || token == 3 ? 1e30 : 1.0; });
  expect_the_reference(c, data, GetParam());
}

TEST_P(RecurrenceKernels, AgreeWhereRowsAreLargeAndDecaysMild) {
  if (GetParam() == "reference") GTEST_SKIP() << "it is compared with central differences";
  struct Factors {
    double query, key, value, d_output;
  };
  constexpr Factors additive[]{
      {1e-10, 1e36, 1e-10, 1}, {1e22, 1e12, 1e-10, 1e-10}, {1, 1, 1e35, 1e-20}, {1, 1, 1, 1e35}};
  constexpr Factors delta[]{{1, 1, 1e35, 1e-20}, {1e34, 1, 1e-10, 1e-10}, {1, 1, 1, 1e33}};
  for (const Write& write : {Write(AdditiveWrite{}), Write(DeltaWrite{})}) {
    const bool adds = write.index() == 0;
    for (const Factors& by : adds ? std::span<const Factors>(additive) : std::span<const Factors>(delta)) {
      RecurrenceCase c{.spec = {.decay = KeyDecay{}, .write = write}, .strongest_gate = -0.8};
      c.weakest_gate = -0.7;
      c.has_state = false;
      c.dtype = dtype_for(GetParam());
      c.shape = {.num_query_heads = 2, .num_key_heads = 1, .num_heads = 1, .len = 40, .key_dim = 16};
      const RecurrenceData data(c);
      const RecurrenceTensors& x = data.inputs;
      for (const auto& [tensor, factor] :
           {std::pair(&x.query, by.query), std::pair(&x.key, by.key), std::pair(&x.value, by.value),
            std::pair(&data.d_output, by.d_output)}) {
        for (std::int64_t i = 0; i < tensor->storage.count(); ++i)
          set_element(tensor->storage, i, element(tensor->storage, i) * factor);
      }
      SCOPED_TRACE(to_string(c.spec) + ", keys times " + std::to_string(by.key));
      expect_the_reference(c, data, GetParam());
    }
  }
}

}  // namespace
}  // namespace fovea::testing
