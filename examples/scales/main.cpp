// Five ways to score a query against a key, side by side: additive (Bahdanau et al. 2015), dot, general and
// scaled dot (Luong et al. 2015, Vaswani et al. 2017), low-rank bilinear (Kim et al. 2016). The example
// measures the effect of a key's width on the gradient through the softmax, the time of one score, and the
// BLEU of the same translator with each score.
#include <fmt/format.h>

#include "fovea/models/rnn.h"
#include "fovea/text/bleu.h"
#include "fovea/text/generated.h"
#include "fovea/train/dataset.h"
#include "fovea/train/translator.h"
#include "gallery.h"
#include "softmax.h"

namespace {

using namespace fovea;
using models::RnnAttention;

struct Contender {
  std::string name;
  Score score;
  RnnAttention attention;
};

const std::vector<Contender> contenders{{"additive", Additive{}, RnnAttention::additive},
                                        {"dot", Dot{}, RnnAttention::dot},
                                        {"scaled dot", ScaledDot{}, RnnAttention::scaled_dot},
                                        {"general", Bilinear{}, RnnAttention::general},
                                        {"low-rank", LowRankBilinear{}, RnnAttention::low_rank}};
const std::string baseline = "no attention (baseline)";

// -- the effect of the width on the softmax

void compare_widths(gallery::Run& run) {
  inspect::LineChart gradients{"Gradient behind the softmax",
                               "width of a key, as a power of two",
                               "length of the derivative by the scores",
                               {}};
  inspect::LineChart largest{"Largest weight of 64", "width of a key, as a power of two", "mean weight", {}};
  for (const auto& [name, score] :
       {std::pair{"dot", Score(Dot{})}, std::pair{"scaled dot", Score(ScaledDot{})}}) {
    gradients.curves.push_back({name, {}});
    largest.curves.push_back({name, {}});
    double narrow = 0.0;
    for (int power = 4; power <= 10; ++power) {
      const std::int64_t dim = std::int64_t{1} << power;
      const scales::Saturation at = scales::saturation(score, dim, run.seed());
      gradients.curves.back().points.push_back({static_cast<double>(power), at.gradient});
      largest.curves.back().points.push_back({static_cast<double>(power), at.largest});
      if (power == 4) narrow = at.gradient;
      if (power % 2 == 0) {
        run.figure({.what = fmt::format("gradient through the softmax, d = {}", dim),
                    .of = name,
                    .value = at.gradient,
                    .unit = gallery::Unit::number});
      }
      if (power < 10) continue;
      gallery::Figure kept{.what = "gradient at d = 1024 over that at d = 16",
                           .of = name,
                           .value = at.gradient / narrow,
                           .unit = gallery::Unit::ratio};
      if (std::holds_alternative<ScaledDot>(score))
        kept.at_least = 0.7;
      else
        kept.at_most = 0.5;
      run.figure(kept);
    }
  }
  run.report().charts.push_back(gradients);
  run.report().charts.push_back(largest);
}

// -- the time of a score

void compare_costs(gallery::Run& run) {
  std::vector<Score> scores;
  for (const Contender& c : contenders) scores.push_back(c.score);
  const std::vector<scales::Cost> costs = scales::costs(scores, run.scaled(200, 3), run.seed());
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    run.figure({.what = "time a pair, forward",
                .of = contenders[i].name,
                .value = costs[i].forward,
                .unit = gallery::Unit::seconds});
    run.figure({.what = "time a pair, backward",
                .of = contenders[i].name,
                .value = costs[i].backward,
                .unit = gallery::Unit::seconds});
  }
}

// -- the translator with each score

struct Corpora {
  text::ParallelCorpus train, valid, test;
};

Corpora make_corpora(gallery::Run& run) {
  const auto drawn = [&](std::int64_t count, text::Split split) {
    return text::generate_corpus({.seed = run.seed(), .count = count, .max_words = 24, .split = split});
  };
  return {drawn(run.scaled(20000, 300), text::Split::train), drawn(100, text::Split::valid),
          drawn(run.scaled(300, 20), text::Split::test)};
}

train::Translator trained(gallery::Run& run, const std::string& name, RnnAttention attention,
                          const Corpora& corpora) {
  auto tokenizer = train::build_tokenizer(corpora.train, {train::TokenizerKind::whitespace, 0});
  const train::Data data = train::make_data(corpora.train, corpora.valid, *tokenizer, 60, nullptr);
  // The query is the state after the step, so that one call of attention serves all steps of a sentence.
  auto model = models::make_rnn({.vocabulary = tokenizer->size(),
                                 .embedding = 64,
                                 .hidden = 96,
                                 .attention = attention,
                                 .query = models::QueryState::after},
                                run.seed());
  const std::int64_t updates = run.scaled(1200, 3);
  train::ShuffledBatches batches(data.train.size(), 48, run.seed());
  std::vector<std::size_t> batch;
  train::fit(
      model->parameters(),
      {.updates = updates,
       .schedule = nn::WarmupCosine{.peak = 4e-3, .warmup = updates / 10},
       .seed = run.seed()},
      [&](nn::Context& context, std::int64_t update) {
        const auto drawn = batches(update);
        batch.assign(drawn.begin(), drawn.end());
        const models::Batch padded = train::gather_batch(data.train, batch);
        std::int64_t words = 0;
        for (const std::int64_t length : padded.target_lengths) words += length;
        return model->loss(context, padded, {.reduction = {.scale = 1.0f / static_cast<float>(words)}},
                           nullptr);
      },
      run.progress(name));
  return {std::move(model), std::move(tokenizer)};
}

double bleu_of(train::Translator& translator, const text::ParallelCorpus& test) {
  std::vector<std::string> hypotheses;
  for (const auto& translations : translator.translate(text::lines_of(test, text::Side::source),
                                                       {.beam_size = 1, .alignments = false}, 50))
    hypotheses.push_back(translations[0].text);
  return text::bleu(hypotheses, text::lines_of(test, text::Side::target),
                    {.tokenizer = text::BleuTokenizer::none})
      .score;
}

inspect::AttentionMap alignment_map(train::Translator& translator, const std::string& name,
                                    const text::SentencePair& pair) {
  const train::Translation t = translator.align(pair.source, pair.target);
  return inspect::as_map({t.target_words, t.source_words, t.weights.weights}, name);
}

void compare_translators(gallery::Run& run) {
  const Corpora corpora = make_corpora(run);
  inspect::InspectPage page{.title = "One sentence, five scores"};
  train::Translator without = trained(run, baseline, RnnAttention::none, corpora);
  run.figure({.what = "BLEU",
              .of = baseline,
              .value = bleu_of(without, corpora.test),
              .unit = gallery::Unit::number});
  for (const Contender& contender : contenders) {
    train::Translator translator = trained(run, contender.name, contender.attention, corpora);
    run.figure({.what = "BLEU",
                .of = contender.name,
                .value = bleu_of(translator, corpora.test),
                .unit = gallery::Unit::number,
                .at_least = 85.0});
    page.maps.push_back(alignment_map(translator, contender.name, text::held_out_sentences().pairs[0]));
  }
  run.picture(pictures::draw_picture(page));
  run.report().pages.push_back(page);
}

void example(gallery::Run& run) {
  run.report().notes = {
      "Five scores: the gradient they leave behind a softmax, their time, and the BLEU of the same "
      "translator trained with each on the same sentences in the same order."};
  compare_widths(run);
  compare_costs(run);
  compare_translators(run);
}

}  // namespace

int main(int argc, char** argv) {
  return gallery::run(argc, argv, {.name = "scales", .title = "Five scores on the scales"}, example);
}
