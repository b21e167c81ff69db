// Initial values and learning rates of the scores of an RNN's attention. At any width, and for every form
// of the score, they behave like those of the scaled dot product. Without that, the softmax of unscaled
// scores put all weight on one key within 25 updates.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <vector>

#include "fovea/core/philox.h"
#include "fovea/models/rnn.h"
#include "fovea/nn/optimizer.h"
#include "models/tiny.h"

namespace fovea::models {
namespace {

using Vector = std::vector<double>;

constexpr std::int64_t rank = 32;
const std::vector<std::int64_t> widths{16, 96, 256};
const std::map<std::string, RnnAttention> forms{{"dot", RnnAttention::dot},
                                                {"scaled dot", RnnAttention::scaled_dot},
                                                {"general", RnnAttention::general},
                                                {"low-rank", RnnAttention::low_rank}};

std::unique_ptr<SequenceToSequence> model_of(RnnAttention attention, std::int64_t hidden) {
  return make_rnn({.vocabulary = tiny_vocabulary,
                   .embedding = 6,
                   .hidden = hidden,
                   .attention = attention,
                   .query = QueryState::after,
                   .rank = rank},
                  5);
}

// A state of a recurrent network with all elements at their bounds, ±1.
Vector saturated(std::int64_t size, PhiloxStream& random) {
  Vector state(static_cast<std::size_t>(size));
  for (double& element : state) element = random.next_below(2) == 0 ? -1.0 : 1.0;
  return state;
}

Vector product(const Tensor& matrix, const Vector& x) {
  Vector result(static_cast<std::size_t>(matrix.size(0)));
  const float* values = matrix.data<float>();
  for (double& sum : result) {
    for (const double element : x) sum += static_cast<double>(*values++) * element;
  }
  return result;
}

// The definitions of include/fovea/attention/score.h over the model's tensors; `state` is the encoder's.
double score(SequenceToSequence& model, RnnAttention form, const Vector& query, const Vector& state) {
  const auto at = [&](const char* name) -> const Tensor& { return model.parameters().at(name).value; };
  const auto dot = [](const Vector& a, const Vector& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  };
  if (form == RnnAttention::general) return dot(state, product(at("attention.bilinear"), query));
  const Vector key = product(at("attention.key.weight"), state);
  if (form == RnnAttention::low_rank) return dot(key, product(at("attention.query.weight"), query));
  const double scale =
      form == RnnAttention::scaled_dot ? 1.0 / std::sqrt(static_cast<double>(query.size())) : 1.0;
  return scale * dot(key, query);
}

// The gradient of the loss -score.
void set_gradient(SequenceToSequence& model, RnnAttention form, const Vector& query, const Vector& state) {
  const auto set = [&](const char* name, const Vector& rows, const Vector& columns) {
    float* gradient = model.parameters().at(name).gradient.data<float>();
    for (const double row : rows) {
      for (const double column : columns) *gradient++ = static_cast<float>(-row * column);
    }
  };
  const auto at = [&](const char* name) -> const Tensor& { return model.parameters().at(name).value; };
  if (form == RnnAttention::general) {
    set("attention.bilinear", state, query);
  } else if (form == RnnAttention::low_rank) {
    const Vector key = product(at("attention.key.weight"), state);
    set("attention.key.weight", product(at("attention.query.weight"), query), state);
    set("attention.query.weight", key, query);
  } else {
    set("attention.key.weight", query, state);
  }
}

// Xavier's matrices [out, in] have elements of variance 2 / (in + out); states here have elements of ±1.
// The variance of a score is then a product of sums, divided by the number of its products.
double expected_deviation(RnnAttention form, std::int64_t hidden) {
  const auto h = static_cast<double>(hidden), r = static_cast<double>(rank);
  if (form == RnnAttention::low_rank) return std::sqrt(8.0 * h * h / ((2.0 * h + r) * (h + r)));
  return std::sqrt(4.0 / 3.0);
}

TEST(ScoreStart, HasADeviationNearOneAtAnyWidth) {
  for (const auto& [name, form] : forms) {
    for (const std::int64_t hidden : widths) {
      const auto model = model_of(form, hidden);
      PhiloxStream random(7);
      constexpr int pairs = 500;
      double squares = 0.0;
      for (int i = 0; i < pairs; ++i) {
        const Vector query = saturated(hidden, random), state = saturated(2 * hidden, random);
        squares += std::pow(score(*model, form, query, state), 2);
      }
      const double expected = expected_deviation(form, hidden);
      EXPECT_LT(expected, 2.0);
      EXPECT_GT(expected, 0.5);
      // The mean of 500 squares of a normal number is off by 6 %, and its root by 3 %. A matrix of 16 × 32
      // adds 4 %.
      EXPECT_NEAR(std::sqrt(squares / pairs), expected, 0.2 * expected) << name << ", width " << hidden;
    }
  }
}

TEST(ScoreStart, AnUpdateMovesNoScoreFurtherThanTheScaledDotProduct) {
  for (const std::int64_t hidden : widths) {
    std::map<std::string, double> moved;
    for (const auto& [name, form] : forms) {
      const auto model = model_of(form, hidden);
      PhiloxStream random(11);
      const Vector query = saturated(hidden, random), state = saturated(2 * hidden, random);
      const double before = score(*model, form, query, state);
      set_gradient(*model, form, query, state);
      nn::Adam(model->parameters(), {}).step(1e-4);
      moved[name] = score(*model, form, query, state) - before;
    }
    // All 2h·h elements move by the rate, in the direction of the score. The score is divided by sqrt(h).
    const double expected = 1e-4 * 2.0 * std::pow(static_cast<double>(hidden), 1.5);
    EXPECT_NEAR(moved["scaled dot"], expected, 0.01 * expected);
    EXPECT_NEAR(moved["dot"], expected, 0.01 * expected) << hidden;
    EXPECT_NEAR(moved["general"], expected, 0.01 * expected) << hidden;
    // Two factors of another size: fewer products, and each changes by both of its factors.
    EXPECT_GT(moved["low-rank"], 0.25 * expected) << hidden;
    EXPECT_LT(moved["low-rank"], 2.0 * expected) << hidden;
  }
}

// Keys are learned projections, so q·(U k) and q·(U' k) / sqrt(d) are the same family of functions. They
// have the same initial values and train in the same way. The width is 16, so that sqrt(d) is a power of
// two and nothing is rounded differently.
TEST(ScoreStart, TheDotProductTrainsLikeTheScaledOne) {
  const Sentences sources = random_sentences(6, 5, 1), targets = random_sentences(6, 5, 2);
  std::map<RnnAttention, std::vector<float>> losses;
  for (const RnnAttention form : {RnnAttention::dot, RnnAttention::scaled_dot}) {
    const auto model = model_of(form, 16);
    nn::Adam adam(model->parameters(), {.clip_norm = 0.5});
    for (int step = 0; step < 30; ++step) {
      autograd::Tape tape;
      nn::Context context{&tape, 0, 0};
      const nn::Var loss =
          model->loss(context, make_batch(sources, targets), {.reduction = {.scale = 0.05f}}, nullptr);
      losses[form].push_back(*loss.value().data<float>());
      tape.backward(loss);
      adam.step(1e-2);
    }
  }
  EXPECT_LT(losses[RnnAttention::dot].back(), 0.7f * losses[RnnAttention::dot].front());
  for (std::size_t i = 0; i < 30; ++i)
    EXPECT_NEAR(losses[RnnAttention::dot][i], losses[RnnAttention::scaled_dot][i], 1e-5f) << "update " << i;
}

}  // namespace
}  // namespace fovea::models
