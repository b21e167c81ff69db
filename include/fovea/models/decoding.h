// Greedy and beam search, batched.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "fovea/models/sequence_to_sequence.h"
#include "fovea/models/shortlist.h"

namespace fovea::models {

/// Whether a step reuses the keys, values and recurrent states of the steps before, or computes all of them
/// again from the tokens, encoder included. Both give the same tokens; `off` exists to measure what reuse
/// gains.
enum class Reuse : std::uint8_t { on, off };

/// Whether the end id is put behind each source, or the source is taken as it is. The tokenizers of published
/// models end it themselves, and some put another id behind the end.
enum class SourceEnd : std::uint8_t { appended, as_given };

struct DecodeOptions {
  int beam_size = 1;  ///< at least 1
  /// A finished hypothesis scores log p / length^normalize.
  double normalize = 1.0;
  /// Longest output: factor · source length + extra. The factor is from 0 to 10^6.
  double length_factor = 2.0;
  std::int64_t length_extra = 10;
  /// For measurements: exactly this many steps, in which EOS is never chosen. 0: off.
  std::int64_t exact_length = 0;
  int n_best = 1;  ///< at least 1; fewer are returned where fewer are found
  Reuse reuse = Reuse::on;
  std::int32_t bos = 2, eos = 3;
  SourceEnd source_end = SourceEnd::appended;
  /// Ids that are never written; without them those are 0, the padding of our own models, and bos.
  std::optional<std::vector<std::int32_t>> never = {};
  /// Whether hypotheses have alignments. A step whose weights nobody wants is cheaper.
  bool alignments = true;
  /// Whether hypotheses have log-probabilities. Without them greedy decoding writes the same tokens, and
  /// computes no exponentials over the vocabulary. Beams always have them.
  bool log_probabilities = true;
  /// Tokens are chosen among the candidates of each source, and probabilities are those among them. Null: the
  /// whole vocabulary. The rows of the output layer are those in f32, also where its matrix is packed in
  /// another type.
  std::shared_ptr<const Shortlist> shortlist = nullptr;
  /// Asked before each step, from any thread: true ends the search, and sources have the hypotheses that are
  /// finished.
  std::function<bool()> cancelled = {};
};

struct Hypothesis {
  std::vector<std::int32_t> ids;  ///< without BOS and EOS
  double log_probability = 0.0;   ///< 0 without DecodeOptions::log_probabilities
  double score = 0.0;             ///< log_probability / length^normalize
  /// One row for each token (EOS last, if it was written): weights over the source, its end included. Empty
  /// without attention, and without DecodeOptions::alignments.
  std::vector<std::vector<float>> alignment;
};

struct DecodeStats {
  std::int64_t steps = 0;              ///< of the batch
  std::int64_t tokens = 0;             ///< rows of all steps, one for each open hypothesis
  std::int64_t score_evaluations = 0;  ///< query-key pairs scored, encoder included
  std::int64_t peak_state_bytes = 0;   ///< the most that DecoderState::bytes was; 0 with Reuse::off
  /// Of both searches together. Bytes are those of the larger one.
  DecodeStats& operator+=(const DecodeStats& other);
};

/// The n_best hypotheses of each source, best first. Sources are ids without EOS, unless source_end is
/// as_given, and not empty. All of them form one batch. Throws InvalidArgument for an empty source, for
/// options outside their ranges, and for a model whose log-probabilities are NaN.
std::vector<std::vector<Hypothesis>> decode(SequenceToSequence& model,
                                            const std::vector<std::vector<std::int32_t>>& sources,
                                            const DecodeOptions& options, DecodeStats* stats = nullptr);

/// Pads sources and targets (ids without BOS and EOS) into a batch. Without targets the batch has none.
/// Throws InvalidArgument unless there are no targets, or one for each source.
Batch make_batch(const std::vector<std::vector<std::int32_t>>& sources,
                 const std::vector<std::vector<std::int32_t>>& targets, std::int32_t bos = 2,
                 std::int32_t eos = 3, SourceEnd source_end = SourceEnd::appended);

}  // namespace fovea::models
