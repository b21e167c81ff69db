#include "train/early_stopping.h"

#include <algorithm>
#include <cmath>

namespace fovea::train {

bool better(const Validation& a, const Validation& b, Metric metric) {
  if (metric == Metric::bleu) {
    const double hundredths_a = std::round(a.bleu * 100.0), hundredths_b = std::round(b.bleu * 100.0);
    if (hundredths_a != hundredths_b) return hundredths_a > hundredths_b;
  }
  return a.cross_entropy < b.cross_entropy;
}

const Validation* best_of(const std::vector<Validation>& curve) {
  const auto best =
      std::find_if(curve.rbegin(), curve.rend(), [](const Validation& v) { return v.improved; });
  return best == curve.rend() ? nullptr : &*best;
}

int count_validation(const std::vector<Validation>& curve, int without_improvement, Metric metric,
                     Validation& validation) {
  const Validation* best = best_of(curve);
  validation.improved = !best || better(validation, *best, metric);
  const bool lower_loss = std::all_of(curve.begin(), curve.end(), [&](const Validation& v) {
    return validation.cross_entropy < v.cross_entropy;
  });
  return validation.improved || lower_loss ? 0 : without_improvement + 1;
}

}  // namespace fovea::train
