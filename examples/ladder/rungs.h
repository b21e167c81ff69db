// The rungs of the ladder: five translators that differ in how a word gets information about the other words.
// As much as possible of the rest is equal: embeddings, tied output layer, loss, greedy decoding.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fovea/models/sequence_to_sequence.h"
#include "fovea/nn/transformer.h"

namespace ladder {

enum class Kind { rnn, rnn_attention, rnn_self_attention, one_layer, transformer };

/// A Transformer's positions: sinusoids added to the embeddings (Vaswani et al. 2017), rotated queries and
/// keys in each self-attention (Su et al. 2021, arXiv 2104.09864), or both.
enum class Positions { added, turned, both };

struct Options {
  Kind kind = Kind::rnn;
  std::int64_t vocabulary = 0;
  std::int64_t dim = 64;          ///< of embeddings, states and keys
  std::int64_t feed_forward = 0;  ///< of the Transformer
  std::int64_t layers = 2;        ///< of the Transformer's encoder, and of its decoder
  Positions positions = Positions::added;
};

class Rung {
 public:
  Rung(const Options& options, std::uint64_t seed);
  ~Rung();
  fovea::nn::ParameterSet& parameters() noexcept { return set_; }

  /// Sum of the cross-entropies of the target's words, times `scale`.
  fovea::nn::Var loss(fovea::nn::Context& context, const fovea::models::Batch& batch, float scale) const;
  /// Greedy, `longest` words at most: ids without EOS. Every step reads the prefix again.
  std::vector<std::vector<std::int32_t>> translate(const fovea::models::Batch& sources,
                                                   std::int64_t longest) const;
  /// Weights of the attention to the source under teacher forcing, averaged over the heads: [size,
  /// target_len, source_len]. Empty without one.
  fovea::Tensor align(const fovea::models::Batch& batch) const;

  /// How many steps depend on each other, one after the other, when training reads a sentence of n words and
  /// its translation. Each recurrent step, each attention and each feed-forward part is one.
  static std::int64_t critical_path(const Options& options, std::int64_t n);

 private:
  struct Layers;
  struct Memory {
    fovea::nn::Var states;  // [B, S, *]
    fovea::nn::Var first;   // of the decoder's recurrence, [B, dim]
  };
  Memory encode(fovea::nn::Context& context, const fovea::models::Batch& batch) const;
  // -> [B, T, dim], what the output layer reads.
  fovea::nn::Var decode(fovea::nn::Context& context, const Memory& memory, const fovea::models::Batch& batch,
                        fovea::Tensor* weights) const;
  fovea::nn::Var embed(fovea::nn::Context& context, const std::vector<std::int32_t>& ids,
                       std::int64_t size) const;

  Options options_;
  fovea::nn::ParameterSet set_;
  std::unique_ptr<Layers> layers_;
};

}  // namespace ladder
