#include "softmax.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "fovea/attention/mod.h"
#include "fovea/core/philox.h"
#include "fovea/plan/plan.h"
#include "gallery.h"

namespace scales {
namespace {

using namespace fovea;

Tensor normal_tensor(Shape shape, double deviation, PhiloxStream& random) {
  Tensor tensor(DType::f32, shape);
  for (std::int64_t i = 0; i < tensor.count(); ++i)
    tensor.data<float>()[i] = static_cast<float>(deviation) * random.next_normal();
  return tensor;
}

double length_of(const float* values, std::int64_t count) {
  double square = 0.0;
  for (std::int64_t i = 0; i < count; ++i) square += static_cast<double>(values[i]) * values[i];
  return std::sqrt(square);
}

}  // namespace

Saturation saturation(const Score& score, std::int64_t dim, std::uint64_t seed) {
  constexpr std::int64_t kRows = 256, kKeys = 64;
  PhiloxStream random(seed);
  // The engine does not return the derivative by a score. A bias that is added to each score has that
  // derivative, and a bias is a learned argument like any other.
  const AttentionPlan plan =
      make_plan({.score = score, .mods = {DenseBias{}}},
                {.query_len = kRows, .key_len = kKeys, .head_dim = dim, .value_dim = 1});
  const Tensor q = normal_tensor({1, 1, kRows, dim}, 1.0, random);
  const Tensor k = normal_tensor({1, 1, kKeys, dim}, 1.0, random);
  const Tensor v = normal_tensor({1, 1, kKeys, 1}, 1.0, random);
  const Tensor bias = Tensor::zeros(DType::f32, {1, 1, kRows, kKeys}), d_bias = bias.clone();
  const Tensor weights(DType::f32, {1, 1, kRows, kKeys}), output(DType::f32, {1, 1, kRows, 1});
  Tensor d_weights = normal_tensor({1, 1, kRows, kKeys}, 1.0, random);
  for (std::int64_t r = 0; r < kRows; ++r) {
    float* row = d_weights.data<float>() + r * kKeys;
    const auto length = static_cast<float>(length_of(row, kKeys));
    for (std::int64_t j = 0; j < kKeys; ++j) row[j] /= length;
  }
  const AttentionInputs inputs{.query = q, .key = k, .value = v, .arguments = {{"mods[0].bias", bias}}};
  AttentionOutputs outputs{.output = output};
  outputs.weights = weights;
  attend(plan, inputs, outputs);
  AttentionLoss loss{};
  loss.d_weights = d_weights;
  const AttentionGradients gradients{.arguments = {{"mods[0].bias", d_bias}}};
  attend_backward(plan, inputs, loss, gradients);
  Saturation mean;
  for (std::int64_t r = 0; r < kRows; ++r) {
    const float* row = weights.data<float>() + r * kKeys;
    mean.gradient += length_of(d_bias.data<float>() + r * kKeys, kKeys) / kRows;
    mean.largest += *std::max_element(row, row + kKeys) / static_cast<double>(kRows);
  }
  return mean;
}

namespace {

constexpr std::int64_t kBatch = 16, kLength = 32, kWidth = 128, kRank = 32;

// One score with all tensors that its calls need.
struct Subject {
  AttentionPlan plan;
  Tensor q, k, v, W, U, vector, output, lse, dq, dk, dv;
  AttentionInputs inputs;

  Subject(const Score& score, std::uint64_t seed)
      : plan(make_plan({.score = score}, {.batch = kBatch,
                                          .query_len = kLength,
                                          .key_len = kLength,
                                          .head_dim = kWidth,
                                          .value_dim = kWidth,
                                          .hidden = hidden_of(score)})) {
    PhiloxStream random(seed);
    const Shape rows{kBatch, 1, kLength, kWidth};
    q = normal_tensor(rows, 1.0, random), k = normal_tensor(rows, 1.0, random);
    v = normal_tensor(rows, 1.0, random);
    for (Tensor* made : {&output, &dq, &dk, &dv}) *made = Tensor(DType::f32, rows);
    lse = Tensor(DType::f32, {kBatch, 1, kLength});
    const double deviation = 1.0 / std::sqrt(static_cast<double>(kWidth));
    inputs = {.query = q, .key = k, .value = v};
    if (const std::int64_t hidden = hidden_of(score); hidden > 0) {
      W = normal_tensor({hidden, kWidth}, deviation, random);
      U = normal_tensor({hidden, kWidth}, deviation, random);
      inputs.arguments = {{"score.W", W}, {"score.U", U}};
      if (std::holds_alternative<Additive>(score)) {
        vector = normal_tensor({hidden}, deviation, random);
        inputs.arguments.set("score.v", vector);
      }
    } else if (std::holds_alternative<Bilinear>(score)) {
      W = normal_tensor({kWidth, kWidth}, deviation, random);
      inputs.arguments.set("score.W", W);
    }
  }
  static std::int64_t hidden_of(const Score& score) {
    return std::holds_alternative<Additive>(score)          ? kWidth
           : std::holds_alternative<LowRankBilinear>(score) ? kRank
                                                            : 0;
  }
  void forward() const { attend(plan, inputs, {.output = output, .log_sum_exp = lse}); }
  void backward() const {
    AttentionGradients gradients;
    gradients.query = dq, gradients.key = dk, gradients.value = dv;
    attend_backward(plan, inputs, output, lse, v, gradients);
  }
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

template <class Call>
double seconds_a_pair(Call&& call) {
  const gallery::Stopwatch stopwatch;
  call();
  return stopwatch.seconds() / static_cast<double>(kBatch * kLength * kLength);
}

}  // namespace

std::vector<Cost> costs(const std::vector<Score>& scores, std::int64_t repeats, std::uint64_t seed) {
  std::vector<Subject> subjects;
  subjects.reserve(scores.size());  // inputs are views of the subject's own tensors
  for (const Score& score : scores) subjects.emplace_back(score, seed);
  std::vector<std::vector<double>> forward(scores.size()), backward(scores.size());
  // Interleaved, so that a slow moment of the machine affects all scores; the first round warms up.
  for (std::int64_t repeat = 0; repeat <= repeats; ++repeat) {
    for (std::size_t i = 0; i < subjects.size(); ++i) {
      const double ahead = seconds_a_pair([&] { subjects[i].forward(); });
      const double back = seconds_a_pair([&] { subjects[i].backward(); });
      if (repeat == 0) continue;
      forward[i].push_back(ahead);
      backward[i].push_back(back);
    }
  }
  std::vector<Cost> medians;
  for (std::size_t i = 0; i < subjects.size(); ++i)
    medians.push_back({median(forward[i]), median(backward[i])});
  return medians;
}

}  // namespace scales
