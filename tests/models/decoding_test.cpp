// Search against oracles that share no code with it: all sequences tried one by one, a greedy loop of three
// lines, teacher-forced scores.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "models/tiny.h"

namespace fovea::models {
namespace {

class Decoding : public testing::TestWithParam<Kind> {};

constexpr std::int32_t bos = 2, eos = 3;

// log p(target, EOS | source), teacher-forced; with Ending::open without the EOS.
enum class Ending { closed, open };
double log_probability(SequenceToSequence& model, const std::vector<std::int32_t>& source,
                       const std::vector<std::int32_t>& target, Ending ending) {
  const Batch batch = make_batch({source}, {target});
  nn::Context context;
  const Tensor rows = model.log_probabilities(model.hidden(context, batch, nullptr, nullptr));
  double total = 0.0;
  const std::size_t count = target.size() + (ending == Ending::closed ? 1 : 0);
  for (std::size_t t = 0; t < count; ++t) {
    total += static_cast<double>(
        rows.data<float>()[static_cast<std::int64_t>(t) * rows.size(1) + batch.target_output[t]]);
  }
  return total;
}

// The rounding of a sum of a few log-probabilities, of f32 models of a few layers.
constexpr double close = 1e-4;

// A sharper output, so that hypotheses differ by more than rounding.
std::unique_ptr<SequenceToSequence> sharp(const Kind& kind) {
  auto model = kind.make(0.0f, 21);
  perturb(*model, 22, 0.6f);
  return model;
}

// Greedy decoding takes the largest logit, so that its tokens do not depend on whether someone wants their
// probabilities.
TEST_P(Decoding, WritesTheSameTokensWithoutLogProbabilities) {
  const auto model = sharp(GetParam());
  const std::vector<std::vector<std::int32_t>> sources{{5, 9, 6}, {7}, {8, 8, 5, 6, 9, 7}};
  const auto with = decode(*model, sources, {}),
             without = decode(*model, sources, {.log_probabilities = false});
  for (std::size_t n = 0; n < sources.size(); ++n) {
    EXPECT_EQ(with[n].front().ids, without[n].front().ids);
    EXPECT_LT(with[n].front().log_probability, 0.0);
    EXPECT_EQ(without[n].front().log_probability, 0.0);
  }
  // Beams compare log-probabilities, and have them whatever is asked for.
  const DecodeOptions beams{.beam_size = 3, .log_probabilities = false};
  EXPECT_LT(decode(*model, sources, beams)[0].front().log_probability, 0.0);
}

TEST_P(Decoding, AWideBeamFindsTheBestOfAllSequences) {
  const auto model = sharp(GetParam());
  const std::vector<std::int32_t> source{5, 9};
  const std::int64_t longest = 3;
  double best = -std::numeric_limits<double>::infinity();
  std::vector<std::int32_t> best_ids;
  // All outputs of up to `longest` tokens. An output of exactly `longest` tokens may lack the EOS, because
  // the search cuts it there.
  const auto grow = [&](const auto& self, std::vector<std::int32_t>& ids) -> void {
    const bool full = static_cast<std::int64_t>(ids.size()) == longest;
    const double value = log_probability(*model, source, ids, full ? Ending::open : Ending::closed) /
                         std::pow(static_cast<double>(ids.size() + (full ? 0 : 1)), 0.7);
    if (value > best) best = value, best_ids = ids;
    if (full) return;
    for (std::int32_t token = 1; token < tiny_vocabulary; ++token) {
      if (token == bos || token == eos) continue;
      ids.push_back(token);
      self(self, ids);
      ids.pop_back();
    }
  };
  std::vector<std::int32_t> ids;
  grow(grow, ids);
  const auto found = decode(
      *model, {source},
      {.beam_size = 2000, .normalize = 0.7, .length_factor = 0.0, .length_extra = longest, .n_best = 3});
  EXPECT_EQ(found[0][0].ids, best_ids);
  EXPECT_NEAR(found[0][0].score, best, close);
  EXPECT_GE(found[0][0].score, found[0][1].score);
  EXPECT_GE(found[0][1].score, found[0][2].score);
}

// Beam search by its definition. Every continuation of every row is sorted. An EOS among the first `beam`
// continuations finishes its hypothesis; the first `beam` others live on. The search ends when `beam`
// hypotheses are finished.
std::vector<Hypothesis> narrow_beam(SequenceToSequence& model, const std::vector<std::int32_t>& source,
                                    std::size_t beam, std::size_t longest) {
  std::vector<Hypothesis> live{{}}, finished;
  while (finished.size() < beam && !live.empty()) {
    std::vector<Hypothesis> all;
    for (const Hypothesis& row : live) {
      for (std::int32_t token = 1; token < tiny_vocabulary; ++token) {
        if (token == bos) continue;
        Hypothesis longer = row;
        longer.ids.push_back(token);
        std::vector<std::int32_t> written = longer.ids;
        const bool closed = token == eos;
        if (closed) written.pop_back();
        longer.log_probability =
            log_probability(model, source, written, closed ? Ending::closed : Ending::open);
        all.push_back(longer);
      }
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.log_probability > b.log_probability; });
    live.clear();
    for (std::size_t rank = 0; rank < all.size() && live.size() < beam; ++rank) {
      Hypothesis& next = all[rank];
      next.score = next.log_probability / static_cast<double>(next.ids.size());
      if (next.ids.back() != eos && next.ids.size() < longest) {
        live.push_back(next);
      } else if (rank < beam) {
        if (next.ids.back() == eos) next.ids.pop_back();
        finished.push_back(next);
      }
    }
  }
  std::stable_sort(finished.begin(), finished.end(),
                   [](const auto& a, const auto& b) { return a.score > b.score; });
  return finished;
}

TEST_P(Decoding, ANarrowBeamFollowsItsDefinition) {
  const auto model = sharp(GetParam());
  model->parameters().all().back().value.data<float>()[eos] +=
      1.5f;  // so that many hypotheses end, at all ranks
  for (const auto& source : random_sentences(4, 4, 12)) {
    for (const std::size_t beam : {2u, 3u}) {
      const auto expected = narrow_beam(*model, source, beam, 6);
      const auto found = decode(
          *model, {source},
          {.beam_size = static_cast<int>(beam), .length_factor = 0.0, .length_extra = 6, .n_best = 100})[0];
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t n = 0; n < found.size(); ++n) {
        EXPECT_EQ(found[n].ids, expected[n].ids);
        EXPECT_NEAR(found[n].score, expected[n].score, close);
      }
    }
  }
}

