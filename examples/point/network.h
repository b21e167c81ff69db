// A network whose answers are its inputs: an encoder of the set, a decoder of the choices so far, and an
// output that chooses the next input.
#pragma once

#include <cstdint>
#include <vector>

#include "fovea/nn/transformer.h"
#include "tasks.h"

namespace point {

struct NetworkConfig {
  /// The pointer's output is its attention to the inputs, however many there are. The classifier's is a
  /// softmax over `classes` positions that were fixed when it was made; its inputs have position embeddings,
  /// without which a class could not stand for an input.
  enum class Output : std::uint8_t { pointer, classes };
  Output output = Output::pointer;
  std::int64_t dim = 64, feed_forward = 128, heads = 4, encoder_layers = 3, decoder_layers = 2;
  std::int64_t classes = 51;
};

class Network {
 public:
  Network(fovea::nn::ParameterSet& set, const NetworkConfig& config);
  /// Mean over all steps of -log p(right row), given the right rows before it.
  fovea::nn::Var loss(fovea::nn::Context& context, const Sets& sets) const;
  /// Chooses the likeliest row until it is the end's row. Returns a list of rows for each set; a row may be
  /// chosen twice. `weights`, if given, receives one tensor for each step: [size, points + 1], or [size,
  /// classes] of logits.
  std::vector<std::vector<std::int32_t>> answer(const Sets& sets,
                                                std::vector<fovea::Tensor>* weights = nullptr) const;

 private:
  fovea::nn::Var encode(fovea::nn::Context& context, const Sets& sets) const;
  fovea::nn::Var output(fovea::nn::Context& context, const fovea::nn::Var& decoded,
                        const fovea::nn::Var& memory) const;

  NetworkConfig config_;
  fovea::nn::Linear embed_, query_, key_, classes_;
  fovea::nn::TransformerStack encoder_, decoder_;
};

}  // namespace point
