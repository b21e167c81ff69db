// What the tests of the causal convolution and of the selective scan share: sequences of [batch, len,
// channels], packed or with padding, and comparisons of named results.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "recurrence/cases.h"

namespace fovea::testing {

using Named = std::vector<std::pair<std::string, Tensor>>;

/// The sequences of a case: `batch` of `len` tokens, or four of several lengths, one of them empty.
struct ChannelSequences {
  std::int64_t batch = 1, len = 0;
  Packing packing = Packing::padded;

  bool packed() const { return packing == Packing::packed || packing == Packing::packed_and_masked; }
  bool masked() const { return packing == Packing::masked || packing == Packing::packed_and_masked; }
  std::int64_t entries() const { return packed() ? 1 : batch; }
  std::int64_t tokens() const { return packed() ? batch * len : len; }
  std::vector<std::int64_t> starts() const {
    if (!packed()) return {};
    const std::int64_t count = tokens();
    return {0, count / 5, count / 5, count - count / 3, count};
  }
  std::int64_t sequences() const { return packed() ? 4 : batch; }
  std::vector<std::uint8_t> present(PhiloxStream& random) const {
    std::vector<std::uint8_t> list;
    for (std::int64_t i = 0; masked() && i < entries() * tokens(); ++i)
      list.push_back(random.next_below(4) > 0);
    return list;
  }
};

/// Uniform in [low, high).
inline Tensor drawn(DType dtype, const Shape& shape, PhiloxStream& random, double low = -1, double high = 1) {
  Tensor x = Tensor::zeros(dtype, shape);
  for (std::int64_t i = 0; i < x.count(); ++i)
    set_element(x, i, low + (high - low) * static_cast<double>(random.next_uniform()));
  return x;
}

/// Puts NaN where a token of [entries, len, ...] is left out.
inline void poison(const Tensor& x, const std::vector<std::uint8_t>& present) {
  if (present.empty()) return;
  const std::int64_t row = x.count() / static_cast<std::int64_t>(present.size());
  for (std::int64_t i = 0; i < x.count(); ++i) {
    if (!present[static_cast<std::size_t>(i / row)])
      set_element(x, i, std::numeric_limits<double>::quiet_NaN());
  }
}

/// The numbers of rounding of a dtype, relative.
inline double epsilon_of(DType dtype) {
  return dtype == DType::f64   ? 0x1p-52
         : dtype == DType::f32 ? 0x1p-23
         : dtype == DType::f16 ? 0x1p-10
                               : 0x1p-7;
}

/// Describes where results differ by more than the tolerance times the largest element, or 1; empty if
/// nowhere.
inline std::string difference(const Named& got, const Named& want, double tolerance) {
  for (std::size_t n = 0; n < want.size(); ++n) {
    double largest = 1;
    for (std::int64_t i = 0; i < want[n].second.count(); ++i)
      largest = std::max(largest, std::abs(element(want[n].second, i)));
    for (std::int64_t i = 0; i < want[n].second.count(); ++i) {
      const double x = element(got[n].second, i), y = element(want[n].second, i);
      if (!(std::abs(x - y) <= tolerance * largest))
        return want[n].first + "[" + std::to_string(i) + "] is " + std::to_string(x) +
               ", the reference says " + std::to_string(y) + "; the largest is " + std::to_string(largest);
    }
  }
  return {};
}

/// Central differences of loss() by every operand; what is left out holds NaN and has a gradient of 0.
inline void expect_central_differences(const std::function<double()>& loss, const Named& operands,
                                       const Named& gradients, const std::string& name) {
  for (std::size_t n = 0; n < operands.size(); ++n) {
    const Tensor &operand = operands[n].second, &gradient = gradients[n].second;
    for (std::int64_t i = 0; i < operand.count(); i += 1 + operand.count() / 11) {
      const double at = element(operand, i), h = 1e-5;
      if (std::isnan(at)) {
        ASSERT_EQ(element(gradient, i), 0) << name << ": " << operands[n].first << "[" << i << "]";
        continue;
      }
      set_element(operand, i, at + h);
      const double up = loss();
      set_element(operand, i, at - h);
      const double down = loss();
      set_element(operand, i, at);
      ASSERT_NEAR((up - down) / (2 * h), element(gradient, i), 1e-6 * (1 + std::abs(element(gradient, i))))
          << name << ": " << operands[n].first << "[" << i << "]";
    }
  }
}

/// Σ x ∘ y without the tokens that are left out.
inline double finite_product(const Tensor& x, const Tensor& y) {
  double sum = 0;
  for (std::int64_t i = 0; i < x.count(); ++i) {
    if (std::isfinite(element(y, i))) sum += element(x, i) * element(y, i);
  }
  return sum;
}

}  // namespace fovea::testing
