#include "rules.h"

namespace forecast {
namespace {

// The known values, followed by values that `next` computes from all values before.
template <class Next>
std::vector<float> extend(const Window& window, const Next& next) {
  std::vector<float> values(window.values.begin(), window.values.begin() + kContext);
  while (values.size() < kWindow) {
    values.push_back(
        next([&](std::int64_t lag) { return values[values.size() - static_cast<std::size_t>(lag)]; }));
  }
  return {values.begin() + kContext, values.end()};
}

}  // namespace

std::vector<float> seasonal_naive(const Window& window, std::int64_t season) {
  return extend(window, [&](const auto& before) { return before(season); });
}

std::vector<float> differenced(const Window& window, std::int64_t a, std::int64_t b) {
  return extend(window, [&](const auto& before) { return before(a) + before(b) - before(a + b); });
}

}  // namespace forecast
