// The ways to mix the rows of a sequence that the example compares.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fovea/nn/transformer.h"

namespace choose {

inline constexpr std::int64_t kDim = 64, kLayers = 2, kFeedForward = 128;
/// Of full attention with a window: other tokens on each side.
inline constexpr std::int64_t kWindow = 64;

struct Contender {
  std::string name;
  fovea::nn::StackSpec stack;
  enum class Sees { everything, window, past };  ///< which tokens a row may see
  Sees sees = Sees::everything;
  /// The only length that it can be trained for and read; 0: any.
  std::int64_t only_length = 0;
};

/// For questions about a sequence, whose rows may see both sides.
std::vector<Contender> readers();
/// For text that is written from left to right.
std::vector<Contender> writers();

/// The mask of a call over `length` tokens. With a window, `global` are tokens that see and are seen by all.
fovea::Mask mask_of(const Contender& contender, const std::vector<std::int64_t>& global);

}  // namespace choose
