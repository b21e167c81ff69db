// An encoder alone: token ids to one vector a token, each having seen all others (BERT's shape: Devlin et al.
// 2019, arXiv 1810.04805, with sinusoidal positions and pre-norm). What is done with the vectors, a class for
// the sequence, a tag for each, a score between two, is a layer or two on top.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fovea/nn/transformer.h"

namespace fovea::models {

/// Sequences of ids side by side, the shorter ones filled up with `pad`.
struct Padded {
  std::int64_t size = 0, length = 0;
  std::vector<std::int32_t> ids;      ///< [size, length]
  std::vector<std::int64_t> lengths;  ///< [size]
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
  Encoder(nn::ParameterSet& set, const std::string& name, const EncoderConfig& config);
  /// -> [size, length, dim]. Rows at or beyond an entry's length are seen by no other row. `weights`: as in
  /// TransformerStack::Call.
  nn::Var operator()(nn::Context& context, const Padded& tokens,
                     const std::function<Tensor*(std::string_view, std::size_t)>& weights = {}) const;
  /// Embeddings and positions alone, [size, length, dim]: for sequences that go on into a stack of one's own.
  nn::Var embed(nn::Context& context, const Padded& tokens) const;
  const nn::TransformerStack& stack() const noexcept { return stack_; }

 private:
  EncoderConfig config_;
  nn::Embedding embedding_;
  nn::TransformerStack stack_;
};

}  // namespace fovea::models
