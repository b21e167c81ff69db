// Chooses the best validation so far, and counts validations without improvement.
#pragma once

#include <vector>

#include "fovea/train/trainer.h"

namespace fovea::train {

/// Whether `a` is the better model by `metric`. BLEU is compared as it is printed, to two decimals, and the
/// lower cross-entropy decides between equals. The reason: a young model's BLEU is 0.00 for a long time, and
/// noise in the third decimal would choose the model.
bool better(const Validation& a, const Validation& b, Metric metric);

/// The best of `curve` so far; nullptr if it is empty.
const Validation* best_of(const std::vector<Validation>& curve);

/// Sets `validation.improved`. Returns how many validations in a row, this one included, improved neither the
/// best metric nor the best cross-entropy of the `curve` before them. `without_improvement` is that number
/// for the last validation of the curve. Patience counts these. Stopping by BLEU alone would end a
/// Transformer whose BLEU is still 0 while its perplexity falls at every validation. Rejected: to begin
/// counting once BLEU has left 0. BLEU is smoothed, so an untrained model may have 0.01 at one validation and
/// 0.00 at the next.
int count_validation(const std::vector<Validation>& curve, int without_improvement, Metric metric,
                     Validation& validation);

}  // namespace fovea::train