TEST_P(Decoding, ABeamOfOneIsGreedy) {
  const auto model = sharp(GetParam());
  for (const auto& source : random_sentences(4, 6, 3)) {
    const std::size_t longest = 2 * source.size() + 10;
    const Batch batch = make_batch({source}, {});
    const auto state = model->start(batch.source, batch.source_len, batch.source_lengths);
    std::vector<std::int32_t> ids;
    for (std::int32_t token = bos; ids.size() < longest;) {
      const Tensor row = model->log_probabilities(model->advance(*state, std::vector{token}));
      float* p = row.data<float>();
      p[0] = p[bos] = -std::numeric_limits<float>::infinity();
      token = static_cast<std::int32_t>(std::max_element(p, p + row.size(1)) - p);
      if (token == eos) break;
      ids.push_back(token);
    }
    EXPECT_EQ(decode(*model, {source}, {})[0][0].ids, ids);
  }
}

TEST_P(Decoding, ScoresAreThoseOfTheModel) {
  const auto model = sharp(GetParam());
  const auto sources = random_sentences(3, 5, 4);
  const DecodeOptions options{.beam_size = 4, .normalize = 0.6, .n_best = 4};
  const auto found = decode(*model, sources, options);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    for (const Hypothesis& hypothesis : found[i]) {
      const bool cut = hypothesis.ids.size() == 2 * sources[i].size() + 10;
      const double expected =
          log_probability(*model, sources[i], hypothesis.ids, cut ? Ending::open : Ending::closed);
      EXPECT_NEAR(hypothesis.log_probability, expected, close);
      EXPECT_DOUBLE_EQ(hypothesis.score,
                       hypothesis.log_probability /
                           std::pow(static_cast<double>(hypothesis.ids.size() + (cut ? 0 : 1)), 0.6));
    }
  }
}

