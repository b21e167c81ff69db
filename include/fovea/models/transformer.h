// Transformer encoder-decoder (Vaswani et al. 2017, arXiv 1706.03762).
#pragma once

#include "fovea/models/sequence_to_sequence.h"
#include "fovea/nn/transformer.h"

namespace fovea::models {

using nn::NormPlace;

struct TransformerConfig {
  std::int64_t vocabulary = 0;
  std::int64_t dim = 128;
  std::int64_t feed_forward = 256;
  std::int64_t heads = 4;
  std::int64_t encoder_layers = 4, decoder_layers = 4;
  NormPlace norm = NormPlace::post;
  float dropout = 0.1f;
  float attention_dropout = 0.0f;
};

std::unique_ptr<SequenceToSequence> make_transformer(const TransformerConfig& config, std::uint64_t seed);

}  // namespace fovea::models
