// Beam search (Graves 2012, arXiv 1211.3711): the most probable of many continuations that are written side
// by side, or with DrawOptions texts that are drawn by their probability. It is the search of Hugging Face's
// generate, with its rules of when to end.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "fovea/cache/kv_cache.h"
#include "fovea/models/generate_until.h"
#include "fovea/models/sequence_to_sequence.h"
#include "fovea/models/token_rules.h"

namespace fovea::models {

/// When a search ends, beside the end of all its texts.
enum class EarlyStopping : std::uint8_t {
  off,   ///< if the best open text has a worse score now than each of `beams` ended ones
  on,    ///< as soon as `beams` texts have ended
  never  ///< as `off`, but by the best score that the open text could reach at the full length
};

/// How ids are drawn; the members mean what those of SampleOptions do. At least one id more than
/// BeamOptions::stop has is kept by top_k, top_p and min_p, so that some text can go on.
struct DrawOptions {
  double temperature = 1.0;  ///< 0: nothing is drawn
  std::int64_t top_k = 0;
  double top_p = 1.0, min_p = 0.0;
  std::uint64_t seed = 1;
};

struct BeamOptions {
  std::int64_t beams = 4;     ///< 1: always the most probable id, as generate writes at temperature 0
  std::int64_t length = 100;  ///< tokens to write at most, at least 1
  /// An ended text of n tokens has the score log p / n^length_penalty (Wu et al. 2016, arXiv 1609.08144, in
  /// the form that Hugging Face's generate has).
  double length_penalty = 1.0;
  EarlyStopping early_stopping = EarlyStopping::off;
  /// The log-probability of an id that stands in the text is multiplied by it, above 0; 1: none.
  double repetition_penalty = 1.0;
  TokenRules rules = {};  ///< of log-probabilities, behind the penalty
  /// Draws the ids of a step in place of taking the best ones. A pair of an open text and its next id is
  /// drawn in proportion to exp(score), without replacement: 2 · beams pairs, or more with several stop ids.
  /// The score of a text is the sum of its ids' log-probabilities behind penalty and rules, divided by the
  /// temperature. The first `beams` pairs that were drawn may end a text; of the others the best ones go on.
  /// One beam draws each id as `generate` does with the same seed. The random numbers of step i depend on the
  /// seed and i alone.
  std::optional<DrawOptions> draws = {};
  std::vector<std::int32_t> stop = {};  ///< ids that end a text, of which they are the last
  /// Whether a text ends for another reason: called with all ids that were written.
  EndsText ends = {};
  /// Asked before each step: true ends the search.
  std::function<bool()> cancelled = {};
};

struct BeamText {
  std::vector<std::int32_t> ids = {};  ///< without the prompt
  /// Of each id under the model, before the repetition penalty.
  std::vector<double> log_probabilities = {};
  /// With the repetition penalty, what rules force, and the temperature of draws by several beams.
  double log_probability = 0.0;
  double score = 0.0;  ///< log_probability / length^length_penalty
  /// Of a translator: one row for each id, weights over the source (DecoderState::alignment).
  std::vector<std::vector<float>> alignment = {};
};

/// The ended texts behind `prompt`, best first, at most options.beams of them; none if the search was
/// cancelled before one ended. The prompt is read once, and all open texts are read together. Throws
/// InvalidArgument for what `generate` refuses and for options outside their ranges, and CacheFull.
std::vector<BeamText> beam_search(LanguageModel& model, KvCache& cache, std::span<const std::int32_t> prompt,
                                  const BeamOptions& options);

/// A text among several.
struct BeamRequest {
  /// Of a translator: the source, with the ids that the tokenizer puts around it.
  std::vector<std::int32_t> prompt;
  BeamOptions options = {};
};
/// Called once for each request with its number, as soon as its search has ended or was cancelled. A request
/// whose search had not begun when it was cancelled has no call. `error` is what ended this search alone,
/// such as rules that leave no id, or a cache in which it does not fit; there are no texts then.
using BeamsDone =
    std::function<void(std::size_t number, std::vector<BeamText> texts, std::exception_ptr error)>;
/// How much is searched side by side: open texts, and bytes of a cache for their whole lengths. A request
/// that is alone may take more.
struct BeamsTogether {
  std::int64_t rows = 32, limit_bytes = std::numeric_limits<std::int64_t>::max();
};
/// The same for many prompts, whose open texts are read together. Each search has the bits that it has alone.
/// Where `cancelled` of one says so, all end.
void beam_search(LanguageModel& model, KvCache& cache, std::span<const BeamRequest> requests,
                 const BeamsDone& done, const BeamsTogether& together = {});

/// How a translator of another library writes.
struct TranslatorBeams {
  BeamOptions search = {};
  std::int32_t start = 0;  ///< what the decoder reads first
  /// The tokens to write at most for a source of so many ids; without it search.length.
  std::function<std::int64_t(std::int64_t source)> length_of = {};
  /// Whether texts have alignments. A step whose weights nobody wants is cheaper.
  bool alignments = true;
};
/// For TranslatorBeams::length_of: `most`, or without it factor · source + 10; from 1 to `positions`.
std::function<std::int64_t(std::int64_t source)> output_length(std::optional<std::int64_t> most,
                                                               double factor, std::int64_t positions);
/// The ended texts of each source, best first. Sources have the ids that the tokenizer puts around them, and
/// all of them form one batch. Throws InvalidArgument for an empty source, for options outside their ranges,
/// and for a source whose search failed: the first one, once all have been searched.
std::vector<std::vector<BeamText>> beam_search(SequenceToSequence& model,
                                               const std::vector<std::vector<std::int32_t>>& sources,
                                               const TranslatorBeams& options);
/// The same, and a search that fails leaves the others: `done` gets its error.
void beam_search(SequenceToSequence& model, const std::vector<std::vector<std::int32_t>>& sources,
                 const TranslatorBeams& options, const BeamsDone& done);

/// What a translator's decoder reads first, and whether texts have alignments.
struct DecoderStart {
  std::int32_t id = 0;
  bool alignments = true;
};
/// The same for sources of which each has options of its own. Where `cancelled` of one says so, all end.
/// Throws InvalidArgument for an empty source and for options outside their ranges.
void beam_search(SequenceToSequence& model, std::span<const BeamRequest> requests, const DecoderStart& start,
                 const BeamsDone& done);
/// The same for any number of sources. They are sorted by length and cut into batches of `batch` at most,
/// which run side by side (for_batches_in_order). `done` is called for one after the other in the order of
/// the requests, on any thread, before all are searched. A request without ids is not searched and has no
/// texts. Where `cancelled` of one says so, all end, and what was not handed on by then has no call. Throws
/// InvalidArgument also for a `batch` below 1.
void search_in_batches(SequenceToSequence& model, std::span<const BeamRequest> requests,
                       const DecoderStart& start, std::int64_t batch, const BeamsDone& done);

}  // namespace fovea::models
