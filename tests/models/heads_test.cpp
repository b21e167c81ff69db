// What is made of the numbers of heads. tests/models/heads_oracle.py compares with transformers.
#include "fovea/models/heads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "fovea/core/error.h"

namespace fovea::models {
namespace {

// Logits whose softmax is these probabilities.
Tensor logits_of(const std::vector<std::vector<double>>& rows) {
  Tensor logits(DType::f32, {std::ssize(rows), std::ssize(rows.front())});
  float* x = logits.data<float>();
  for (const std::vector<double>& row : rows)
    for (const double p : row) *x++ = static_cast<float>(std::log(p) + 3.0);
  return logits;
}

TEST(Scores, AreTheirDefinitions) {
  const std::vector<float> logits{-3.0f, 0.5f, 80.0f, 79.0f};
  const auto sigmoid = scores_of(ScoreFunction::sigmoid, logits);
  const auto softmax = scores_of(ScoreFunction::softmax, logits);
  const auto none = scores_of(ScoreFunction::none, logits);
  EXPECT_NEAR(std::accumulate(softmax.begin(), softmax.end(), 0.0), 1.0, 1e-15);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    EXPECT_EQ(none[i], logits[i]);
    EXPECT_NEAR(std::log(softmax[i] / softmax[2]), logits[i] - logits[2], 1e-12);
    EXPECT_NEAR(1.0 / sigmoid[i] - 1.0, std::exp(-logits[i]), 1e-5);
  }
}

const std::vector<std::string> names{"O", "B-PER", "I-PER", "LOC"};
// Five ids that are three words: micro|soft, and, new|york.
const std::vector<TokenPlace> places{
    {0, 5, true}, {5, 9, false}, {10, 13, true}, {14, 17, true}, {17, 21, false}};
const Tensor tags = logits_of({{0.1, 0.6, 0.2, 0.1},
                               {0.2, 0.0001, 0.7999, 0.0},
                               {0.7, 0.1, 0.1, 0.1},
                               {0.4, 0.0001, 0.2999, 0.3},
                               {0.0001, 0.05, 0.0499, 0.9}});

std::string shown(const std::vector<TaggedSpan>& spans) {
  std::string text;
  for (const TaggedSpan& span : spans)
    text += span.label + " " + std::to_string(span.begin) + "-" + std::to_string(span.end) + " " +
            std::to_string(std::lround(1e4 * span.score)) + "|";
  return text;
}

TEST(TaggedSpans, JoinIdsToWordsAndWordsToSpans) {
  const auto spans = [&](TagJoin join) { return shown(tagged_spans(tags, places, names, join)); };
  EXPECT_EQ(spans(TagJoin::none), "B-PER 0-5 6000|I-PER 5-9 7999|LOC 17-21 9000|");
  EXPECT_EQ(spans(TagJoin::simple), "PER 0-9 7000|LOC 17-21 9000|");
  // The first id of the last word says O, and the second one is surer of LOC.
  EXPECT_EQ(spans(TagJoin::first), "PER 0-9 6000|");
  EXPECT_EQ(spans(TagJoin::max), "PER 0-9 7999|LOC 14-21 9000|");
  EXPECT_EQ(spans(TagJoin::average), "PER 0-9 5000|LOC 14-21 6000|");
}

TEST(TaggedSpans, ABeginsASpanAndAnotherKindToo) {
  const auto one = [](std::size_t best) {
    std::vector<double> row(4, 0.1);
    row[best] = 0.7;
    return row;
  };
  // B-PER I-PER B-PER LOC LOC: three spans.
  const Tensor rows = logits_of({one(1), one(2), one(1), one(3), one(3)});
  EXPECT_EQ(shown(tagged_spans(rows, places, names, TagJoin::simple)),
            "PER 0-9 7000|PER 10-13 7000|LOC 14-21 7000|");
  EXPECT_EQ(shown(tagged_spans(Tensor::zeros(DType::f32, {0, 4}), {}, names, TagJoin::first)), "");
}

TEST(TaggedSpans, RefuseOtherShapes) {
  EXPECT_THROW(tagged_spans(tags, std::span(places).first(4), names, TagJoin::simple), InvalidArgument);
  EXPECT_THROW(tagged_spans(tags, places, std::span(names).first(3), TagJoin::simple), InvalidArgument);
}

// Against every pair of a begin and an end.
TEST(AnswerSpans, AreTheMostProbableOfAll) {
  constexpr std::int64_t ids = 23;
  const Tensor logits = Tensor::normal({ids, 2}, 4);
  std::vector<AnswerRole> roles(ids, AnswerRole::context);
  roles[0] = AnswerRole::none;
  for (const int i : {1, 2, 3, 9, 22}) roles[static_cast<std::size_t>(i)] = AnswerRole::outside;
  double sums[2] = {};
  const auto weight = [&](std::int64_t id, int side) {
    return std::exp(static_cast<double>(logits.data<float>()[2 * id + side]));
  };
  for (std::int64_t i = 0; i < ids; ++i) {
    if (roles[static_cast<std::size_t>(i)] == AnswerRole::outside) continue;
    for (const int side : {0, 1}) sums[side] += weight(i, side);
  }
  for (const std::int64_t longest : {1, 4, 100}) {
    std::vector<double> all;
    for (std::int64_t s = 0; s < ids; ++s)
      for (std::int64_t e = s; e < std::min(ids, s + longest); ++e)
        if (roles[static_cast<std::size_t>(s)] == AnswerRole::context &&
            roles[static_cast<std::size_t>(e)] == AnswerRole::context)
          all.push_back(weight(s, 0) / sums[0] * weight(e, 1) / sums[1]);
    std::sort(all.rbegin(), all.rend());
    const auto spans = answer_spans(logits, roles, {.longest = longest, .count = 7});
    ASSERT_EQ(spans.size(), 7u);
    for (std::size_t i = 0; i < spans.size(); ++i) {
      EXPECT_NEAR(spans[i].score, all[i], 1e-12);
      EXPECT_LT(spans[i].last - spans[i].first, longest);
      EXPECT_NEAR(spans[i].score, weight(spans[i].first, 0) / sums[0] * weight(spans[i].last, 1) / sums[1],
                  1e-12);
    }
  }
  EXPECT_TRUE(answer_spans(logits, std::vector<AnswerRole>(ids, AnswerRole::outside)).empty());
  EXPECT_THROW(answer_spans(logits, std::span(roles).first(5)), InvalidArgument);
  for (const std::int64_t longest : {0, -3})
    EXPECT_THROW(answer_spans(logits, roles, {.longest = longest}), InvalidArgument);
  EXPECT_EQ(answer_spans(logits, roles, {.longest = std::numeric_limits<std::int64_t>::max()}).size(), 1u);
}

}  // namespace
}  // namespace fovea::models
