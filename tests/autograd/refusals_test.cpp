// Errors of ops, tensors without rows, release of nodes by the tape, and sums that are the same for every
// number of threads.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fovea/autograd/ops.h"
#include "fovea/autograd/recurrence.h"
#include "fovea/autograd/residual.h"
#include "fovea/core/executor.h"
#include "fovea/core/philox.h"

namespace fovea::autograd {
namespace {

Tensor random_tensor(Shape shape, std::uint64_t seed) {
  Tensor x(DType::f32, shape);
  PhiloxStream random(seed);
  for (std::int64_t i = 0; i < x.count(); ++i) x.data<float>()[i] = 2.0f * random.next_uniform() - 1.0f;
  return x;
}

Var zeros(Shape shape) {
  return Tensor::zeros(DType::f32, shape);
}

// The call throws an error that names the function.
template <class Call>
void expect_refused(const std::string& function, Call&& call) {
  try {
    call();
    ADD_FAILURE() << function << " accepted it";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.function(), function) << error.what();
  }
}

TEST(Refusals, ElementWiseAndShapes) {
  expect_refused("add", [] { add(zeros({2, 3}), zeros({3, 2})); });
  expect_refused("multiply", [] { multiply(zeros({2}), zeros({1})); });
  for (const float rate : {-0.1f, 1.0f, std::nanf("")})
    expect_refused("dropout", [=] { dropout(zeros({2}), rate, 1, 1); });
  expect_refused("reshape", [] { reshape(zeros({2, 3}), {7}); });
  expect_refused("concat", [] { concat({}, 0); });
  const Var parts[] = {zeros({2, 3}), zeros({2, 4})};
  expect_refused("concat", [&] { concat(parts, 0); });
  expect_refused("concat", [&] { concat(parts, 2); });
  expect_refused("slice", [] { slice(zeros({2, 3}), 1, 2, 2); });
  expect_refused("slice", [] { slice(zeros({2, 3}), 1, -1, 1); });
  expect_refused("slice", [] { slice(zeros({2, 3}), -3, 0, 1); });
  const std::int64_t one[] = {0}, outside[] = {0, 3};
  expect_refused("gather_rows", [&] { gather_rows(zeros({2, 3, 4}), one); });
  expect_refused("gather_rows", [&] { gather_rows(zeros({2, 3, 4}), outside); });
  expect_refused("gather_rows", [&] { gather_rows(zeros({2, 3}), outside); });
  expect_refused("gather_rows", [&] { gather_rows(zeros({1, 3, 4}), outside, 2); });
  expect_refused("gather_rows", [&] { gather_rows(zeros({2, 3, 4}), outside, 2); });
  expect_refused("gather_rows", [&] { gather_rows(zeros({2, 3, 4}), outside, 0); });
  const float mask[] = {1, 0};
  expect_refused("blend_rows", [&] { blend_rows(mask, zeros({3, 1}), zeros({3, 1})); });
  expect_refused("blend_rows", [&] { blend_rows(mask, zeros({2, 1}), zeros({2, 2})); });
}

TEST(Refusals, Layers) {
  expect_refused("linear", [] { linear(zeros({2, 3}), zeros({4, 2}), Var()); });
  expect_refused("linear", [] { linear(zeros({2, 3}), zeros({3}), Var()); });
  expect_refused("linear", [] { linear(zeros({2, 3}), zeros({4, 3}), zeros({3})); });
  const std::int32_t high[] = {5}, negative[] = {-1};
  expect_refused("embedding", [&] { embedding(zeros({5, 2}), high); });
  expect_refused("embedding", [&] { embedding(zeros({5, 2}), negative); });
  const std::int64_t one_id[] = {1}, two_ids[] = {2}, none[] = {0}, below_zero[] = {-1, 2};
  const std::int32_t inside[] = {4};
  const float two_weights[] = {1, 1};
  expect_refused("embedding_sums", [&] { embedding_sums(zeros({5, 2}), high, one_id); });
  expect_refused("embedding_sums", [&] { embedding_sums(zeros({5, 2}), negative, one_id); });
  expect_refused("embedding_sums", [&] { embedding_sums(zeros({5}), inside, one_id); });
  expect_refused("embedding_sums", [&] { embedding_sums(zeros({5, 2}), inside, two_ids); });
  expect_refused("embedding_sums", [&] { embedding_sums(zeros({5, 2}), inside, none); });
  expect_refused("embedding_sums", [&] { embedding_sums(zeros({5, 2}), inside, below_zero); });
  expect_refused("embedding_sums", [&] { embedding_sums(zeros({5, 2}), inside, one_id, two_weights); });
  expect_refused("layer_norm", [] { layer_norm(zeros({2, 3}), zeros({4}), zeros({3}), 1e-5f); });
  expect_refused("layer_norm", [] { layer_norm(zeros({2, 3}), zeros({3}), zeros({4}), 1e-5f); });
  for (const float epsilon : {-1e-5f, std::nanf(""), INFINITY}) {
    expect_refused("layer_norm", [=] { layer_norm(zeros({2, 3}), zeros({3}), Var(), epsilon); });
    expect_refused("rms_norm", [=] { rms_norm(zeros({2, 3}), zeros({3}), epsilon); });
  }
  EXPECT_NO_THROW(rms_norm(zeros({2, 3}), zeros({3}), 0.0f));
  const std::int32_t targets[] = {0, 4};
  const auto loss = [&](const Var& x, const Var& weight, const Var& bias, std::size_t count) {
    linear_cross_entropy(x, weight, bias, std::span(targets, count), 0.0f);
  };
  const std::string name = "linear_cross_entropy";
  expect_refused(name, [&] { loss(zeros({2, 3}), zeros({4, 3}), Var(), 2); });  // class 4 of 4
  expect_refused(name, [&] { loss(zeros({2, 3}), zeros({5, 3}), Var(), 1); });
  expect_refused(name, [&] { loss(zeros({2, 3}), zeros({5, 2}), Var(), 2); });
  expect_refused(name, [&] { loss(zeros({2, 3}), zeros({5, 3}), zeros({4}), 2); });
  expect_refused("log_softmax_rows", [] {
    Tensor logits = Tensor::zeros(DType::f32, {3});
    log_softmax_rows(logits);
  });
  expect_refused(name, [&] { loss(zeros({2, 1, 3}), zeros({5, 3}), Var(), 2); });
  for (const float smoothing : {-0.1f, 1.0f, std::nanf("")})
    expect_refused(name, [&] {
      linear_cross_entropy(zeros({2, 3}), zeros({5, 3}), Var(), targets, smoothing);
    });
}

// Those that are nothing, and shapes alone, such as the values of matrices that are read packed.
TEST(Refusals, ValuesWithoutElements) {
  const Var two = zeros({2});
  for (const Var& none : {Var(), Var(Tensor::without_elements(DType::f32, {2}))}) {
    expect_refused("add", [&] { add(none, none); });
    expect_refused("add", [&] { add(two, none); });
    expect_refused("multiply", [&] { multiply(none, none); });
    expect_refused("scale", [&] { scale(none, 2.0f); });
    expect_refused("tanh", [&] { tanh(none); });
    expect_refused("sigmoid", [&] { sigmoid(none); });
    expect_refused("activate", [&] { relu(none); });
    expect_refused("gated", [&] { gated(Activation::silu, none, none); });
    expect_refused("dropout", [&] { dropout(none, 0.5f, 1, 1); });
    expect_refused("sum", [&] { sum(none); });
    expect_refused("normalize_rows", [&] { normalize_rows(none); });
    expect_refused("softplus", [&] { softplus(none); });
    expect_refused("exp", [&] { exp(none); });
    expect_refused("clamp", [&] { clamp(none, 0.0f, 1.0f); });
    expect_refused("multiply_groups", [&] { multiply_groups(none, none); });
    expect_refused("concat", [&] { concat({&none, 1}, 0); });
    expect_refused("slice", [&] { slice(none, 0, 0, 1); });
    expect_refused("layer_norm", [&] { layer_norm(none, two, Var(), 1e-5f); });
    expect_refused("rms_norm", [&] { rms_norm(zeros({3, 1}), none, 1e-5f); });
    expect_refused("residual", [&] { residual(none, none); });
    expect_refused("linear", [&] { linear(none, zeros({4, 2}), Var()); });
    expect_refused("squared_error", [&] { squared_error(none, none.value()); });
    Tensor logits = none.value();
    expect_refused("scale_and_cap", [&] { scale_and_cap(logits, 1.0f, {}); });
  }
  const Var matrix = Tensor::without_elements(DType::f32, {4, 2});
  const std::int32_t ids[] = {1};
  expect_refused("linear", [&] { linear(two, matrix, Var()); });
  expect_refused("embedding", [&] { embedding(matrix, ids); });
  expect_refused("linear_cross_entropy", [&] { linear_cross_entropy(zeros({1, 2}), matrix, Var(), ids); });
}

TEST(Refusals, ReductionsAndLosses) {
  const std::int64_t none[] = {0, 1}, beyond[] = {1, 4}, one[] = {1};
  for (const auto lengths : {std::span<const std::int64_t>(none), std::span<const std::int64_t>(beyond),
                             std::span<const std::int64_t>(one)})
    expect_refused("pool", [=] { pool(Pool::max, zeros({2, 3, 4}), lengths); });
  expect_refused("pool", [] { pool(Pool::mean, zeros({3, 4}), {}); });
  expect_refused("inner_products", [] { inner_products(zeros({2, 3, 4}), zeros({2, 3, 5})); });
  expect_refused("inner_products", [] { inner_products(zeros({2, 3, 4}), zeros({1, 3, 4})); });
  expect_refused("inner_products", [] { inner_products(zeros({3, 4}), zeros({3, 4})); });
  const std::vector<std::int32_t> targets{0, 4};
  const std::vector<float> weight{1.0f};
  for (const auto& [name, loss] : {std::pair{"cross_entropy", &cross_entropy},
                                   std::pair{"negative_log_likelihood", &negative_log_likelihood}}) {
    expect_refused(name, [&, loss = loss] { loss(zeros({2, 4}), targets, {}, nullptr); });  // class 4 of 4
    expect_refused(name, [&, loss = loss] { loss(zeros({3, 5}), targets, {}, nullptr); });
    expect_refused(name, [&, loss = loss] { loss(zeros({2, 5}), targets, {weight}, nullptr); });
    expect_refused(name, [&, loss = loss] { loss(zeros({2, 5, 1}), targets, {}, nullptr); });
  }
  const auto tensor = [](Shape shape) { return Tensor::zeros(DType::f32, shape); };
  expect_refused("squared_error", [&] { squared_error(zeros({2, 3}), tensor({3, 2})); });
  expect_refused("squared_error", [&] { squared_error(zeros({2, 3}), tensor({2, 3}), {weight}); });
}

TEST(Refusals, CellsAndAttention) {
  const auto step = [](Shape gates, Shape state, Shape weight, Shape bias) {
    cell_step(Cell::gru, zeros(gates), zeros(state), zeros(weight), zeros(bias));
  };
  EXPECT_NO_THROW(step({2, 9}, {2, 3}, {9, 3}, {9}));
  EXPECT_THROW(step({2, 3}, {2, 3}, {9, 3}, {9}), InvalidArgument);
  EXPECT_THROW(step({2, 9}, {3, 3}, {9, 3}, {9}), InvalidArgument);
  EXPECT_THROW(step({2, 9}, {2, 3}, {6, 3}, {9}), InvalidArgument);
  EXPECT_THROW(step({2, 9}, {2, 3}, {9, 3}, {6}), InvalidArgument);
  const std::int64_t lengths[] = {1};
  expect_refused("cell_sequence", [&] {
    cell_sequence(Cell::rnn, Direction::forward, zeros({2, 4, 3}), Var(), zeros({3, 3}), zeros({3}), lengths);
  });
  for (const std::int64_t length : {-1, 5}) {
    const std::int64_t outside[] = {length, 4};
    expect_refused("cell_sequence", [&] {
      cell_sequence(Cell::rnn, Direction::forward, zeros({2, 4, 3}), Var(), zeros({3, 3}), zeros({3}),
                    outside);
    });
  }
  const AttentionCall two{.num_query_heads = 2, .num_kv_heads = 2};
  expect_refused("attention", [&] { attention(two, zeros({1, 3, 5}), zeros({1, 3, 4}), zeros({1, 3, 4})); });
  expect_refused("attention", [&] { attention(two, zeros({1, 3, 4}), zeros({2, 3, 4}), zeros({1, 3, 4})); });
  expect_refused("attention", [&] { attention(two, zeros({3, 4}), zeros({1, 3, 4}), zeros({1, 3, 4})); });
}

TEST(Refusals, Rotation) {
  const RopeTable table({.rotary_dim = 4}, 8, DType::f32);
  const Var x = Tensor::zeros(DType::f32, {1, 3, 8});
  EXPECT_NO_THROW(rotate(x, table, 2, 5));
  EXPECT_THROW(rotate(x, table, 2, 6), InvalidArgument);
  EXPECT_THROW(rotate(x, table, 2, -1), InvalidArgument);
  EXPECT_THROW(rotate(x, table, 3), InvalidArgument);
  EXPECT_THROW(rotate(x, table, 0), InvalidArgument);
  EXPECT_THROW(rotate(x, table, 4), InvalidArgument);  // heads of dimension 2, but a table that rotates 4
  EXPECT_THROW(rotate(Tensor::zeros(DType::f32, {3, 8}), table, 2), InvalidArgument);
}

TEST(Empty, ZeroRowsGiveZeroRows) {
  Parameter weight{"w", random_tensor({4, 3}, 1), Tensor::zeros(DType::f32, {4, 3})};
  Tape tape;
  const Var w = tape.use(weight);
  const Var y = linear(zeros({0, 3}), w, Var());
  EXPECT_EQ(y.shape(), (Shape{0, 4}));
  const std::vector<std::int32_t> ignored{-1, -1};
  CrossEntropyStats stats;
  const Var loss = linear_cross_entropy(random_tensor({2, 3}, 2), w, Var(), ignored, 0.1f, {}, &stats);
  EXPECT_EQ(loss.value().data<float>()[0], 0.0f);
  EXPECT_EQ(stats.tokens, 0);
  // Zero rows pass their gradient on, too: a product over no rows adds nothing.
  Node* root = tape.record([y, loss](const Tensor& d) {
    accumulate(y, Tensor::zeros(DType::f32, {0, 4}));
    accumulate(loss, d.clone());
  });
  tape.backward(Var(Tensor::zeros(DType::f32, {1}), root));
  for (int i = 0; i < 12; ++i) EXPECT_EQ(weight.gradient.data<float>()[i], 0.0f);
}

TEST(CrossEntropy, TrainsABiasAlone) {
  Parameter bias{"b", random_tensor({5}, 1), Tensor::zeros(DType::f32, {5})};
  const std::int32_t targets[] = {2};
  Tape tape;
  tape.backward(linear_cross_entropy(zeros({1, 3}), zeros({5, 3}), tape.use(bias), targets, 0.0f));
  double sum = 0.0;
  for (int i = 0; i < 5; ++i) sum += std::exp(static_cast<double>(bias.value.data<float>()[i]));
  for (int i = 0; i < 5; ++i) {  // softmax - one hot
    const double p = std::exp(static_cast<double>(bias.value.data<float>()[i])) / sum;
    EXPECT_NEAR(bias.gradient.data<float>()[i], p - (i == 2), 1e-6);
  }
}

TEST(CrossEntropy, CountsCorrectPredictionsAndLogLikelihood) {
  const float rows[] = {0, 3, 0, 1, 0, 0};
  const float identity[] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
  const std::int32_t targets[] = {1, 2};
  CrossEntropyStats stats;
  const Var loss =
      linear_cross_entropy(Tensor::from<float>(rows, {2, 3}), Tensor::from<float>(identity, {3, 3}), Var(),
                           targets, 0.3f, {.scale = 2.0f}, &stats);
  const double first = std::log(std::exp(3.0) + 2.0), second = std::log(std::exp(1.0) + 2.0);
  EXPECT_EQ(stats.correct, 1);
  EXPECT_NEAR(stats.log_likelihood, 3.0 - first - second, 1e-6);  // without smoothing
  EXPECT_NEAR(stats.loss, (first - 0.7 * 3.0 - 0.1 * 3.0) + (second - 0.1), 1e-6);
  EXPECT_NEAR(loss.value().data<float>()[0], 2.0 * stats.loss, 1e-5);
  Tensor logits = Tensor::from<float>(rows, {2, 3}).clone();
  log_softmax_rows(logits);
  EXPECT_NEAR(logits.data<float>()[1], 3.0 - first, 1e-6);
  EXPECT_NEAR(logits.data<float>()[5], -second, 1e-6);
}

// The data kept by a later op are released before an earlier op's backward runs.
TEST(Tape, ReleasesNodesWhileBackwardGoesOn) {
  Tape tape;
  auto kept = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = kept;
  bool released = false;
  const Var x(Tensor::zeros(DType::f32, {1}),
              tape.record([&](const Tensor&) { released = watch.expired(); }));
  const Var y(Tensor::zeros(DType::f32, {1}),
              tape.record([x, kept = std::move(kept)](const Tensor& d) { accumulate(x, d.clone()); }));
  EXPECT_FALSE(watch.expired());
  tape.backward(y);
  EXPECT_TRUE(released);
}

TEST(Tape, AddsGradientsOverUsesAndSteps) {
  Parameter p{"p", random_tensor({1}, 3), Tensor::zeros(DType::f32, {1})};
  const float value = p.value.data<float>()[0];
  Tape tape;
  EXPECT_EQ(tape.use(p).node(), tape.use(p).node());
  tape.clear();
  for (int step = 1; step <= 2; ++step) {  // one tape serves every step; gradients add until they are zeroed
    tape.backward(multiply(tape.use(p), tape.use(p)));
    EXPECT_FLOAT_EQ(p.gradient.data<float>()[0], static_cast<float>(step) * 2.0f * value);
  }
}

// Byte i % 16 of block i / 16 decides on element i. Counts end inside vectors and inside units of work;
// seed and stream have different bytes everywhere.
TEST(Dropout, DecidesByTheDocumentedByte) {
  const std::uint64_t seed = 0x0123456789abcdefu, stream = 0xfedcba9876543210u;
  const float rate = 0.25f, scale = 256.0f / 192.0f;
  for (const std::int64_t count : {1, 15, 17, 255, 257, 32768, 70003}) {
    const Tensor x = random_tensor({count}, 5), y = dropout(x, rate, seed, stream).value();
    for (std::int64_t i = 0; i < count; ++i) {
      const auto block = static_cast<std::uint32_t>(i / 16);
      const auto words = philox4x32({block, 0, 0x76543210u, 0xfedcba98u}, seed);
      const std::uint32_t byte = words[static_cast<std::size_t>(i % 16 / 4)] >> (8 * (i % 4)) & 0xffu;
      ASSERT_EQ(y.data<float>()[i], byte < 192 ? x.data<float>()[i] * scale : 0.0f) << count << " at " << i;
    }
  }
}

// Rates are multiples of 1/256, as the documentation says: 1/512 is the largest that drops nothing.
TEST(Dropout, DropsNothingUpToHalfOfItsResolution) {
  const Tensor x = random_tensor({32768}, 5);
  const auto dropped = [&](float rate) {
    const Tensor y = dropout(x, rate, 1, 2).value();
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < x.count(); ++i) count += y.data<float>()[i] != x.data<float>()[i];
    return count;
  };
  EXPECT_EQ(dropped(1.0f / 512.0f), 0);
  EXPECT_GT(dropped(1.0f / 500.0f), x.count() / 2);  // those that are kept are scaled
}

