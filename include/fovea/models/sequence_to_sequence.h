// A model that reads one sequence and writes another. It handles token ids only; text is in fovea/text.
// `hidden` is the model's forward for training, validation and inspection. `start` and `advance` run the same
// layers one token at a time and keep what they computed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fovea/models/mixers.h"
#include "fovea/nn/module.h"

namespace fovea::models {

/// A padded mini-batch. Pad is id 0; a source ends with EOS.
struct Batch {
  std::int64_t size = 0, source_len = 0, target_len = 0;
  std::vector<std::int32_t> source;          ///< [size, source_len]
  std::vector<std::int64_t> source_lengths;  ///< [size], each at least 1
  std::vector<std::int32_t> target_input;    ///< [size, target_len]: BOS, then the target
  std::vector<std::int32_t> target_output;   ///< [size, target_len]: the target, then EOS; -1 in the padding
  std::vector<std::int64_t> target_lengths;  ///< [size], each at least 1
};

/// Attention weights of one attention of a model, or what a recurrence gives in their place
/// (TransformerStack::Call::weights).
struct CapturedWeights {
  std::string name;  ///< "decoder.cross layer 2", "encoder.self layer 1 gated_delta"
  int layer = 0;
  Tensor weights;  ///< [batch, heads, query_len, key_len]; empty for Mamba
  enum class Of : std::uint8_t { attention, recurrence };
  Of of = Of::attention;
  Tensor log_decays = {};  ///< of a recurrence: TransformerStack::Call::log_decays
};
/// Receives the attention weights of a forward.
struct Capture : std::vector<CapturedWeights> {
  enum class Scope : std::uint8_t { every_layer, alignment };  ///< `alignment`: only what alignment_of reads
  Scope scope = Scope::every_layer;
};

/// What a decoder has computed so far; one row for each hypothesis.
class DecoderState {
 public:
  virtual ~DecoderState() = default;
  virtual std::unique_ptr<DecoderState> clone() const = 0;
  /// Bytes of keys, values and recurrent states kept from step to step.
  virtual std::int64_t bytes() const = 0;
  /// Makes row index[i] the new row i; the result may have fewer or more rows. Throws InvalidArgument for an
  /// index outside [0, rows).
  virtual void reorder(std::span<const std::int64_t> index) = 0;

  std::int64_t rows = 0;
  std::int64_t steps = 0;
  std::int64_t source_len = 0;
  std::vector<std::int64_t> source_lengths;  ///< one for each row
  bool aligns = true;                        ///< whether the next steps give an alignment
  Tensor alignment;  ///< [rows, source_len] of the last step; empty without attention, and without `aligns`
  std::int64_t score_evaluations = 0;  ///< query-key pairs scored so far, encoder included
};

/// How a model's loss is made of the cross-entropies of its target tokens. The terms of `reduction` are all
/// targets, sequence by sequence, each padded to the longest; weights of padding are not read.
struct LossOptions {
  float smoothing = 0.0f;
  autograd::Reduction reduction = {};
};

class SequenceToSequence {
 public:
  virtual ~SequenceToSequence() = default;
  nn::ParameterSet& parameters() noexcept { return *parameters_; }
  const nn::ParameterSet& parameters() const noexcept { return *parameters_; }
  /// The config.json that makes this model again (make_model). Throws InvalidArgument for layers that it
  /// cannot describe.
  virtual std::string config() const = 0;
  virtual std::int64_t vocabulary() const = 0;
  /// Whether there is an attention that alignment_of can read.
  virtual bool attends() const = 0;
  /// What the layers of a decoder with a stack keep of a sentence besides the encoder's output, which its
  /// cross-attention reads; none for an RNN.
  virtual std::vector<LayerKeeps> decoder_keeps() const { return {}; }

  /// The input of the output layer: [size * target_len, dim]. `capture`, if given, receives the attention
  /// weights of its scope. `evaluations`, if given, is increased by the number of query-key pairs scored.
  virtual nn::Var hidden(nn::Context& context, const Batch& batch, Capture* capture,
                         std::int64_t* evaluations) = 0;
  /// The output layer: [vocabulary, dim].
  virtual nn::Var output_weight(nn::Context& context) = 0;
  /// [vocabulary], or empty.
  virtual nn::Var output_bias(nn::Context& context) = 0;

  /// Encodes `source` [rows, source_len] and keeps what decoding needs. Row i has lengths[i] ids.
  virtual std::unique_ptr<DecoderState> start(std::span<const std::int32_t> source, std::int64_t source_len,
                                              std::span<const std::int64_t> lengths) = 0;
  /// Advances by one token: previous [rows] -> the input of the output layer, [rows, dim].
  virtual nn::Var advance(DecoderState& state, std::span<const std::int32_t> previous) = 0;

  /// The smoothed cross-entropies of the batch's target tokens, reduced: [1].
  nn::Var loss(nn::Context& context, const Batch& batch, const LossOptions& options,
               autograd::CrossEntropyStats* stats);
  /// autograd::most_probable of the output layer, for each row of `hidden` or `advance`.
  std::vector<std::vector<autograd::Probable>> most_probable(
      const nn::Var& hidden, std::size_t count, std::span<const std::int32_t> without,
      autograd::LogProbabilities numbers = autograd::LogProbabilities::given);
  /// The output layer, for rows of `hidden` or `advance`: [rows, vocabulary]. Not recorded.
  Tensor logits(const nn::Var& hidden);
  /// log p(next token | ...) over the vocabulary: [rows, vocabulary].
  Tensor log_probabilities(const nn::Var& hidden);

 protected:
  /// `hidden` without rows of padding: the first target_lengths[n] rows of each sequence n, one behind
  /// another. Empty if this model computes all rows.
  virtual nn::Var hidden_of_words(nn::Context& context, const Batch& batch);

  explicit SequenceToSequence(nn::ParameterSet parameters)
      : parameters_(std::make_unique<nn::ParameterSet>(std::move(parameters))) {}

 private:
  std::unique_ptr<nn::ParameterSet> parameters_;
};

/// A model from the text of a config.json, freshly initialised from `seed`. Throws InvalidArgument for an
/// unknown key, value or model type.
std::unique_ptr<SequenceToSequence> make_model(const std::string& config, std::uint64_t seed);
/// The same in `parameters`, which are empty: a reader's have a source, from which the values come.
std::unique_ptr<SequenceToSequence> make_model(const std::string& config, nn::ParameterSet parameters);

/// The cross-attention that serves as alignment, [size, target_len, source_len]. For an RNN it is its only
/// attention, for a Transformer the mean over the heads of its alignment layer. Empty without attention.
Tensor alignment_of(const Capture& capture, const SequenceToSequence& model);

}  // namespace fovea::models
