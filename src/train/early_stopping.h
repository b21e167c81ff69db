// Which validation is the best so far, and when patience has run out.
#pragma once

#include <vector>

#include "fovea/train/trainer.h"

namespace fovea::train {

/// Whether `a` is the better model by `metric`. BLEU counts as it is printed, to two decimals, and the lower
/// cross-entropy decides between equals: a young model's BLEU is 0.00 for long, and its noise in the third
/// decimal would choose the model.
bool better(const Validation& a, const Validation& b, Metric metric);

/// The best of `curve` so far; nullptr if it is empty.
const Validation* best_of(const std::vector<Validation>& curve);

/// Sets `validation.improved`, and returns how many validations in a row, this one included, have improved
/// neither the metric nor the cross-entropy over the whole `curve` before them, given that number for the
/// last of the curve. Patience counts these: to stop by BLEU alone would end a Transformer whose BLEU is
/// still 0 while its perplexity falls at every validation. To begin counting once BLEU has left 0 was weighed
/// and rejected: BLEU is smoothed, so that an untrained model has 0.01 at one validation and 0.00 at the
/// next.
int count_validation(const std::vector<Validation>& curve, int without_improvement, Metric metric,
                     Validation& validation);

}  // namespace fovea::train
