// Stories as ids, the parts of them that a reader gets, and the scoring of answers.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "fovea/autograd/ops.h"
#include "fovea/nn/module.h"
#include "world.h"

namespace read_example {

using Ids = std::vector<std::int32_t>;

struct Question {
  Story story;
  std::vector<Ids> sentences;  ///< the latest first, so that an index is the age of a sentence
  Ids words;
  std::int32_t answer = 0;
};

Question with_ids(Story story, const fovea::text::Vocabulary& vocabulary);
/// The kinds of questions alternate.
std::vector<Question> draw_questions(fovea::PhiloxStream& random, const fovea::text::Vocabulary& vocabulary,
                                     std::int64_t count, int sentences, fovea::text::Split split);
/// The sentences that were read for one question. If one was enough, `second` is the number of sentences.
struct Places {  // in Question::sentences
  std::int32_t first = 0, second = 0;
};
/// The sentences that the question needs.
Places needed_by(const Question& question);

/// The question, then the sentences that were taken.
Ids text_of(const Question& question, const Places& places);
/// All sentences, in the order of what happens.
Ids whole_story(const Question& question);
/// The sentence that shares most words with the question, and the sentence that shares most with both of
/// these.
Ids most_shared_words(const Question& question);

struct Result {
  double exact = 0.0, exact_one = 0.0, exact_two = 0.0;  ///< of all; of those that need one, two sentences
  double found = 0.0;                                    ///< questions for which everything needed was read
  double read = 0.0;                                     ///< sentences a question
  double seconds = 0.0;                                  ///< a question, in the fastest batch of 50
};

/// Answers some questions: logits over the vocabulary, and what was read where that was chosen.
using Answer = std::function<fovea::nn::Var(fovea::nn::Context& context, std::span<const Question> questions,
                                            std::vector<Places>& read)>;
Result evaluate(const std::vector<Question>& questions, const Answer& answer);

}  // namespace read_example
