#include "bench/shares.h"

#include "bench/timing.h"
#include "fovea/core/philox.h"

namespace fovea::bench {

std::int64_t drawn(std::uint64_t seed, std::int64_t n, std::int64_t low, std::int64_t high) {
  const auto word = philox4x32({static_cast<std::uint32_t>(n), 0, 0, 0}, seed)[0];
  return low + static_cast<std::int64_t>(word) % (high - low + 1);
}

Shares shares_of(const Profile& profile, int threads) {
  Shares shares;
  const double all = profile.seconds() * threads;
  for (const auto& [part, seconds] : profile.parts(threads))
    shares.parts.emplace_back(to_string(part), all > 0.0 ? seconds / all : 0.0);
  for (const ProfileTotal& total : profile.totals()) {
    const bool is_f32 = total.label->operands == ProfileOperands::f32;
    (is_f32 ? shares.f32 : shares.narrow) += total.work.multiply_adds;
  }
  return shares;
}

Probe products_of(autograd::Operands operands) {
  return operands == autograd::Operands::bf16 ? best_bf16_products() : Probe::fma_f32;
}

Probe products_of(autograd::WeightType weights) {
  switch (weights) {
    case autograd::WeightType::bf16:
      return best_bf16_products();
    case autograd::WeightType::int8:
      return best_int8_products();
    case autograd::WeightType::f32:
      break;
  }
  return Probe::fma_f32;
}

void Peaks::measure() {
  f32_.push_back(bench::measure(Probe::fma_f32, {.threads = threads_}) / 2.0);
  if (products_ != Probe::fma_f32) narrow_.push_back(bench::measure(products_, {.threads = threads_}) / 2.0);
}

double Peaks::f32() const {
  return median(f32_);
}

double Peaks::products() const {
  return narrow_.empty() ? f32() : median(narrow_);
}

double Peaks::least_seconds(const Shares& shares) const {
  return shares.f32 / f32() + shares.narrow / products();
}

}  // namespace fovea::bench
