// What generating one text and generating many share.
#pragma once

#include <algorithm>
#include <span>

#include "fovea/models/language_model.h"

namespace fovea::models {

/// A prompt is read in pieces that end at multiples of so many positions. How a text is cut then depends on
/// the text alone, and a row's bits depend on the number of rows that its sequence reads at once.
constexpr std::int64_t prompt_piece = 64;

/// The first ids of `prompt` that are read at once behind `length` rows.
inline std::span<const std::int32_t> next_piece(std::span<const std::int32_t> prompt, std::int64_t length) {
  const std::int64_t most = prompt_piece - length % prompt_piece;
  return prompt.first(static_cast<std::size_t>(std::min(most, std::ssize(prompt))));
}

/// Throws InvalidArgument for what `generate` refuses.
void check_generation(const LanguageModel& model, std::span<const std::int32_t> prompt,
                      const SampleOptions& options);

/// Throws InvalidArgument if `length` tokens behind `before` are more than the model reads.
void check_room(const LanguageModel& model, std::int64_t before, std::int64_t length);

}  // namespace fovea::models
