// Decoder states: padding, reordered rows, clones, and captured weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "fovea/core/profile.h"
#include "models/tiny.h"

namespace fovea::models {
namespace {

class Consistency : public testing::TestWithParam<Kind> {};

struct Learned {
  double loss = 0.0;
  std::vector<std::vector<float>> gradients;
};

Learned learn(const Kind& kind, const Batch& batch) {
  const auto model = kind.make(0.0f, 31);
  perturb(*model, 32);
  autograd::Tape tape;
  nn::Context context{.tape = &tape};
  autograd::CrossEntropyStats stats;
  tape.backward(model->loss(context, batch, {}, &stats));
  Learned learned{stats.loss, {}};
  for (const nn::Parameter& parameter : model->parameters().all()) {
    const float* g = parameter.gradient.data<float>();
    learned.gradients.emplace_back(g, g + parameter.gradient.count());
  }
  return learned;
}

// Equal bits, not small differences: padded positions take part in nothing, so another word there changes
// no bit of the loss or of any gradient.
TEST_P(Consistency, ContentsOfThePaddingChangeNoBit) {
  const Batch clean = make_batch({{4, 5, 6, 7, 8}, {9, 10}, {11}}, {{4}, {5, 6, 7, 8}, {9, 10}});
  Batch dirty = clean;
  const auto soil = [](std::vector<std::int32_t>& ids, std::int64_t width,
                       const std::vector<std::int64_t>& lengths) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      if (at % width >= lengths[static_cast<std::size_t>(at / width)]) ids[i] = tiny_vocabulary - 1;
    }
  };
  soil(dirty.source, dirty.source_len, dirty.source_lengths);
  soil(dirty.target_input, dirty.target_len, dirty.target_lengths);
  ASSERT_NE(clean.source, dirty.source);
  ASSERT_NE(clean.target_input, dirty.target_input);
  const Learned a = learn(GetParam(), clean), b = learn(GetParam(), dirty);
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.gradients, b.gradients);
}

// The sentences of a padded batch may be computed one behind another without padding; the weights are those
// of the padded targets. Losses of about 1 are sums of some dozen terms in f32.
TEST_P(Consistency, ABatchLosesWhatItsSentencesLose) {
  const auto model = GetParam().make(0.0f, 31);
  perturb(*model, 32);
  const std::vector<std::vector<std::int32_t>> sources{{4, 5, 6, 7, 8}, {9, 10}, {11}},
      targets{{4}, {5, 6, 7, 8}, {9, 10}};
  const auto loss_of = [&](const Batch& batch, std::span<const float> weights, std::int64_t* tokens) {
    autograd::Tape tape;
    nn::Context context{.tape = &tape};
    autograd::CrossEntropyStats stats;
    const nn::Var loss = model->loss(context, batch, {.reduction = {.weights = weights}}, &stats);
    *tokens = stats.tokens;
    return static_cast<double>(loss.value().data<float>()[0]);
  };
  const Batch together = make_batch(sources, targets);
  std::vector<float> weights;
  for (std::size_t n = 0; n < together.target_output.size(); ++n)
    weights.push_back(0.25f + static_cast<float>(n % 7));
  double sum = 0.0;
  std::int64_t tokens = 0, all = 0;
  for (std::size_t n = 0; n < sources.size(); ++n) {
    const Batch alone = make_batch({sources[n]}, {targets[n]});
    const auto row = std::span<const float>(weights).subspan(
        n * static_cast<std::size_t>(together.target_len), static_cast<std::size_t>(alone.target_len));
    sum += loss_of(alone, row, &tokens);
    all += tokens;
  }
  EXPECT_NEAR(loss_of(together, weights, &tokens), sum, 1e-4 * std::abs(sum));
  EXPECT_EQ(tokens, all);
}

std::vector<float> step(SequenceToSequence& model, DecoderState& state,
                        const std::vector<std::int32_t>& previous) {
  const Tensor rows = model.log_probabilities(model.advance(state, previous));
  return {rows.data<float>(), rows.data<float>() + rows.count()};
}

