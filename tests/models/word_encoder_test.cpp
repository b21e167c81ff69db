// An encoder of words that are sums of features.
#include "fovea/models/word_encoder.h"

#include <gtest/gtest.h>

#include "fovea/autograd/ops.h"

namespace fovea::models {
namespace {

const std::vector<FeatureSentence> sentences{{{1, 2, 3}, {4}, {5, 6}}, {{7, 2}}, {{1, 2, 3}, {4}}};

const WordEncoderConfig tiny{.features = 8, .dim = 8, .feed_forward = 12, .heads = 2, .layers = 2};

std::vector<float> encode(const WordEncoder& encoder, std::span<const std::size_t> index,
                          const Mask& mask = KeyLengths{}) {
  nn::Context context;
  const Tensor rows = encoder(context, pad(sentences, index), mask).value();
  return {rows.data<float>(), rows.data<float>() + rows.count()};
}

TEST(PadWords, SideBySide) {
  const std::size_t index[] = {1, 0};
  const PaddedWords padded = pad(sentences, index);
  EXPECT_EQ(padded.size, 2);
  EXPECT_EQ(padded.length, 3);
  EXPECT_EQ(padded.lengths, (std::vector<std::int64_t>{1, 3}));
  EXPECT_EQ(padded.counts, (std::vector<std::int64_t>{2, 0, 0, 3, 1, 2}));
  EXPECT_EQ(padded.ids, (std::vector<std::int32_t>{7, 2, 1, 2, 3, 4, 5, 6}));
}

TEST(PadWords, RefusesWrongArguments) {
  const std::size_t outside[] = {3}, first[] = {0};
  EXPECT_THROW(pad(sentences, {}), InvalidArgument);
  EXPECT_THROW(pad(sentences, outside), InvalidArgument);
  EXPECT_THROW(pad(std::vector<FeatureSentence>{{}}, first), InvalidArgument);
  EXPECT_THROW(pad(std::vector<FeatureSentence>{{{1}, {}}}, first), InvalidArgument);
}

TEST(WordEncoder, ASentenceDoesNotSeeItsNeighbours) {
  nn::ParameterSet set(1);
  const WordEncoder encoder(set, "encoder", tiny);
  const std::size_t alone[] = {2}, beside[] = {2, 0};
  const std::vector<float> a = encode(encoder, alone), b = encode(encoder, beside);
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5f);
}

TEST(WordEncoder, MaskOfItselfAloneKeepsWordsApart) {
  nn::ParameterSet set(1);
  const WordEncoder encoder(set, "encoder", tiny);
  const std::size_t longer[] = {0}, shorter[] = {2};
  const Mask itself = KeyLengths{} & SlidingWindow{.lookback = 0, .lookahead = 0};
  const std::vector<float> a = encode(encoder, longer, itself), b = encode(encoder, shorter, itself);
  for (std::size_t i = 0; i < b.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5f);
  const std::vector<float> all = encode(encoder, longer);
  EXPECT_GT(std::abs(all[0] - a[0]), 1e-3f);
}

TEST(WordEncoder, WordDropoutLeavesTheFirstFeature) {
  nn::ParameterSet set(1);
  WordEncoderConfig config = tiny;
  config.word_dropout = 1.0f;
  const WordEncoder encoder(set, "encoder", config);
  const std::size_t index[] = {0};
  const auto gradient_of_row = [&](nn::Context context, std::int64_t row) {
    autograd::Tape tape;
    context.tape = &tape;
    set.zero_gradients();
    tape.backward(sum(multiply(encoder.embed(context, pad(sentences, index)),
                               encoder.embed(context, pad(sentences, index)))));
    const float* from = set.at("encoder.embed_features.weight").gradient.data<float>() + row * tiny.dim;
    double length = 0.0;
    for (std::int64_t i = 0; i < tiny.dim; ++i) length += static_cast<double>(from[i]) * from[i];
    return length;
  };
  EXPECT_GT(gradient_of_row({}, 1), 0.0) << "the first feature";
  EXPECT_EQ(gradient_of_row({}, 2), 0.0) << "the others";
  EXPECT_GT(gradient_of_row({}, 4), 0.0) << "of a word that has no other";
}

}  // namespace
}  // namespace fovea::models
