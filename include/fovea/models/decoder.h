// Here are whole networks, each defined once for training and inference, with the search and sampling that
// decode them. Layers are in nn/, text is in text/: models see token ids only. Open sequence_to_sequence.h
// first.
//
// This header has a decoder that writes token ids one after the other. Each id depends on those before it and
// on a memory, such as the patches of an image, the words of an encoder, or both. It is the right half of
// Vaswani et al. 2017, with pre-norm and sinusoidal positions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fovea/models/decoding.h"
#include "fovea/models/encoder.h"

namespace fovea::models {

struct DecoderConfig {
  std::int64_t vocabulary = 0;
  std::int64_t dim = 64, feed_forward = 128, heads = 4, layers = 2;
  float dropout = 0.0f, attention_dropout = 0.0f;
  /// Share of the previous ids that are replaced by `unknown` while training. A decoder that cannot rely on
  /// what it wrote has to look at the memory (Bowman et al. 2016, arXiv 1511.06349, section 3.1).
  float word_dropout = 0.0f;
  std::int32_t unknown = 1, begin = 2, end = 3;  ///< `begin` stands before the first id, `end` after the last
};

/// What a decoder attends to: rows [B, M, dim]. Entry b has lengths[b] rows; without `lengths` all M.
struct DecoderMemory {
  nn::Var rows;
  std::span<const std::int64_t> lengths = {};
};

/// Sequences that a decoder wrote, one for each entry of the memory.
struct Written {
  std::vector<std::vector<std::int32_t>> ids;  ///< without `end`
  /// One tensor for each layer, [B, steps, M]: the attention weights on the rows of the memory when an id was
  /// written, averaged over the heads. The step after an entry's last id is the one that wrote `end`.
  std::vector<Tensor> read;
  /// The M weights of `layer` when ids[entry][step] was written, or `end` at the step behind the last id.
  /// Throws InvalidArgument for indices outside what was written.
  std::span<const float> row(std::size_t layer, std::size_t entry, std::size_t step) const;
};

class Decoder {
 public:
  Decoder() = default;
  /// Throws what nn::TransformerStack throws.
  Decoder(nn::ParameterSet& set, const std::string& name, const DecoderConfig& config);

  /// The cross-entropies of all ids and of each sequence's `end`, each given all ids before it, reduced: [1].
  /// `sequences` are without `begin` and `end`. Throws InvalidArgument unless there is one sequence for each
  /// entry of the memory.
  nn::Var loss(nn::Context& context, std::span<const std::vector<std::int32_t>> sequences,
               const DecoderMemory& memory, const LossOptions& options = {},
               autograd::CrossEntropyStats* stats = nullptr) const;
  /// The scale that makes the loss of these sequences a mean: one over the number of its terms.
  static float mean_scale(std::span<const std::vector<std::int32_t>> sequences);
  /// The likeliest next id until `end`, at most `longest` of them. Reuse::off computes all rows again for
  /// every id, the memory's keys and values too. It gives the same ids, and shows what the cache gains.
  Written greedy(const DecoderMemory& memory, std::int64_t longest, Reuse reuse = Reuse::on) const;

 private:
  nn::Var embed(nn::Context& context, std::span<const std::int32_t> ids, std::int64_t size,
                std::int64_t first) const;
  nn::TransformerStack::Call call(const DecoderMemory& memory) const;

  DecoderConfig config_;
  nn::Embedding embedding_;
  nn::TransformerStack stack_;
  nn::Linear output_;
};

}  // namespace fovea::models
