// For the tests of mechanisms: central differences in double, random losses, and plain loops to compare with.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "fovea/core/executor.h"
#include "plan/cases.h"

namespace fovea::testing {

/// Σ x ∘ y: a loss whose derivative by x is y.
inline double inner_product(const Tensor& x, const Tensor& y) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < x.count(); ++i) sum += element(x, i) * element(y, i);
  return sum;
}

/// The same numbers in f64.
inline Tensor in_double(const Tensor& x) {
  Tensor wide(DType::f64, x.shape());
  for (std::int64_t i = 0; i < x.count(); ++i) set_element(wide, i, element(x, i));
  return wide;
}

/// ‖got - want‖ / ‖want‖, Frobenius.
inline double relative_distance(const Tensor& got, const Tensor& want) {
  double difference = 0, size = 0;
  for (std::int64_t i = 0; i < want.count(); ++i) {
    const double x = element(want, i), e = element(got, i) - x;
    difference += e * e;
    size += x * x;
  }
  return std::sqrt(difference / size);
}

/// Filled with NaN, so that an element that is never written is noticed.
inline Tensor unwritten(DType dtype, Shape shape) {
  Tensor tensor(dtype, shape);
  tensor.fill(std::numeric_limits<double>::quiet_NaN());
  return tensor;
}
inline Tensor unwritten_like(const Tensor& tensor) {
  return unwritten(tensor.dtype(), tensor.shape());
}

/// An f64 operand of a loss, and the derivative to be checked.
struct Derivative {
  std::string name;
  Tensor operand, gradient;
};

/// Checks up to `most` elements of every operand. Operands lie in [-1, 1) and losses are sums of some hundred
/// terms. So h² times a third derivative of order 10², plus rounding eps·|loss| / h, stays below 1e-7.
template <class Loss>
void expect_derivatives(Loss&& loss, const std::vector<Derivative>& derivatives, std::int64_t most = 40) {
  for (const auto& [name, operand, gradient] : derivatives) {
    ASSERT_EQ(to_string(operand.shape()), to_string(gradient.shape())) << name;
    for (std::int64_t i = 0; i < operand.count(); i += 1 + operand.count() / most) {
      const double at = element(operand, i), h = 1e-5;
      set_element(operand, i, at + h);
      const double up = loss();
      set_element(operand, i, at - h);
      const double down = loss();
      set_element(operand, i, at);
      ASSERT_NEAR((up - down) / (2 * h), element(gradient, i), 1e-7 * (1 + std::abs(element(gradient, i))))
          << name << "[" << i << "]";
    }
  }
}

inline void expect_near(const Tensor& got, const Tensor& want, double tolerance, const std::string& name) {
  ASSERT_EQ(to_string(got.shape()), to_string(want.shape())) << name;
  for (std::int64_t i = 0; i < got.count(); ++i) {
    if (element(got, i) == element(want, i)) continue;  // infinities too
    ASSERT_NEAR(element(got, i), element(want, i), tolerance) << name << "[" << i << "]";
  }
}
inline void expect_same_bits(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t n = 0; n < got.size(); ++n)
    ASSERT_EQ(std::memcmp(got[n].raw(), want[n].raw(), want[n].bytes()), 0) << "result " << n;
}
/// Compares the results of run(executor) for several thread counts.
template <class Run>
void expect_same_bits_for_every_thread_count(Run&& run) {
  const std::vector<Tensor> one = run(serial_executor());
  for (const int threads : {2, 3, 5}) {
    const auto pool = make_thread_pool(threads);
    expect_same_bits(run(*pool), one);
  }
}

/// Expects call() to throw InvalidArgument(function, argument) with texts for what was expected and what
/// came.
template <class Call>
void expect_refused(Call&& call, const std::string& function, const std::string& argument) {
  try {
    call();
    ADD_FAILURE() << "accepted: " << argument;
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.function(), function) << error.what();
    EXPECT_EQ(error.argument(), argument) << error.what();
    EXPECT_FALSE(error.expected().empty());
    EXPECT_FALSE(error.got().empty());
  }
}

/// exp(s_j) / Σ exp(s_j), by its definition; -inf is a hidden key.
inline std::vector<double> softmax(std::vector<double> scores) {
  double sum = 0.0;
  for (double& score : scores) sum += score = std::exp(score);
  for (double& score : scores) score = sum == 0.0 ? 0.0 : score / sum;
  return scores;
}

}  // namespace fovea::testing