TEST_P(Consistency, ReorderedRowsContinueLikeTheirOriginals) {
  const auto model = GetParam().make(0.0f, 41);
  perturb(*model, 42);
  const Sentences sources{{4, 5, 6}, {7}, {8, 9}};
  const Batch batch = make_batch(sources, {});
  const auto state = model->start(batch.source, batch.source_len, batch.source_lengths);
  step(*model, *state, {2, 2, 2});
  const auto other = state->clone();
  const auto before = step(*model, *other, {4, 5, 6});
  // Row 2 twice, then row 0, and row 1 not at all. Later reordered again, after the keys have grown.
  state->reorder(std::vector<std::int64_t>{2, 2, 0});
  EXPECT_EQ(state->rows, 3);
  const auto after = step(*model, *state, {6, 6, 4});
  const auto row = [&](const std::vector<float>& all, std::int64_t i) {
    return std::vector<float>(all.begin() + i * tiny_vocabulary, all.begin() + (i + 1) * tiny_vocabulary);
  };
  const auto near = [](const std::vector<float>& a, const std::vector<float>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5);
  };
  near(row(after, 0), row(before, 2));
  near(row(after, 1), row(before, 2));
  near(row(after, 2), row(before, 0));
  state->reorder(std::vector<std::int64_t>{2});
  EXPECT_EQ(state->source_lengths, (std::vector<std::int64_t>{4}));
  near(step(*model, *state, {9}), row(step(*model, *other, {9, 9, 9}), 0));
  EXPECT_THROW(state->reorder(std::vector<std::int64_t>{1}), InvalidArgument);
  EXPECT_THROW(state->reorder(std::vector<std::int64_t>{-1}), InvalidArgument);
}

TEST_P(Consistency, RowsMayBeReorderedBeforeTheFirstStep) {
  const auto model = GetParam().make(0.0f, 41);
  perturb(*model, 42);
  const Batch batch = make_batch(Sentences{{4, 5, 6}, {7}, {8, 9}}, {});
  const auto state = model->start(batch.source, batch.source_len, batch.source_lengths);
  const auto other = state->clone();
  state->reorder(std::vector<std::int64_t>{2, 0, 2, 1});
  const auto reordered = step(*model, *state, {2, 2, 2, 2}), whole = step(*model, *other, {2, 2, 2});
  const std::size_t from[] = {2, 0, 2, 1};
  for (std::size_t i = 0; i < reordered.size(); ++i)
    EXPECT_NEAR(reordered[i], whole[from[i / tiny_vocabulary] * tiny_vocabulary + i % tiny_vocabulary], 1e-5);
}

// An encoder whose keys are means of two rows, which a packed batch cannot have.
TEST(Compressed, SentencesOfAPaddedBatchTranslateAsAlone) {
  const TransformerConfig config = tiny_transformer(0.0f);
  TransformerStacks stacks = transformer_stacks(config);
  for (nn::BlockSpec& block : stacks.encoder.blocks)
    std::get<nn::AttentionOptions>(block.mixer).compression = nn::MeanRows{.group = 2};
  const auto model = make_transformer(config, stacks, 3);
  perturb(*model, 4);
  const Sentences sources{{4, 5, 6, 7}, {8, 9}};
  const auto together = decode(*model, sources, {.beam_size = 2});
  for (std::size_t n = 0; n < sources.size(); ++n)
    EXPECT_EQ(decode(*model, {sources[n]}, {.beam_size = 2})[0][0].ids, together[n][0].ids);
  autograd::Tape tape;
  nn::Context context{.tape = &tape};
  const Batch batch = make_batch(sources, {{4}, {5, 6}});
  EXPECT_NO_THROW(model->loss(context, batch, {}, nullptr));
}

TEST_P(Consistency, ACloneIsIndependent) {
  const auto model = GetParam().make(0.0f, 51);
  perturb(*model, 52);
  const Batch batch = make_batch({{4, 5, 6}}, {});
  const auto fresh = model->start(batch.source, batch.source_len, batch.source_lengths);
  const auto copy = fresh->clone();  // before any step
  const auto first = step(*model, *fresh, {2});
  EXPECT_EQ(step(*model, *copy, {2}), first);
  const auto branch = copy->clone();
  step(*model, *branch, {7});
  step(*model, *branch, {8});
  const auto expected = step(*model, *fresh, {9});
  EXPECT_EQ(step(*model, *copy, {9}), expected);
  EXPECT_EQ(copy->steps, 2);
  EXPECT_EQ(copy->bytes(), fresh->bytes());
  EXPECT_EQ(copy->score_evaluations, fresh->score_evaluations);
  // Steps alternate: neither clone may write into data that the other still reads.
  const auto one = copy->clone(), two = copy->clone();
  step(*model, *one, {4});
  step(*model, *two, {5});
  step(*model, *fresh, {4});
  EXPECT_EQ(step(*model, *one, {6}), step(*model, *fresh, {6}));
}

