// The two encoders of the example, made of the same layers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fovea/models/encoder.h"
#include "world.h"

namespace retrieve {

inline constexpr std::int64_t kDim = 64;      ///< of a word
inline constexpr std::int64_t kVector = 256;  ///< of a passage, from a bi-encoder

/// A text of one or two parts. Which part a word stands in is added to its embedding (BERT's token types).
struct Text {
  Ids ids;
  std::size_t first_part = 0;  ///< words of part 0, from the beginning; the others are part 1
};

/// Embeddings and three layers. The first sees six words to either side, about a line, and joins neighbouring
/// words. The second sees everything. The third sees six words again and sums up the results of the lines.
class Reader {
 public:
  Reader(fovea::nn::ParameterSet& set, const std::string& name);
  struct Read {
    fovea::nn::Var rows;  ///< [size, length, dim]
    std::vector<std::int64_t> lengths;
  };
  /// `weights`, if given, receives those of the layer that sees all.
  Read operator()(fovea::nn::Context& context, std::span<const Text> texts,
                  fovea::Tensor* weights = nullptr) const;

 private:
  fovea::nn::Embedding words_, parts_;
  fovea::nn::TransformerStack joining_, seeing_, summing_;
};

/// Encodes question and passage separately, each as one vector of length 1. A collection is encoded once; a
/// question costs one encoding and one inner product per passage (Reimers & Gurevych 2019, arXiv 1908.10084).
/// One tower serves both.
class BiEncoder {
 public:
  explicit BiEncoder(std::uint64_t seed);
  fovea::nn::Var questions(fovea::nn::Context& context, std::span<const Ids> texts) const;
  fovea::nn::Var passages(fovea::nn::Context& context, std::span<const Ids> texts) const;
  /// Softmax over the answers of all families, temperature 1/20 (Karpukhin et al. 2020, arXiv 2004.04906,
  /// "in-batch negatives").
  fovea::nn::Var loss(fovea::nn::Context& context, const std::vector<Family>& families) const;
  fovea::nn::ParameterSet& parameters() { return parameters_; }

 private:
  fovea::nn::Var vectors(fovea::nn::Context& context, std::span<const Text> texts) const;

  fovea::nn::ParameterSet parameters_;
  Reader reader_;
  fovea::nn::AttentionPooling pooling_;
  fovea::nn::Linear out_;
};

/// Scores question and passage as one sequence: every word of one attends to every word of the other
/// (Nogueira & Cho 2019, arXiv 1901.04085). Nothing can be encoded before the question is known.
class CrossEncoder {
 public:
  explicit CrossEncoder(std::uint64_t seed);
  /// [1, passages.size()]
  fovea::nn::Var scores(fovea::nn::Context& context, const Ids& question, std::span<const Ids> passages,
                        fovea::Tensor* weights = nullptr) const;
  /// Softmax over the answer, the seven others of its family and two passages of other families.
  fovea::nn::Var loss(fovea::nn::Context& context, const std::vector<Family>& families) const;
  fovea::nn::ParameterSet& parameters() { return parameters_; }

 private:
  fovea::nn::Var scores(fovea::nn::Context& context, std::span<const Text> pairs,
                        fovea::Tensor* weights) const;

  fovea::nn::ParameterSet parameters_;
  Reader reader_;
  fovea::nn::Linear out_;
};

}  // namespace retrieve
