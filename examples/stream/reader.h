// The model of the example: embeddings, two layers with one kind of mixer, and a note for every token. It
// reads a stream in pieces and keeps what its mixers need of the tokens before.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fovea/nn/transformer.h"
#include "world.h"

namespace stream {

inline constexpr std::int64_t kDim = 64, kLayers = 2;

class Reader {
 public:
  /// `feed_forward`: the inner size of a layer's second part, by which models get equal parameters.
  Reader(std::uint64_t seed, const fovea::nn::Mixer& mixer, std::int64_t feed_forward);

  /// The mean of -log p(last note) over all tokens of streams of one length.
  fovea::nn::Var loss(fovea::nn::Context& context, std::span<const Stream> streams);
  /// The weights of a layer's values in one stream, [1, 1, length, length].
  fovea::Tensor weights(const Stream& stream, std::size_t layer);

  /// Nothing is read yet.
  fovea::nn::StackCache start() const;
  /// Reads the next tokens behind those in `cache`. Returns the note that the model names at each.
  std::vector<std::int32_t> read(std::span<const std::int32_t> tokens, fovea::nn::StackCache& cache) const;

  fovea::nn::ParameterSet& parameters() { return parameters_; }

 private:
  fovea::nn::Var embed(fovea::nn::Context& context, std::span<const std::int32_t> tokens,
                       std::int64_t size) const;

  fovea::nn::ParameterSet parameters_;
  fovea::nn::Embedding tokens_;
  fovea::nn::TransformerStack stack_;
  fovea::nn::Linear note_;
};

}  // namespace stream
