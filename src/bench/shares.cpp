#include "bench/shares.h"

#include <algorithm>
#include <map>

#include "fovea/core/philox.h"

namespace fovea::bench {

std::int64_t drawn(std::uint64_t seed, std::int64_t n, std::int64_t low, std::int64_t high) {
  const auto word = philox4x32({static_cast<std::uint32_t>(n), 0, 0, 0}, seed)[0];
  return low + static_cast<std::int64_t>(word) % (high - low + 1);
}

Shares shares_of(const Profile& profile, double seconds) {
  Shares shares;
  std::map<ProfilePart, double> own;
  double known = 0.0;
  for (const ProfileTotal& total : profile.totals()) {
    own[total.label->part] += total.own;
    known += total.own;
    shares.multiply_adds += total.work.multiply_adds;
  }
  own[ProfilePart::other] += std::max(0.0, seconds - known);
  for (const auto& [part, time] : own)
    shares.parts.emplace_back(to_string(part), time / std::max(seconds, known));
  std::sort(shares.parts.begin(), shares.parts.end(),
            [](const auto& a, const auto& b) { return a.second > b.second; });
  return shares;
}

}  // namespace fovea::bench
