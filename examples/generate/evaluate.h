// How well a model predicts a text, and how fast it writes one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fovea/models/language_model.h"

namespace generate {

/// -log2 p of every token but the first, given those before it: at most `window` of them, and at least
/// window - stride, except at the beginning.
std::vector<double> bits(fovea::models::LanguageModel& model, std::span<const std::int32_t> ids,
                         std::int64_t window, std::int64_t stride);

/// Of writing exactly `length` tokens, the most probable one each time, after a prompt of one.
double tokens_per_second(fovea::models::LanguageModel& model, std::int64_t length,
                         fovea::models::Reuse reuse);

}  // namespace generate
