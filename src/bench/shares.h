// What the benches of whole models have in common: numbers for their data, and where the time of a run went.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bench/probes.h"
#include "fovea/autograd/operands.h"
#include "fovea/autograd/packed.h"
#include "fovea/core/profile.h"

namespace fovea::bench {

/// A number in [low, high] that depends on `seed` and `n` alone.
std::int64_t drawn(std::uint64_t seed, std::int64_t n, std::int64_t low, std::int64_t high);

struct Shares {
  /// Name and share of each part of the time of all threads, the largest first; they add up to 1. Time in
  /// which a thread has no work is "waiting", time outside of every part "other".
  std::vector<std::pair<std::string, double>> parts;
  double f32 = 0.0, narrow = 0.0;  ///< multiply-adds of f32, and of bf16 or int8
  double multiply_adds() const { return f32 + narrow; }
};
/// Of a profile that has stopped, for so many threads.
Shares shares_of(const Profile& profile, int threads);

/// The probe of the products that a training, or weights of this type, multiply by.
Probe products_of(autograd::Operands operands);
Probe products_of(autograd::WeightType weights);

/// The peaks of multiply-adds a second, measured beside each turn of a bench. Products of weights in bf16 or
/// int8 have the peak of that type, and all others, such as attention's, that of f32.
class Peaks {
 public:
  Peaks(Probe products, int threads) : products_(products), threads_(threads) {}
  void measure();
  /// The medians.
  double f32() const;
  double products() const;
  /// The time of all multiply-adds at these peaks.
  double least_seconds(const Shares& shares) const;

 private:
  Probe products_;
  int threads_;
  std::vector<double> f32_, narrow_;
};

}  // namespace fovea::bench
