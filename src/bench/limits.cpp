#include "bench/limits.h"

#include <algorithm>

#include "bench/probes.h"

namespace fovea::bench {

ProfileLimits profile_limits(int threads) {
  // The best of three: a limit is what the machine can do at most, and other programs slow a probe down.
  const auto best = [](Probe probe, const ProbeOptions& options) {
    double rate = 0.0;
    for (int n = 0; n < 3; ++n) rate = std::max(rate, measure(probe, options));
    return rate;
  };
  const auto multiply_adds = [&](Probe probe) {
    return best(probe, {.threads = threads, .seconds = 0.01}) / 2.0;
  };
  ProfileLimits limits{.multiply_adds_per_second = multiply_adds(Probe::fma_f32),
                       .bf16_multiply_adds_per_second = multiply_adds(best_bf16_products()),
                       .int8_multiply_adds_per_second = multiply_adds(best_int8_products()),
                       .reading = {}};
  // From a first-level cache to memory. Beyond the last entry its rate stands. Writing has ports of its own,
  // so work that writes what it reads may move more bytes than work that only reads.
  for (std::int64_t bytes = std::int64_t{16} << 10; bytes <= std::int64_t{64} << 20; bytes *= 4) {
    const ProbeOptions options{.threads = threads, .seconds = 0.005, .footprint = bytes};
    limits.reading.push_back(
        {static_cast<double>(bytes), std::max(best(Probe::read, options), best(Probe::update, options))});
  }
  return limits;
}

}  // namespace fovea::bench
