// An encoder from token ids to one vector for each token; each vector depends on all tokens. The architecture
// is BERT's (Devlin et al. 2019, arXiv 1810.04805), with sinusoidal positions and pre-norm. A class for the
// sequence, a tag for each token or a score between two sequences takes one or two layers on top.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fovea/nn/transformer.h"

namespace fovea::models {

/// A batch of sequences of ids, the shorter ones filled up with `pad`.
struct Padded {
  std::int64_t size = 0, length = 0;
  std::vector<std::int32_t> ids = {};      ///< [size, length]
  std::vector<std::int64_t> lengths = {};  ///< [size], each of them at most `length`
};
/// Throws InvalidArgument for no sequences, or an empty one.
Padded pad(std::span<const std::vector<std::int32_t>> sequences, std::int32_t pad_id = 0);

struct EncoderConfig {
  std::int64_t vocabulary = 0;
  std::int64_t dim = 64, feed_forward = 128, heads = 4, layers = 2;
  float dropout = 0.0f, attention_dropout = 0.0f;
};

class Encoder {
 public:
  Encoder() = default;
  /// Throws what nn::TransformerStack throws.
  Encoder(nn::ParameterSet& set, const std::string& name, const EncoderConfig& config);
  /// tokens.ids [size, length] -> [size, length, dim]. Rows at or beyond an entry's length are seen by no
  /// other row. `weights`: as in TransformerStack::Call. Throws InvalidArgument for tokens whose members do
  /// not belong together.
  nn::Var operator()(nn::Context& context, const Padded& tokens,
                     const std::function<Tensor*(std::string_view, std::size_t)>& weights = {}) const;
  /// Embeddings and positions alone, [size, length, dim]: the input for a stack of the caller's own.
  nn::Var embed(nn::Context& context, const Padded& tokens) const;
  const nn::TransformerStack& stack() const noexcept { return stack_; }

 private:
  EncoderConfig config_;
  nn::Embedding embedding_;
  nn::TransformerStack stack_;
};

}  // namespace fovea::models
