// What generating one text and generating many share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

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

/// The largest of these numbers, or infinity if one is NaN.
float largest_of(const float* numbers, std::size_t count);

/// 53 random bits as a number in [0, 1), for draw number `draw` of the token number `index`.
double uniform_of(std::uint64_t seed, std::int64_t index, std::uint32_t draw = 0);

/// The ids of `choices`, in no order. top_k, top_p and min_p leave at least `least` of them.
std::vector<std::int32_t> kept_ids(std::span<const float> log_probabilities, const SampleOptions& options,
                                   std::size_t least);

/// Draws `count` numbers of entries without replacement, in the order in which they are drawn. Each time an
/// entry that is left has a probability in proportion to exp(log_weight). Entries of -infinity are never
/// drawn: there may be fewer than `count`. uniform(n) in [0, 1) is the random number of the n-th draw. The
/// time is one pass over all entries, and for each draw the square root of their count.
std::vector<std::size_t> draw_without_replacement(std::span<const double> log_weights, std::size_t count,
                                                  const std::function<double(std::size_t)>& uniform);

/// The logits or log-probabilities, and those of ids that were read or written less by the repetition penalty
/// (SampleOptions).
std::vector<float> penalized(std::span<const float> numbers, std::span<const std::int32_t> read,
                             std::span<const std::int32_t> written, double penalty);

/// What errors call the function that a caller has called, and what it was given.
struct CallNames {
  const char *function, *prompt = "prompt", *options = "options.";
};

/// Throws InvalidArgument for what `choices` refuses of options.
void check_choices(const CallNames& names, const SampleOptions& options);

/// Throws InvalidArgument for what `generate` refuses.
void check_generation(const CallNames& names, const LanguageModel& model,
                      std::span<const std::int32_t> prompt, const SampleOptions& options);

/// Throws InvalidArgument for rules with negative numbers, and where an id that they force is in no
/// vocabulary of this size.
void check_rules(const CallNames& names, const TokenRules& rules, std::int64_t vocabulary);

/// Throws InvalidArgument if `length` tokens behind `before` are more than the model reads.
void check_room(const CallNames& names, const LanguageModel& model, std::int64_t before, std::int64_t length,
                Reuse reuse = Reuse::on);

}  // namespace fovea::models