// Beams swap rows, and sentences end at different steps. A hypothesis must still get its own weights.
TEST_P(Decoding, AlignmentEqualsThatOfTeacherForcing) {
  const auto model = sharp(GetParam());
  const auto sources = random_sentences(3, 5, 6);
  for (const Reuse reuse : {Reuse::on, Reuse::off}) {
    const auto found = decode(*model, sources, {.beam_size = 3, .n_best = 3, .reuse = reuse});
    for (std::size_t i = 0; i < sources.size(); ++i) {
      for (const Hypothesis& hypothesis : found[i]) {
        if (!model->attends()) {
          EXPECT_TRUE(hypothesis.alignment.empty());
          continue;
        }
        nn::Context context;
        Capture capture;
        model->hidden(context, make_batch({sources[i]}, {hypothesis.ids}), &capture, nullptr);
        const Tensor expected = alignment_of(capture, *model);
        const bool cut = hypothesis.ids.size() == 2 * sources[i].size() + 10;
        ASSERT_EQ(hypothesis.alignment.size(), hypothesis.ids.size() + (cut ? 0 : 1));
        for (std::size_t t = 0; t < hypothesis.alignment.size(); ++t) {
          ASSERT_EQ(hypothesis.alignment[t].size(), sources[i].size() + 1);
          for (std::size_t s = 0; s <= sources[i].size(); ++s) {
            ASSERT_NEAR(
                hypothesis.alignment[t][s],
                (expected.view().at<float>({0, static_cast<std::int64_t>(t), static_cast<std::int64_t>(s)})),
                close);
          }
        }
      }
    }
  }
}

TEST_P(Decoding, GivesTheSameTextsWithoutAlignments) {
  const auto model = sharp(GetParam());
  const auto sources = random_sentences(3, 5, 6);
  for (const Reuse reuse : {Reuse::on, Reuse::off}) {
    DecodeOptions options{.beam_size = 3, .n_best = 3, .reuse = reuse};
    const auto with = decode(*model, sources, options);
    options.alignments = false;
    const auto without = decode(*model, sources, options);
    for (std::size_t i = 0; i < sources.size(); ++i) {
      ASSERT_EQ(with[i].size(), without[i].size());
      for (std::size_t n = 0; n < with[i].size(); ++n) {
        EXPECT_EQ(without[i][n].ids, with[i][n].ids);
        EXPECT_NEAR(without[i][n].score, with[i][n].score, close);
        EXPECT_EQ(with[i][n].alignment.empty(), !model->attends());
        EXPECT_TRUE(without[i][n].alignment.empty());
      }
    }
  }
}

TEST_P(Decoding, ABatchEqualsItsSentencesAlone) {
  const auto model = sharp(GetParam());
  const auto sources = random_sentences(6, 7, 8);
  const DecodeOptions options{.beam_size = 3, .n_best = 2};
  const auto together = decode(*model, sources, options);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto alone = decode(*model, {sources[i]}, options);
    ASSERT_EQ(together[i].size(), alone[0].size());
    for (std::size_t n = 0; n < alone[0].size(); ++n) {
      EXPECT_EQ(together[i][n].ids, alone[0][n].ids);
      EXPECT_NEAR(together[i][n].score, alone[0][n].score, close);
    }
  }
}

