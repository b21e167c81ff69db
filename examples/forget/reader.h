// The model of the example: a causal Transformer. The caller chooses the mask of its layers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fovea/nn/transformer.h"
#include "story.h"

namespace forget {

inline constexpr std::int64_t kDim = 64, kLayers = 2, kHeads = 4;
/// The first layer sees only the three words before its own. It joins neighbouring words, as in "in oslo
/// lives anna". It is the same whatever the mask of the layers above.
inline constexpr std::int64_t kNear = 3;

class Reader {
 public:
  Reader(std::uint64_t seed, fovea::Mask mask);

  /// The mean over all questions of -log p(answer). Stories of one length.
  fovea::nn::Var loss(fovea::nn::Context& context, const std::vector<Story>& stories) const;
  /// The city that the model answers to each question.
  std::vector<std::int32_t> answers(const Story& story) const;
  /// The same, word by word with a cache. The cache drops the keys that the mask hides from all later words.
  struct Decoded {
    std::vector<std::int32_t> answers;
    std::int64_t peak_bytes = 0;  ///< the largest size of the keys and values
  };
  Decoded decode(const Story& story) const;
  /// The weights of the last layer at one position, averaged over its heads: one for each word.
  std::vector<float> attention(const Story& story, std::int64_t position) const;
  /// For each question the sum of its weights on the words of the fact it asks for. Weights are those of the
  /// last layer, averaged over its heads.
  std::vector<float> on_facts(const Story& story) const;

  fovea::nn::ParameterSet& parameters() { return parameters_; }

 private:
  fovea::nn::Var embed(fovea::nn::Context& context, std::span<const std::int32_t> words, std::int64_t first,
                       std::int64_t batch) const;
  fovea::nn::Var hidden(fovea::nn::Context& context, std::span<const std::int32_t> words, std::int64_t batch,
                        fovea::Tensor* weights = nullptr) const;

  fovea::nn::ParameterSet parameters_;
  fovea::nn::Embedding words_;
  fovea::nn::TransformerStack near_, stack_;
  fovea::nn::Linear answer_;
  fovea::Mask mask_;
};

}  // namespace forget
