// The ways to mix the rows of a sequence that the example compares.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "fovea/nn/resampler.h"
#include "fovea/nn/transformer.h"

namespace choose {

inline constexpr std::int64_t kDim = 64, kLayers = 2;
/// The inner size of full attention's feed-forward parts. Those of the others make the numbers of parameters
/// equal.
inline constexpr std::int64_t kFeedForward = 192;
/// Of full attention with a window: other tokens on each side.
inline constexpr std::int64_t kWindow = 64;
/// The longest sequence of facts: Linformer's matrices end there.
inline constexpr std::int64_t kLongest = 32768;

/// What makes few rows of a whole sequence, once: learned queries, or a resampler.
using Summary = std::variant<std::monostate, fovea::nn::LearnedRows, fovea::nn::ResamplerOptions>;

struct Contender {
  std::string name;
  fovea::nn::StackSpec stack;
  enum class Sees { everything, window, past };  ///< which tokens a row may see
  Sees sees = Sees::everything;
  /// What the stack reads in the place of the sequence, beside the questions.
  Summary summary = {};
  /// Whether it has to learn from sequences as long as those that it will read.
  enum class Learns { from_short, from_every_length };
  Learns learns = Learns::from_short;
};

/// For questions about a sequence, whose rows may see both sides.
std::vector<Contender> readers();
/// For text that is written from left to right.
std::vector<Contender> writers();

/// The mask of a call over `length` tokens. With a window, `global` are tokens that see and are seen by all.
fovea::Mask mask_of(const Contender& contender, const std::vector<std::int64_t>& global);

/// The few rows of a summary.
class FewRows {
 public:
  FewRows(fovea::nn::ParameterSet& set, const Summary& summary);
  explicit operator bool() const { return count_ > 0; }
  std::int64_t count() const { return count_; }
  fovea::nn::Var operator()(fovea::nn::Context& context, const fovea::nn::Var& rows) const;

 private:
  std::int64_t count_ = 0;
  std::variant<std::monostate, fovea::nn::AttentionPooling, fovea::nn::Resampler> made_by_;
};

}  // namespace choose
