// What the heads look at: of every head, how much of its weight goes where a repetition would be continued from.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fovea/models/language_model.h"

namespace generate {

/// For each token the place after the last earlier occurrence of the same token, which is what a repetition goes on
/// with (an induction head's target: Olsson et al. 2022, arXiv 2209.11895); -1 where it has not occurred, or only as
/// the token right before.
std::vector<std::int64_t> continuations(std::span<const std::int32_t> ids);

struct HeadWeights {
  std::int64_t layer = 0, head = 0;
  double weight = 0.0;   ///< mean weight on the continuation, over tokens that have one
  double uniform = 0.0;  ///< what a head that looks everywhere alike would have there
};
/// All heads of the model over windows of `window` tokens, largest weight first.
std::vector<HeadWeights> measure_heads(fovea::models::LanguageModel& model, std::span<const std::int32_t> ids,
                                       std::int64_t window);

/// The weights of every layer over one stretch: [1, heads, length, length] each.
std::vector<fovea::Tensor> weights_of(fovea::models::LanguageModel& model, std::span<const std::int32_t> ids);

/// Where the stretch of `length` tokens begins in which the most have a continuation; the first of equals.
std::size_t most_repetitive(std::span<const std::int32_t> ids, std::size_t length);

}  // namespace generate
