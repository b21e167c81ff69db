// Reading in two stages. A cheap encoder looks at every sentence of a story by itself, and chooses one or
// two of them by hard attention. A deeper encoder reads these alone and answers with a word. Training shows
// which sentences were needed.
//
// Baselines: the same reader over the whole story, and over the two sentences that share most words with
// the question.
#include <algorithm>
#include <functional>

#include "gallery.h"
#include "networks.h"
#include "questions.h"

namespace {

using namespace fovea;
using namespace read_example;
using autograd::Var;

// -- data: stories grow from 4 sentences to 20 while training

constexpr int kSentences = 20;

std::vector<Question> batch_of(const gallery::Run& run, const text::Vocabulary& words, std::int64_t update,
                               std::int64_t updates) {
  PhiloxStream random((run.seed() << 40) + static_cast<std::uint64_t>(update));
  const double grown = std::min(1.0, 2.5 * static_cast<double>(update) / static_cast<double>(updates));
  const int sentences = 4 + static_cast<int>(grown * (kSentences - 4));
  return draw_questions(random, words, 32, sentences, text::Split::train);
}

// -- training

train::FitOptions options_of(const gallery::Run& run) {
  return {.updates = run.scaled(1600, 8), .schedule = nn::WarmupCosine{.peak = 3e-3}, .seed = run.seed()};
}

Var reader_loss(nn::Context& context, const Reader& reader, const std::vector<Question>& batch,
                const std::vector<Ids>& texts) {
  Ids answers;
  for (const Question& question : batch) answers.push_back(question.answer);
  return cross_entropy(reader(context, texts), answers, {.scale = 1.0f / static_cast<float>(batch.size())});
}

Var two_stage_loss(nn::Context& context, const Chooser& chooser, const Reader& reader,
                   const std::vector<Question>& batch) {
  Ids first, second;
  std::vector<Ids> texts;
  for (const Question& question : batch) {
    const Places needed = needed_by(question);
    first.push_back(needed.first);
    second.push_back(needed.second);
    texts.push_back(text_of(question, needed));
  }
  const Chooser::Choice choice = chooser(context, batch, first);
  const fovea::autograd::Reduction mean{.scale = 1.0f / static_cast<float>(batch.size())};
  const Var loss = add(negative_log_likelihood(choice.first, first, mean),
                       negative_log_likelihood(choice.second, second, mean));
  return add(loss, reader_loss(context, reader, batch, texts));
}

Result train_two_stages(gallery::Run& run, const text::Vocabulary& words,
                        const std::vector<Question>& held_out, nn::ParameterSet& set, const Chooser& chooser,
                        const Reader& reader) {
  const train::FitOptions options = options_of(run);
  const auto loss = [&](nn::Context& context, std::int64_t update) {
    return two_stage_loss(context, chooser, reader, batch_of(run, words, update, options.updates));
  };
  train::fit(set, options, loss, run.progress("two stages"));
  return evaluate(held_out, [&](nn::Context& context, auto questions, std::vector<Places>& read) {
    read = chooser(context, questions).taken;
    std::vector<Ids> texts;
    for (std::size_t i = 0; i < questions.size(); ++i) texts.push_back(text_of(questions[i], read[i]));
    return reader(context, texts);
  });
}

Result train_baseline(gallery::Run& run, const text::Vocabulary& words, const std::vector<Question>& held_out,
                      const std::function<Ids(const Question&)>& text_of_question, const std::string& what) {
  nn::ParameterSet set(run.seed());
  const Reader reader(set, words.size());
  const auto texts_of = [&](std::span<const Question> questions) {
    std::vector<Ids> texts;
    for (const Question& question : questions) texts.push_back(text_of_question(question));
    return texts;
  };
  const train::FitOptions options = options_of(run);
  const auto loss = [&](nn::Context& context, std::int64_t update) {
    const std::vector<Question> batch = batch_of(run, words, update, options.updates);
    return reader_loss(context, reader, batch, texts_of(batch));
  };
  train::fit(set, options, loss, run.progress(what));
  return evaluate(held_out, [&](nn::Context& context, auto questions, std::vector<Places>&) {
    return reader(context, texts_of(questions));
  });
}

// -- picture: both choices for two questions about one story

void draw_choices(gallery::Run& run, const text::Vocabulary& words, const Chooser& chooser,
                  const std::vector<Question>& held_out) {
  const auto chain = std::find_if(held_out.begin(), held_out.end(),
                                  [](const Question& q) { return q.story.needed.size() == 2; });
  Story simpler = chain->story;
  simpler.question.replace(0, std::string("where is").size(), "who has");
  const Question asked[] = {*chain, with_ids(simpler, words)};
  nn::Context context;
  const Chooser::Choice choice = chooser(context, asked);
  inspect::AlignmentMatrix matrix{
      .target_tokens = chain->story.sentences, .source_tokens = {}, .weights = {}};
  matrix.target_tokens.push_back("(one is enough)");
  for (const Question& question : asked)
    for (const char* which : {"1st: ", "2nd: "})  // in front: a long name is cut at its end
      matrix.source_tokens.push_back(which + question.story.question);
  for (std::int64_t row = 0; row <= kSentences; ++row) {
    for (std::int64_t q = 0; q < 2; ++q) {
      const float* first = choice.first.value().data<float>() + q * kSentences;
      const float* second = choice.second.value().data<float>() + q * (kSentences + 1);
      const bool sentence = row < kSentences;
      matrix.weights.push_back(sentence ? first[kSentences - 1 - row] : 0.0f);
      matrix.weights.push_back(sentence ? second[kSentences - 1 - row] : second[kSentences]);
    }
  }
  const inspect::InspectPage page{.title = "What is chosen to be read",
                                  .source = {},
                                  .output = chain->story.answer,
                                  .facts = {},
                                  .maps = {inspect::as_map(matrix, "two questions about one story")}};
  run.picture(pictures::draw_picture(page));
  run.report().pages.push_back(page);
}

void state_figures(gallery::Run& run, const Result& two, const Result& all, const Result& shared) {
  using gallery::Unit;
  const std::string ours = "two stages", whole = "reads everything (baseline)",
                    bag = "two sentences by shared words (baseline)";
  run.figure({.what = "exact match", .of = ours, .value = two.exact, .at_least = 0.95});
  run.figure({.what = "exact, one sentence needed", .of = ours, .value = two.exact_one});
  run.figure({.what = "exact, two sentences needed", .of = ours, .value = two.exact_two});
  run.figure({.what = "needed sentences were read", .of = ours, .value = two.found});
  run.figure({.what = "sentences read", .of = ours, .value = two.read, .unit = Unit::number});
  for (const auto& [of, result] : {std::pair{whole, all}, std::pair{bag, shared}}) {
    run.figure({.what = "exact match", .of = of, .value = result.exact});
    run.figure({.what = "exact, one sentence needed", .of = of, .value = result.exact_one});
    run.figure({.what = "exact, two sentences needed", .of = of, .value = result.exact_two});
  }
  run.figure({.what = "time a question", .of = ours, .value = two.seconds, .unit = Unit::seconds});
  run.figure({.what = "time a question", .of = whole, .value = all.seconds, .unit = Unit::seconds});
  run.figure({.what = "time of everything / of two stages",
              .of = ours,
              .value = all.seconds / two.seconds,
              .unit = Unit::ratio,
              .at_least = 2.0});
}

void example(gallery::Run& run) {
  const text::Vocabulary words = vocabulary();
  PhiloxStream random((run.seed() << 40) + (1u << 30));
  const std::vector<Question> held_out =
      draw_questions(random, words, run.scaled(2000, 12), kSentences, text::Split::test);
  nn::ParameterSet set(run.seed());
  const Chooser chooser(set, words.size());
  const Reader reader(set, words.size());
  const Result two = train_two_stages(run, words, held_out, set, chooser, reader);
  const Result shared = train_baseline(run, words, held_out, most_shared_words, "shared words");
  const Result all = train_baseline(run, words, held_out, whole_story, "everything");
  state_figures(run, two, all, shared);
  run.report().notes.push_back(
      "A cheap look at twenty sentences, a hard choice of one or two, and a deeper reading of these alone. "
      "What neither look took is never read.");
  draw_choices(run, words, chooser, held_out);
}

}  // namespace

int main(int argc, char** argv) {
  return gallery::run(argc, argv, {.name = "read", .title = "Reading in two stages", .data = {}}, example);
}
