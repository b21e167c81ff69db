// Stories as ids, what of them a reader is given, and how answers are judged.
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
  std::vector<Ids> sentences;  ///< the latest first: a sentence's place says how old it is
  Ids words;
  std::int32_t answer = 0;
};

Question with_ids(Story story, const fovea::text::Vocabulary& vocabulary);
/// The kinds of questions take turns.
std::vector<Question> draw_questions(fovea::PhiloxStream& random, const fovea::text::Vocabulary& vocabulary,
                                     std::int64_t count, int sentences, fovea::text::Split split);
/// What was read for one question; `second` is beyond the sentences where one was enough.
struct Places {  // in Question::sentences
  std::int32_t first = 0, second = 0;
};
/// What should be.
Places needed_by(const Question& question);

/// The question, then the sentences that were taken.
Ids text_of(const Question& question, const Places& places);
/// All sentences, in the order of what happens.
Ids whole_story(const Question& question);
/// The sentence that shares most words with the question, and the one that shares most with both.
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
