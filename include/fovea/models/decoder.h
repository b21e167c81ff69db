// A decoder alone: token ids that are written one after the other, each having seen those before it and a
// memory, whatever made it: an image's patches, an encoder's words, both (the right half of Vaswani et al.
// 2017, with pre-norm and sinusoidal positions).
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
  /// Share of the ids before each that are hidden while training, put as `unknown`: who cannot rely on what
  /// was said must look at what is there (Bowman et al. 2016, arXiv 1511.06349, section 3.1).
  float word_dropout = 0.0f;
  float smoothing = 0.0f;                        ///< of the loss: autograd::linear_cross_entropy
  std::int32_t unknown = 1, begin = 2, end = 3;  ///< ids that stand before the first and after the last
};

/// What a decoder reads: rows [B, M, dim], of which entry b has lengths[b] (none given: all).
struct DecoderMemory {
  nn::Var rows;
  std::span<const std::int64_t> lengths = {};
};

/// Sequences that a decoder wrote, one an entry of the memory.
struct Written {
  std::vector<std::vector<std::int32_t>> ids;  ///< without `end`
  /// One a layer, [B, steps, M]: how much of each row of the memory was read to write an id, the mean of the
  /// heads. The step after an entry's last id is the one that wrote `end`.
  std::vector<Tensor> read;
  /// The M weights of `layer` with which ids[entry][step] was written.
  std::span<const float> row(std::size_t layer, std::size_t entry, std::size_t step) const;
};

class Decoder {
 public:
  Decoder() = default;
  Decoder(nn::ParameterSet& set, const std::string& name, const DecoderConfig& config);

  /// Mean cross-entropy, nats a token, of sequences without `begin` and `end`, given all ids before each:
  /// [1]. Throws InvalidArgument unless there is one sequence an entry of the memory.
  nn::Var loss(nn::Context& context, std::span<const std::vector<std::int32_t>> sequences,
               const DecoderMemory& memory, autograd::CrossEntropyStats* stats = nullptr) const;
  /// The likeliest next id until `end`, at most `longest` of them. Reuse::off computes all rows again for
  /// every id, the memory's keys and values too: the same ids, and what keeping them gains.
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
