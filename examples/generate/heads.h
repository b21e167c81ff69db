// What the heads look at.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "fovea/models/language_model.h"

namespace generate {

/// Kinds of earlier tokens that a token may attend to.
enum class Place : std::uint8_t {
  before,     ///< the token before it
  same,       ///< every earlier occurrence of the same token
  continued,  ///< the token after each of those: an induction head's target (Olsson et al. 2022, arXiv
              ///< 2209.11895)
};
inline constexpr std::array<const char*, 3> place_names = {"the sub-word before", "the same sub-word earlier",
                                                           "what followed the same sub-word"};

/// The rows of that kind for token `row` of `ids`, never `row` itself.
std::vector<std::size_t> places(Place place, std::span<const std::int32_t> ids, std::size_t row);

struct HeadWeights {
  std::int64_t layer = 0, head = 0;
  std::array<double, 3> weight{};  ///< by Place: the mean weight there, over the tokens that find any
};
struct Heads {
  std::vector<HeadWeights> heads;
  std::array<double, 3> uniform{};  ///< the same for uniform weights over all visible tokens
};
/// Every head of the model, over windows of `window` tokens.
Heads measure_heads(fovea::models::LanguageModel& model, std::span<const std::int32_t> ids,
                    std::int64_t window);

/// The weights of every layer over one stretch: [1, heads, length, length] each.
std::vector<fovea::Tensor> weights_of(fovea::models::LanguageModel& model, std::span<const std::int32_t> ids);

/// The beginning of the stretch of `length` tokens of which the most have occurred before; the first of
/// equals.
std::size_t most_repetitive(std::span<const std::int32_t> ids, std::size_t length);

}  // namespace generate
