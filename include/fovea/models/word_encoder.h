// An encoder whose word embeddings are sums over the parts of a word (text::word_features). It can embed
// words that training has not seen, for which a table of whole words has no row. The rest is as in Encoder
// (models/encoder.h).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/nn/transformer.h"

namespace fovea::models {

/// A sentence: the ids of the features of each word. Every word has at least the first feature.
using FeatureSentence = std::vector<std::vector<std::int32_t>>;

/// A batch of sentences, the shorter ones filled up with words without features.
struct PaddedWords {
  std::int64_t size = 0, length = 0;
  std::vector<std::int32_t> ids;      ///< of all words, one after the other
  std::vector<std::int64_t> counts;   ///< [size, length]: ids of each word, 0 where there is none
  std::vector<std::int64_t> lengths;  ///< [size]
};
/// The sentences that `index` names. Throws InvalidArgument for none, an empty one, a word without features,
/// or an index beyond the last.
PaddedWords pad(std::span<const FeatureSentence> sentences, std::span<const std::size_t> index);

struct WordEncoderConfig {
  std::int64_t features = 0;  ///< ids are below this
  std::int64_t dim = 64, feed_forward = 128, heads = 4, layers = 2;
  float dropout = 0.0f, attention_dropout = 0.0f;
  /// The share of words that keep only their first feature while training, as an unknown word would.
  float word_dropout = 0.0f;
};

class WordEncoder {
 public:
  WordEncoder() = default;
  /// Throws what nn::TransformerStack throws.
  WordEncoder(nn::ParameterSet& set, const std::string& name, const WordEncoderConfig& config);
  /// words [size, length] -> [size, length, dim]. `mask` must hide the rows beyond an entry's length
  /// (`KeyLengths{} & ...`); `weights`: as in TransformerStack::Call.
  nn::Var operator()(nn::Context& context, const PaddedWords& words, const Mask& mask = KeyLengths{},
                     const std::function<Tensor*(std::string_view, std::size_t)>& weights = {}) const;
  /// The words alone, without positions: [size, length, dim].
  nn::Var embed(nn::Context& context, const PaddedWords& words) const;

 private:
  WordEncoderConfig config_;
  nn::Parameter* table_ = nullptr;
  nn::TransformerStack stack_;
};

}  // namespace fovea::models
