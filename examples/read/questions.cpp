#include "questions.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "gallery.h"

namespace read_example {

using namespace fovea;

Question with_ids(Story story, const text::Vocabulary& vocabulary) {
  Question question;
  for (auto s = story.sentences.rbegin(); s != story.sentences.rend(); ++s)
    question.sentences.push_back(ids_of(vocabulary, *s));
  question.words = ids_of(vocabulary, story.question);
  question.answer = vocabulary.id_of(story.answer);
  question.story = std::move(story);
  return question;
}

std::vector<Question> draw_questions(PhiloxStream& random, const text::Vocabulary& vocabulary,
                                     std::int64_t count, int sentences, text::Split split) {
  std::vector<Question> questions;
  for (std::int64_t i = 0; i < count; ++i)
    questions.push_back(
        with_ids(draw_story(random, sentences, static_cast<Asks>(i % num_asks), split), vocabulary));
  return questions;
}

Places needed_by(const Question& question) {
  const auto count = static_cast<int>(question.sentences.size());
  const std::vector<int>& needed = question.story.needed;
  return {count - 1 - needed[0], needed.size() == 2 ? count - 1 - needed[1] : count};
}

namespace {

Ids text_with(const Question& question, std::span<const std::int32_t> places) {
  Ids text{text::kBosId};
  text.insert(text.end(), question.words.begin(), question.words.end());
  for (const std::int32_t place : places) {
    if (place >= static_cast<std::int32_t>(question.sentences.size())) continue;
    text.push_back(text::kEosId);
    const Ids& sentence = question.sentences[static_cast<std::size_t>(place)];
    text.insert(text.end(), sentence.begin(), sentence.end());
  }
  return text;
}

}  // namespace

Ids text_of(const Question& question, const Places& places) {
  return text_with(question, std::array{places.first, places.second});
}

Ids whole_story(const Question& question) {
  Ids all(question.sentences.size());
  std::iota(all.rbegin(), all.rend(), 0);
  return text_with(question, all);
}

Ids most_shared_words(const Question& question) {
  const Story& story = question.story;
  const int first = most_shared(story, story.question);
  const int second =
      most_shared(story, story.question + " " + story.sentences[static_cast<std::size_t>(first)], first);
  const int latest = static_cast<int>(story.sentences.size()) - 1;
  return text_of(question, {latest - first, latest - second});
}

namespace {

void judge(const Question& question, bool right, const Places* places, Result& result, double (&of)[2]) {
  const bool two = question.story.needed.size() == 2;
  ++of[two];
  result.exact += right;
  (two ? result.exact_two : result.exact_one) += right;
  if (!places) return;
  const int latest = static_cast<int>(question.sentences.size()) - 1;
  const auto was_read = [&](int n) { return latest - n == places->first || latest - n == places->second; };
  result.found += std::all_of(question.story.needed.begin(), question.story.needed.end(), was_read);
  result.read += places->second > latest ? 1 : 2;
}

}  // namespace

Result evaluate(const std::vector<Question>& questions, const Answer& answer) {
  constexpr std::size_t at_once = 50;
  Result result{.seconds = INFINITY};
  double of[2] = {};
  for (std::size_t begin = 0; begin < questions.size(); begin += at_once) {
    const std::span part(questions.data() + begin, std::min(at_once, questions.size() - begin));
    nn::Context context;
    std::vector<Places> places;
    const gallery::Stopwatch answering;
    const Tensor logits = answer(context, part, places).value();
    result.seconds = std::min(result.seconds, answering.seconds() / static_cast<double>(part.size()));
    const Ids answers = autograd::argmax_rows(logits);
    for (std::size_t i = 0; i < part.size(); ++i)
      judge(part[i], answers[i] == part[i].answer, places.empty() ? nullptr : &places[i], result, of);
  }
  const auto count = static_cast<double>(questions.size());
  for (double* mean : {&result.exact, &result.found, &result.read}) *mean /= count;
  result.exact_one /= std::max(1.0, of[0]);
  result.exact_two /= std::max(1.0, of[1]);
  return result;
}

}  // namespace read_example
