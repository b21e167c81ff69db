// The model of the example: embeddings, a stack whose blocks have the mixers that the caller chooses, and a
// class for each question.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "exercise.h"
#include "fovea/nn/transformer.h"

namespace remember {

inline constexpr std::int64_t kDim = 64, kKeyDim = 64;

/// One head with kKeyDim elements of a key, and kDim of a value.
fovea::nn::Mixer linear_attention();
fovea::nn::Mixer gated_delta();
fovea::nn::Mixer mamba2();
/// ALiBi's slope is learned: of two equal keys the later one is wanted.
fovea::nn::Mixer softmax_attention();
/// Without positions: where every key is told once, keys are enough.
fovea::nn::Mixer plain_attention();
/// Four heads of the same size together, with rotary positions.
fovea::nn::Mixer rotary_attention();
/// Four heads, because each has a decay of its own. Together their states are as large as one of the others.
fovea::nn::Mixer retention();

class Reader {
 public:
  Reader(std::uint64_t seed, const Vocabulary& vocabulary, const std::vector<fovea::nn::Mixer>& mixers);

  /// The mean of -log p(answer) over all questions. Sequences of one length.
  fovea::nn::Var loss(fovea::nn::Context& context, std::span<const Exercise> exercises);
  /// The answers of each exercise.
  std::vector<std::vector<std::int32_t>> answers(std::span<const Exercise> exercises);
  /// The same with a cache: what is told is read in one call, and then each question alone.
  struct Decoded {
    std::vector<std::int32_t> answers;
    std::int64_t bytes = 0;           ///< that the cache has at the end
    double seconds_a_question = 0.0;  ///< of the processor
  };
  Decoded decode(const Exercise& exercise);
  /// The weights of a layer's values in one exercise, [1, heads, length, length].
  fovea::Tensor weights(const Exercise& exercise, std::size_t layer);
  /// Bytes of what a model keeps of `tokens` tokens: keys and values, or states.
  std::int64_t bytes_kept(std::int64_t tokens);

  fovea::nn::ParameterSet& parameters() { return parameters_; }

 private:
  fovea::nn::Var embed(fovea::nn::Context& context, std::span<const Exercise> exercises) const;
  fovea::nn::Var read(fovea::nn::Context& context, const Exercise& exercise, std::int64_t from,
                      std::int64_t count, fovea::nn::StackCache& cache) const;
  fovea::nn::Var questions(fovea::nn::Context& context, std::span<const Exercise> exercises,
                           fovea::Tensor* weights = nullptr, std::size_t layer = 0) const;

  fovea::nn::ParameterSet parameters_;
  std::vector<fovea::nn::Embedding> tables_;
  fovea::nn::TransformerStack stack_;
  fovea::nn::Linear answer_;
};

}  // namespace remember
