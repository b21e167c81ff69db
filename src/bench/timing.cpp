#include "bench/timing.h"

#include <time.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "fovea/core/philox.h"

namespace fovea::bench {

Tensor random_operand(Shape shape, std::uint64_t seed) {
  Tensor tensor(DType::f32, shape);
  PhiloxStream stream(seed);
  for (std::int64_t i = 0; i < tensor.count(); ++i)
    tensor.data<float>()[i] = static_cast<float>(2.0 * stream.next_uniform() - 1.0);
  return tensor;
}

Tensor rounded_to(DType dtype, const Tensor& x) {
  if (dtype == DType::f32) return x;
  Tensor rounded(dtype, x.shape());
  for (std::int64_t i = 0; i < x.count(); ++i) {
    const float value = x.data<float>()[i];
    if (dtype == DType::f64)
      rounded.data<double>()[i] = static_cast<double>(value);
    else if (dtype == DType::bf16)
      rounded.data<bfloat16>()[i] = bfloat16(value);
    else
      rounded.data<float16>()[i] = float16(value);
  }
  return rounded;
}

double best_seconds(std::int64_t repeat, const std::function<void()>& body, Clock clock) {
  const auto now = [clock] {
    timespec time{};
    clock_gettime(clock == Clock::cpu ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  double best = std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < repeat; ++i) {
    const double begin = now();
    body();
    best = std::min(best, now() - begin);
  }
  return best;
}

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0.0;
  const auto at =
      values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

double median(std::vector<double> values) {
  return quantile(std::move(values), 0.5);
}

}  // namespace fovea::bench
