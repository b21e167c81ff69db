// The two networks of this example: one chooses sentences, the other reads them and answers.
#pragma once

#include <span>
#include <vector>

#include "fovea/models/encoder.h"
#include "questions.h"

namespace read_example {

/// The first stage: encodes each sentence by itself as a vector, and makes two hard choices among them.
class Chooser {
 public:
  Chooser(fovea::nn::ParameterSet& set, std::int64_t vocabulary);

  struct Choice {
    std::vector<Places> taken;     ///< one a question
    fovea::nn::Var first, second;  ///< weights of a softmax: [questions, sentences], [.., sentences + 1]
  };
  /// All questions have equally many sentences. While training, `first` says which sentence the second choice
  /// starts from. In inference the second choice starts from the sentence that was chosen first.
  Choice operator()(fovea::nn::Context& context, std::span<const Question> questions,
                    const Ids& first = {}) const;

 private:
  fovea::nn::Var glance(fovea::nn::Context& context, const std::vector<Ids>& texts) const;

  fovea::models::Encoder encoder_;
  fovea::nn::Linear first_query_, first_key_, second_hidden_, second_query_, second_key_;
  fovea::nn::Parameter* enough_;
};

/// The second stage: reads a text, a question and sentences, and answers with a word.
class Reader {
 public:
  Reader(fovea::nn::ParameterSet& set, std::int64_t vocabulary);
  /// -> [texts, vocabulary].
  fovea::nn::Var operator()(fovea::nn::Context& context, const std::vector<Ids>& texts) const;

 private:
  fovea::models::Encoder encoder_;
  fovea::nn::Linear answer_;
};

}  // namespace read_example