// Every op whose sums run over rows, large enough to be split.
TEST(Threads, TheirNumberChangesNoBit) {
  const auto run = [](Executor* executor) {
    set_default_executor(executor);
    std::vector<Parameter> p;
    for (const Shape& shape : {Shape{4, 100, 200}, Shape{200}, Shape{200}})
      p.push_back({"p", random_tensor(shape, 10 + p.size()), Tensor::zeros(DType::f32, shape)});
    Tape tape;
    const Var x = tape.use(p[0]);
    const Var normal = layer_norm(x, tape.use(p[1]), tape.use(p[2]), 1e-5f);
    const Var dropped = dropout(tanh(add(sigmoid(normal), relu(x))), 0.2f, 3, 4);
    const AttentionCall call{.num_query_heads = 5, .num_kv_heads = 5};
    const Var y = multiply(attention(call, dropped, x, normal), scale(x, 0.5f));
    Node* root = tape.record([y](const Tensor&) { accumulate(y, random_tensor(y.shape(), 20)); });
    tape.backward(Var(Tensor::zeros(DType::f32, {1}), root));
    std::vector<Tensor> results{y.value()};
    for (const Parameter& q : p) results.push_back(q.gradient);
    set_default_executor(nullptr);
    return results;
  };
  const auto three_threads = make_thread_pool(3);
  const auto expected = run(&serial_executor()), got = run(three_threads.get());
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(std::memcmp(expected[i].raw(), got[i].raw(), expected[i].bytes()), 0) << "result " << i;
}

}  // namespace
}  // namespace fovea::autograd
