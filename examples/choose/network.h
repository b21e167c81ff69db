// The model of the example: embeddings of the parts of tokens, a contender's stack, and classes for rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "contenders.h"
#include "facts.h"

namespace choose {

class Network {
 public:
  /// `parts` have an embedding each; a row has one of `classes`.
  Network(std::uint64_t seed, const Contender& contender, std::int64_t parts, std::int64_t classes);

  /// The mean of -log p(answer) over the questions of records of one length.
  fovea::nn::Var loss(fovea::nn::Context& context, std::span<const Record> records) const;
  /// The answers to the questions of one record.
  std::vector<std::int32_t> answers(const Record& record) const;

  /// The mean of -log p(next character) over a text of `size` lines of one length, one behind the other.
  fovea::nn::Var text_loss(fovea::nn::Context& context, std::span<const std::int32_t> text, std::int64_t size,
                           fovea::autograd::CrossEntropyStats* stats = nullptr) const;

  /// What is kept of a text that is read in pieces.
  fovea::nn::StackCache start() const;
  /// Reads the next characters, and gives back what no later one sees.
  void read(std::span<const std::int32_t> text, fovea::nn::StackCache& cache) const;

  fovea::nn::ParameterSet& parameters() { return parameters_; }

 private:
  fovea::nn::Var embed(fovea::nn::Context& context, const Tokens& tokens, std::int64_t size,
                       std::int64_t first = 0) const;
  fovea::nn::Var questions(fovea::nn::Context& context, std::span<const Record> records) const;
  fovea::Mask text_mask() const;

  Contender contender_;
  fovea::nn::ParameterSet parameters_;
  fovea::nn::Embedding parts_;
  FewRows few_;
  fovea::nn::TransformerStack stack_;
  fovea::nn::Linear output_;
};

}  // namespace choose
