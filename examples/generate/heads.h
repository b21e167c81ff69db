// What the heads look at.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "fovea/models/language_model.h"

namespace generate {

/// Places that a token may look back to.
enum class Place : std::uint8_t {
  before,     ///< the token before it
  same,       ///< every earlier occurrence of the same token
  continued,  ///< what came after each of those: an induction head's target (Olsson et al. 2022, arXiv
              ///< 2209.11895)
};
inline constexpr std::array<const char*, 3> place_names = {"the sub-word before", "the same sub-word earlier",
                                                           "what followed the same sub-word"};

/// The rows that token `row` of `ids` finds of a kind of place, none of them `row` itself.
std::vector<std::size_t> places(Place place, std::span<const std::int32_t> ids, std::size_t row);

struct HeadWeights {
  std::int64_t layer = 0, head = 0;
  std::array<double, 3> weight{};  ///< by Place: the mean weight there, over the tokens that find any
};
struct Heads {
  std::vector<HeadWeights> heads;
  std::array<double, 3> uniform{};  ///< of a head that looks at all it may alike
};
/// Every head of the model, over windows of `window` tokens.
Heads measure_heads(fovea::models::LanguageModel& model, std::span<const std::int32_t> ids,
                    std::int64_t window);

/// The weights of every layer over one stretch: [1, heads, length, length] each.
std::vector<fovea::Tensor> weights_of(fovea::models::LanguageModel& model, std::span<const std::int32_t> ids);

/// Where the stretch of `length` tokens begins in which the most have occurred before; the first of equals.
std::size_t most_repetitive(std::span<const std::int32_t> ids, std::size_t length);

}  // namespace generate