// The counts of `fovea bench decode`: with attention the pairs grow as source × target.
TEST_P(Decoding, CountsItsScores) {
  const auto model = sharp(GetParam());
  const std::vector<std::int32_t> source(6, 5);
  DecodeStats on, off;
  decode(*model, {source}, {.exact_length = 5}, &on);
  decode(*model, {source}, {.exact_length = 5, .reuse = Reuse::off}, &off);
  EXPECT_EQ(on.steps, 5);
  EXPECT_EQ(on.tokens, 5);
  EXPECT_GT(on.peak_state_bytes, 0);
  const std::int64_t keys = 7, steps = 5, again = steps * (steps + 1) / 2;
  if (!model->attends()) {
    EXPECT_EQ(on.score_evaluations, 0);
    EXPECT_EQ(off.score_evaluations, 0);
  } else if (GetParam().name.starts_with("rnn")) {
    EXPECT_EQ(on.score_evaluations, keys * steps);
    EXPECT_EQ(off.score_evaluations, keys * again);  // 1 + 2 + ... + 5 steps
  } else {
    const Kind::Attentions& layers = GetParam().attentions;
    const std::int64_t heads = 2, encoder = heads * layers.encoder * keys * keys;
    EXPECT_EQ(on.score_evaluations, encoder + heads * (layers.cross * keys * steps + layers.decoder * again));
    std::int64_t total = 0;
    for (std::int64_t t = 1; t <= steps; ++t)
      total += encoder + heads * (layers.cross * keys * t + layers.decoder * t * (t + 1) / 2);
    EXPECT_EQ(off.score_evaluations, total);
  }
}

// A tokenizer may end its sources itself, and put an id of the language behind the end.
TEST_P(Decoding, ASourceIsTakenAsItIsGiven) {
  const auto model = sharp(GetParam());
  const Batch batch = make_batch({{5, eos, 7}, {6}}, {}, bos, eos, SourceEnd::as_given);
  EXPECT_EQ(batch.source_len, 3);
  EXPECT_EQ(batch.source, (std::vector<std::int32_t>{5, eos, 7, 6, 0, 0}));
  EXPECT_EQ(batch.source_lengths, (std::vector<std::int64_t>{3, 1}));
  for (const Reuse reuse : {Reuse::on, Reuse::off}) {
    DecodeOptions options{
        .beam_size = 3, .length_factor = 0.0, .length_extra = 6, .n_best = 3, .reuse = reuse};
    const auto appended = decode(*model, {{5, 8}}, options).front();
    options.source_end = SourceEnd::as_given;
    const auto given = decode(*model, {{5, 8, eos}}, options).front();
    ASSERT_EQ(given.size(), appended.size());
    for (std::size_t n = 0; n < given.size(); ++n) {
      EXPECT_EQ(given[n].ids, appended[n].ids);
      EXPECT_EQ(given[n].score, appended[n].score);
      EXPECT_EQ(given[n].alignment, appended[n].alignment);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Decoding, testing::ValuesIn(every_kind()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(WithoutConfig, Decoding, testing::ValuesIn(kinds_without_config()),
                         [](const auto& info) { return info.param.name; });

TEST(DecodingErrors, AreNamed) {
  const auto model = every_kind().front().make(0.0f, 1);
  const Sentences good{{5, 6}};
  EXPECT_THROW(decode(*model, good, {.beam_size = 0}), InvalidArgument);
  EXPECT_THROW(decode(*model, good, {.n_best = 0}), InvalidArgument);
  EXPECT_THROW(decode(*model, good, {.normalize = std::nan("")}), InvalidArgument);
  for (const double factor : {-1.0, std::nan(""), 1e300})
    EXPECT_THROW(decode(*model, good, {.length_factor = factor}), InvalidArgument);
  EXPECT_THROW(decode(*model, {{5}, {}}, {}), InvalidArgument);
  EXPECT_THROW(decode(*model, {{5, tiny_vocabulary}}, {}), InvalidArgument);
  EXPECT_THROW(decode(*model, {{-1}}, {}), InvalidArgument);
  EXPECT_TRUE(decode(*model, {}, {}).empty());
  EXPECT_THROW(make_batch({{5}}, {{5}, {6}}), InvalidArgument);
}

// A model that diverged scores everything NaN, which has no order: an error, not a crash of the sort.
TEST(DecodingErrors, NotANumber) {
  for (const Kind& kind : every_kind()) {
    const auto model = kind.make(0.0f, 1);
    model->parameters().all().back().value.fill(std::numeric_limits<double>::quiet_NaN());
    EXPECT_THROW(decode(*model, {{5, 6}}, {.beam_size = 3}), InvalidArgument) << kind.name;
  }
}

}  // namespace
}  // namespace fovea::models
