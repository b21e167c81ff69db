// Beam search of language models (Graves 2012, arXiv 1211.3711): the most probable of many continuations that
// are written side by side. It is the search of Hugging Face's generate, with its rules of when to end.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "fovea/cache/kv_cache.h"
#include "fovea/models/generate_until.h"

namespace fovea::models {

/// When a search ends, beside the end of all its texts.
enum class EarlyStopping : std::uint8_t {
  off,   ///< if the best open text has a worse score now than each of `beams` ended ones
  on,    ///< as soon as `beams` texts have ended
  never  ///< as `off`, but by the best score that the open text could reach at the full length
};

struct BeamOptions {
  std::int64_t beams = 4;
  std::int64_t length = 100;  ///< tokens to write at most
  /// An ended text of n tokens has the score log p / n^length_penalty (Wu et al. 2016, arXiv 1609.08144, in
  /// the form that Hugging Face's generate has).
  double length_penalty = 1.0;
  EarlyStopping early_stopping = EarlyStopping::off;
  /// The log-probability of an id that stands in the text is multiplied by it; 1: none.
  double repetition_penalty = 1.0;
  std::vector<std::int32_t> stop = {};  ///< ids that end a text, of which they are the last
  /// Whether a text ends for another reason: called with all ids that were written.
  EndsText ends = {};
  /// Asked before each step: true ends the search.
  std::function<bool()> cancelled = {};
};

struct BeamText {
  std::vector<std::int32_t> ids;  ///< without the prompt
  /// Of each id under the model, before the repetition penalty.
  std::vector<double> log_probabilities;
  double log_probability = 0.0;  ///< with the repetition penalty
  double score = 0.0;            ///< log_probability / length^length_penalty
};

/// The ended texts behind `prompt`, best first, at most options.beams of them; none if the search was
/// cancelled before one ended. The prompt is read once, and all open texts are read together. Throws
/// InvalidArgument for what `generate` refuses and for options outside their ranges, and CacheFull.
std::vector<BeamText> beam_search(LanguageModel& model, KvCache& cache, std::span<const std::int32_t> prompt,
                                  const BeamOptions& options);

}  // namespace fovea::models
