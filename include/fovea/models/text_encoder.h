// Encoders of other libraries, such as BERT: from ids to one vector for each, which depends on all of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "fovea/nn/transformer.h"

namespace fovea::models {

/// The head of a masked language model: dense, activation, norm, output matrix and bias.
struct MaskedHeadSpec {
  autograd::Activation activation = autograd::Activation::gelu;
  nn::NormSpec norm = {};
  nn::Linear::Bias dense_bias = nn::Linear::Bias::with, output_bias = nn::Linear::Bias::with;
  enum class Output : std::uint8_t { tied, own };
  Output output = Output::tied;  ///< whether the output matrix is the embeddings' table
};

struct TextEncoderSpec {
  std::int64_t vocabulary = 0;
  std::int64_t token_types = 0;  ///< rows of a table of which each row of the input gets one; 0: no table
  nn::StackSpec stack = {};      ///< its blocks see both ways
  /// An id that has no position of its own, as in RoBERTa: it must not stand in a sequence.
  std::optional<std::int64_t> pad_id = {};
  std::optional<MaskedHeadSpec> head = {};
};

/// A batch is packed: the rows of all sequences, one after the other, so that no time is spent on padding.
class TextEncoder {
 public:
  /// Parameters: embed_tokens, embed_types, those of a TransformerStack named "encoder", and head.dense,
  /// head.norm, head.decoder.weight and head.decoder.bias.
  TextEncoder(const TextEncoderSpec& spec, nn::ParameterSet::Source source);

  const TextEncoderSpec& spec() const noexcept { return spec_; }
  nn::ParameterSet& parameters() noexcept { return *parameters_; }
  /// The last hidden states, [1, all ids, dim]. `types` has one number for each id of all sequences; without
  /// it all are 0. Throws InvalidArgument for no sequences, an empty one, an id or a type outside its table,
  /// and a sequence that is longer than the positions.
  nn::Var hidden(nn::Context& context, std::span<const std::vector<std::int32_t>> sequences,
                 std::span<const std::int32_t> types = {}) const;
  /// Of rows of `hidden` [..., dim]: [rows, vocabulary]. Not recorded. Throws InvalidArgument without a head.
  Tensor logits(const nn::Var& hidden) const;

 private:
  TextEncoderSpec spec_;
  std::unique_ptr<nn::ParameterSet> parameters_;
  nn::Embedding embedding_, types_;
  nn::TransformerStack stack_;
  nn::Linear dense_;
  std::optional<nn::Norm> norm_;
  nn::Parameter *output_ = nullptr, *output_bias_ = nullptr;
};

}  // namespace fovea::models
