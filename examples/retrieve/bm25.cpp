#include "bm25.h"

#include <cmath>

namespace retrieve {

Bm25::Bm25(const std::vector<std::vector<std::int32_t>>& passages, std::int64_t vocabulary) {
  constexpr double k1 = 1.2, b = 0.75;  // the usual values
  const auto words = static_cast<std::size_t>(vocabulary);
  gain_.assign(words, std::vector<float>(passages.size(), 0.0f));
  double mean_length = 0.0;
  for (std::size_t p = 0; p < passages.size(); ++p) {
    for (const std::int32_t word : passages[p]) gain_[static_cast<std::size_t>(word)][p] += 1.0f;
    mean_length += static_cast<double>(passages[p].size()) / static_cast<double>(passages.size());
  }
  for (std::vector<float>& counts : gain_) {
    double containing = 0.0;
    for (const float count : counts) containing += count > 0.0f ? 1.0 : 0.0;
    const double rarity =
        std::log(1.0 + (static_cast<double>(passages.size()) - containing + 0.5) / (containing + 0.5));
    for (std::size_t p = 0; p < passages.size(); ++p) {
      const double count = counts[p], length = static_cast<double>(passages[p].size()) / mean_length;
      counts[p] = static_cast<float>(rarity * count * (k1 + 1.0) / (count + k1 * (1.0 - b + b * length)));
    }
  }
}

std::vector<float> Bm25::scores(const std::vector<std::int32_t>& question) const {
  std::vector<float> scores(gain_.empty() ? 0 : gain_[0].size(), 0.0f);
  for (const std::int32_t word : question) {
    const std::vector<float>& gain = gain_[static_cast<std::size_t>(word)];
    for (std::size_t p = 0; p < scores.size(); ++p) scores[p] += gain[p];
  }
  return scores;
}

}  // namespace retrieve