// Hypotheses that fork copy a page at most, and pages of 8 rows take less memory than larger ones.
TEST(TransformerState, GrowsByPagesOfEightRows) {
  const auto model = transformer_kind("", nn::NormPlace::pre).make(0.0f, 53);
  const Batch batch = make_batch({{4, 5, 6}}, {});
  const auto state = model->start(batch.source, batch.source_len, batch.source_lengths);
  std::vector<std::int64_t> bytes;
  for (int word = 0; word < 17; ++word) {
    step(*model, *state, {4});
    bytes.push_back(state->bytes());
  }
  const std::int64_t page = bytes[8] - bytes[7];
  EXPECT_GT(page, 0);
  for (int word = 0; word < 17; ++word)
    EXPECT_EQ(bytes[static_cast<std::size_t>(word)], bytes[0] + word / 8 * page) << word;
}

TEST_P(Consistency, CapturesEveryLayerAndHeadAsWeights) {
  const auto model = GetParam().make(0.0f, 61);
  const Batch batch = make_batch({{4, 5, 6}, {7}}, {{8}, {9, 10}});
  nn::Context context;
  Capture capture, alignment;
  alignment.scope = Capture::Scope::alignment;
  std::int64_t evaluations = 0;
  model->hidden(context, batch, &capture, &evaluations);
  model->hidden(context, batch, &alignment, nullptr);
  const bool transformer = GetParam().name.starts_with("transformer");
  const auto layers = static_cast<std::size_t>(GetParam().attentions.cross);  // of the decoder
  ASSERT_EQ(capture.size(), transformer ? 2 + 2 * layers : model->attends() ? 1u : 0u);
  EXPECT_EQ(alignment.size(), model->attends() ? 1u : 0u);
  EXPECT_EQ(evaluations > 0, model->attends());
  for (const CapturedWeights& captured : capture) {
    const Tensor& w = captured.weights;
    if (captured.of == CapturedWeights::Of::recurrence) {
      EXPECT_NE(captured.name.find("self layer"), std::string::npos) << captured.name;
      EXPECT_EQ(!w, captured.name.ends_with(" mamba")) << captured.name;
      if (w) EXPECT_EQ(w.shape(), (Shape{2, 2, w.size(3), w.size(3)})) << captured.name;
      continue;
    }
    ASSERT_EQ(w.rank(), 4) << captured.name;
    EXPECT_EQ(w.size(1), transformer ? 2 : 1);
    for (std::int64_t row = 0; row < w.count() / w.size(3); ++row) {
      double sum = 0.0;
      for (std::int64_t k = 0; k < w.size(3); ++k)
        sum += static_cast<double>(w.data<float>()[row * w.size(3) + k]);
      EXPECT_NEAR(sum, 1.0, 1e-5) << captured.name;
    }
  }
  const Tensor a = alignment_of(capture, *model), b = alignment_of(alignment, *model);
  ASSERT_EQ(a.empty(), b.empty());
  if (a) EXPECT_TRUE(std::equal(a.data<float>(), a.data<float>() + a.count(), b.data<float>()));
}

// Multiply-adds of products while sources of such lengths are read.
double products_of(SequenceToSequence& model, const std::vector<std::int64_t>& lengths) {
  Sentences sources;
  for (const std::int64_t length : lengths)
    sources.emplace_back(static_cast<std::size_t>(length), first_word);
  const Batch batch = make_batch(sources, {}, 2, 3, SourceEnd::as_given);
  Profile profile(0);
  const auto state = model.start(batch.source, batch.source_len, batch.source_lengths);
  profile.stop();
  double sum = 0.0;
  for (const ProfileTotal& total : profile.totals()) {
    if (total.label->part == ProfilePart::products) sum += total.work.multiply_adds;
  }
  return sum;
}

TEST(Padding, OfSourcesCostsNoProductsOfTheEncoder) {
  const auto model = make_transformer({.vocabulary = tiny_vocabulary,
                                       .dim = 8,
                                       .feed_forward = 32,
                                       .heads = 2,
                                       .encoder_layers = 4,
                                       .decoder_layers = 1},
                                      7);
  const double whole = products_of(*model, {40, 40, 40, 40}), padded = products_of(*model, {40, 1, 1, 1});
  ASSERT_GT(whole, 0.0);
  // 43 of 160 rows in the encoder, whose four layers have 12 products of 8 x 8 each for a row; the decoder's
  // keys and values have two, of all rows.
  EXPECT_NEAR(padded / whole, (43.0 * 48 + 160 * 2) / (160.0 * 48 + 160 * 2), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Models, Consistency, testing::ValuesIn(every_kind()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(WithoutConfig, Consistency, testing::ValuesIn(kinds_without_config()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fovea::models
