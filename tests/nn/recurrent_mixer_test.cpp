// Layers with recurrences: gradients of every parameter, what their papers say of simple cases, and the
// same rows whether a text is read at once, in pieces or token by token.
#include "fovea/nn/recurrent_mixer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "fovea/attention/masks.h"
#include "fovea/core/executor.h"
#include "fovea/core/philox.h"
#include "fovea/nn/transformer.h"
#include "nn/compare.h"
#include "nn/mixer_kinds.h"
#include "nn/parameter_gradients.h"

namespace fovea::nn {
namespace {

constexpr std::int64_t dim = kind_dim;

// A kind that is added to the options has to be added here.
TEST(Kinds, AreAllThereAre) {
  std::vector<bool> seen(std::variant_size_v<RecurrentOptions>);
  for (const Kind& kind : kinds()) seen[kind.options.index()] = true;
  EXPECT_EQ(std::count(seen.begin(), seen.end(), false), 0);
}

class EveryKind : public ::testing::TestWithParam<Kind> {};

INSTANTIATE_TEST_SUITE_P(Kinds, EveryKind, ::testing::ValuesIn(kinds_and_variants()),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST_P(EveryKind, HasTheGradientOfEveryParameterAndOfItsInput) {
  ParameterSet set(3);
  const RecurrentMixer mixer(set, "mixer", dim, GetParam().options);
  Parameter& input = set.normal("x", {2, 21, dim}, 1.0f);
  disturb(set);
  expect_gradients(set, [&](Context& context) { return mixer(context, context.use(input), {}); });
}

// Rows of `states` [sequences, state_size], updated where they are.
std::vector<RecurrentMixer::State> in_place(const Tensor& states) {
  std::vector<RecurrentMixer::State> list;
  for (std::int64_t n = 0; n < states.size(0); ++n) {
    const TensorView row(states.data<float>() + n * states.size(1), Shape{states.size(1)});
    list.push_back({row, row});
  }
  return list;
}

// What a text gives that is read in pieces, [1, rows, dim].
Tensor read_in_pieces(const RecurrentMixer& mixer, const Tensor& x, const std::vector<std::int64_t>& pieces) {
  Context context{.products = autograd::Products::by_row};
  Tensor states = Tensor::zeros(DType::f32, {1, mixer.state_size()});
  std::vector<Var> rows;
  std::int64_t first = 0;
  for (const std::int64_t count : pieces) {
    const std::int64_t position[] = {first};
    rows.push_back(mixer(context, autograd::slice(Var(x), 1, first, count),
                         {.first = position, .states = in_place(states)}));
    first += count;
  }
  return autograd::concat(rows, 1).value();
}

TEST_P(EveryKind, GivesTheSameRowsInPiecesAndTokenByToken) {
  ParameterSet set(3);
  const RecurrentMixer mixer(set, "mixer", dim, GetParam().options);
  disturb(set);
  const Tensor x = Tensor::normal({1, 48, dim}, 9);
  const Tensor whole = read_in_pieces(mixer, x, {48});
  // Cuts at multiples of a chunk keep the bits. Steps have another order of sums.
  EXPECT_EQ(largest_difference(whole, read_in_pieces(mixer, x, {32, 16})), 0.0f);
  EXPECT_LT(largest_difference(whole, read_in_pieces(mixer, x, std::vector<std::int64_t>(48, 1))), 1e-4f);
  EXPECT_LT(largest_difference(whole, read_in_pieces(mixer, x, {7, 1, 3, 20, 17})), 1e-4f);
  const Tensor steps = read_in_pieces(mixer, x, std::vector<std::int64_t>(48, 1));
  EXPECT_EQ(largest_difference(steps, read_in_pieces(mixer, x, std::vector<std::int64_t>(12, 4))), 0.0f);
  // Without states, as in training.
  Context context{.products = autograd::Products::by_row};
  EXPECT_EQ(largest_difference(whole, mixer(context, Var(x), {}).value()), 0.0f);
}

// Sequences side by side, some of which read one token and some many.
TEST_P(EveryKind, GivesTheBitsOfASequenceAloneInAPackedBatch) {
  ParameterSet set(3);
  const RecurrentMixer mixer(set, "mixer", dim, GetParam().options);
  disturb(set);
  const std::int64_t counts[] = {1, 2, 20, 1, 16};
  Context context{.products = autograd::Products::by_row};
  const Tensor x = Tensor::normal({1, 40, dim}, 9);
  const std::int64_t starts[] = {0, 1, 3, 23, 24, 40}, first[] = {3, 0, 64, 5, 1};
  Tensor states = Tensor::normal({5, mixer.state_size()}, 2);
  // A sum of keys is positive.
  for (std::int64_t i = 0; i < states.count(); ++i)
    states.data<float>()[i] = std::abs(states.data<float>()[i]);
  const Tensor before = states.clone();
  const Tensor y =
      mixer(context, Var(x), {.starts = starts, .first = first, .states = in_place(states)}).value();
  for (std::size_t n = 0; n < 5; ++n) {
    Tensor state = Tensor::copy_of(ConstTensorView(before).slice(0, static_cast<std::int64_t>(n), 1));
    const Tensor alone = mixer(context, autograd::slice(Var(x), 1, starts[n], counts[n]),
                               {.first = std::span(first).subspan(n, 1), .states = in_place(state)})
                             .value();
    EXPECT_EQ(largest_difference(alone, Tensor::copy_of(ConstTensorView(y).slice(1, starts[n], counts[n]))),
              0.0f)
        << n;
    EXPECT_EQ(largest_difference(
                  state, Tensor::copy_of(ConstTensorView(states).slice(0, static_cast<std::int64_t>(n), 1))),
              0.0f)
        << n;
  }
}

TEST_P(EveryKind, HasTheSameBitsForAnyNumberOfThreads) {
  const auto run = [&](int threads) {
    const std::unique_ptr<Executor> pool = make_thread_pool(threads);
    set_default_executor(pool.get());
    ParameterSet set(3);
    const RecurrentMixer mixer(set, "mixer", dim, GetParam().options);
    disturb(set);
    autograd::Tape tape;
    Context context{.tape = &tape};
    const Var y = mixer(context, Var(Tensor::normal({3, 120, dim}, 9)), {});
    std::vector<float> bits(y.value().data<float>(), y.value().data<float>() + y.value().count());
    tape.backward(autograd::sum(autograd::multiply(y, y)));
    for (const Parameter& parameter : set.all())
      bits.insert(bits.end(), parameter.gradient.data<float>(),
                  parameter.gradient.data<float>() + parameter.gradient.count());
    set_default_executor(nullptr);
    return bits;
  };
  const std::vector<float> one = run(1);
  EXPECT_EQ(one, run(2));
  EXPECT_EQ(one, run(5));
}

TEST_P(EveryKind, ReadsFromLeftToRight) {
  ParameterSet set(3);
  const RecurrentMixer mixer(set, "mixer", dim, GetParam().options);
  disturb(set);
  Context context;
  Tensor x = Tensor::normal({1, 20, dim}, 9);
  const Tensor y = mixer(context, Var(x), {}).value();
  x.data<float>()[10 * dim + 3] += 1.0f;
  const Tensor changed = mixer(context, Var(x), {}).value();
  for (std::int64_t i = 0; i < 10 * dim; ++i) EXPECT_EQ(y.data<float>()[i], changed.data<float>()[i]) << i;
  float after = 0.0f;
  for (std::int64_t i = 11 * dim; i < 20 * dim; ++i)
    after = std::max(after, std::abs(y.data<float>()[i] - changed.data<float>()[i]));
  EXPECT_GT(after, 1e-5f);
}

// With one key and value of each head known, the recurrences' definitions give their output.
TEST(RecurrentMixer, LinearAttentionIsAWeightedMeanOfValues) {
  ParameterSet set(3);
  const RecurrentMixer mixer(set, "mixer", dim, LinearAttentionOptions{});
  Context context;
  // All tokens are equal, so that every mean of values is the value itself.
  Tensor x(DType::f32, {1, 6, dim});
  x.fill(0.5);
  const Var value = autograd::linear(autograd::linear(Var(x), Var(set.at("mixer.v_proj.weight").value), {}),
                                     Var(set.at("mixer.out_proj.weight").value), {});
  EXPECT_LT(largest_difference(mixer(context, Var(x), {}).value(), value.value()), 1e-5f);
}

TEST(RecurrentMixer, StatesHaveTheSizesOfThePapers) {
  ParameterSet set(3);
  std::int64_t n = 0;
  const auto size = [&](const RecurrentOptions& options) {
    return RecurrentMixer(set, "mixer" + std::to_string(n++), 64, options).state_size();
  };
  EXPECT_EQ(size(LinearAttentionOptions{.num_heads = 4}), 4 * 16 * 17);  // and the sum of keys
  EXPECT_EQ(size(RetentionOptions{.num_heads = 4}), 4 * 16 * 32);
  EXPECT_EQ(size(GatedLinearAttentionOptions{.num_heads = 4}), 4 * 8 * 16);
  EXPECT_EQ(size(GatedDeltaOptions{.num_heads = 4}), 4 * 16 * 16 + 3 * 3 * 64);
  EXPECT_EQ(size(Mamba2Options{}), 2 * 64 * 64 + 3 * (128 + 2 * 64));
  EXPECT_EQ(size(MambaOptions{}), 128 * 16 + 3 * 128);
  EXPECT_EQ(size(Rwkv7Options{.head_dim = 16}), 4 * 16 * 16 + 64);
}

TEST(RecurrentMixer, Refusals) {
  ParameterSet set(3);
  const auto make = [&](const RecurrentOptions& options) {
    return [&set, options] { RecurrentMixer(set, "bad", dim, options); };
  };
  expect_refused(make(GatedDeltaOptions{.num_heads = 3}), "options.num_heads");
  expect_refused(make(GatedDeltaOptions{.num_heads = 0}), "options.num_heads");
  expect_refused(make(GatedDeltaOptions{.conv_width = 9}), "options.conv_width");
  expect_refused(make(Mamba2Options{.head_dim = 5}), "options.head_dim");
  expect_refused(make(Mamba2Options{.groups = 3}), "options.groups");
  expect_refused(make(MambaOptions{.state_dim = 0}), "options.state_dim");
  expect_refused(make(GatedDeltaOptions{.num_heads = 4, .num_key_heads = 3}), "options.num_key_heads");
  expect_refused(make(GatedDeltaOptions{.norm_epsilon = 0.0f}), "options.norm_epsilon");
  expect_refused(make(Mamba2Options{.least_step = 1.0f, .most_step = 0.5f}), "options.least_step");
  expect_refused(make(Mamba2Options{.least_step = -1.0f}), "options.least_step");
  expect_refused(make(MambaOptions{.selection_epsilon = 0.0f}), "options.selection_epsilon");
  const RecurrentMixer mixer(set, "good", dim, LinearAttentionOptions{});
  const Tensor x = Tensor::normal({1, 3, dim}, 1);
  Tensor states = Tensor::zeros(DType::f32, {2, mixer.state_size()});
  Context context;
  expect_refused([&] { mixer(context, Var(x), {.states = in_place(states)}); }, "call.states");
  const Tensor large = Tensor::zeros(DType::f32, {1, mixer.state_size() + 1});
  expect_refused([&] { mixer(context, Var(x), {.states = in_place(large)}); }, "call.states[0].before");
  const RecurrentMixer::State unwritten[] = {{}};
  expect_refused([&] { mixer(context, Var(x), {.states = unwritten}); }, "call.states[0].behind");
  autograd::Tape tape;
  Context training{.tape = &tape};
  expect_refused([&] { mixer(training, Var(x), {.states = in_place(states)}); }, "call.states");
}

TEST_P(EveryKind, RefusesListsThatDoNotFitItsRows) {
  ParameterSet set(3);
  const RecurrentMixer mixer(set, "mixer", dim, GetParam().options);
  const Tensor x = Tensor::normal({1, 6, dim}, 1), two = Tensor::normal({2, 6, dim}, 1);
  Context context;
  using Numbers = std::vector<std::int64_t>;
  for (const Numbers& starts :
       {Numbers{1, 6}, Numbers{0, 4, 2, 6}, Numbers{0, 5}, Numbers{0, 7}, Numbers{0}, Numbers{-1, 6}}) {
    expect_refused([&] { mixer(context, Var(x), {.starts = starts}); }, "call.starts");
  }
  const Numbers starts{0, 2, 6};
  for (const Numbers& first : {Numbers{1}, Numbers{1, 2, 3}}) {
    expect_refused([&] { mixer(context, Var(x), {.starts = starts, .first = first}); }, "call.first");
    expect_refused([&] { mixer(context, Var(two), {.first = first}); }, "call.first");
  }
}

// -- stacks

StackSpec hybrid() {
  StackSpec spec = stack_of({.layers = 9, .dim = dim, .feed_forward = 8, .heads = 2});
  const std::vector<Kind> all = kinds();
  for (std::size_t n = 0; n < all.size(); ++n) spec.blocks[n < 3 ? n : n + 1].mixer = all[n].options;
  spec.blocks[8].mixer = all.back().options;  // reads the values of the one before
  add_rotary(spec, 128);
  return spec;
}

TEST(HybridStack, ReadsRowByRowWhatItReadsAtOnce) {
  ParameterSet set(3);
  const TransformerStack stack(set, "model", hybrid());
  disturb(set);
  Context context{.products = autograd::Products::by_row};
  const Tensor x = Tensor::normal({2, 40, dim}, 9);
  const TransformerStack::Call call{.mask = Causal{}};
  const Tensor whole = stack(context, Var(x), call).value();
  StackCache cache = stack.start(context), forked;
  std::vector<Var> rows;
  for (std::int64_t t = 0; t < 40;) {
    const std::int64_t count = t == 0 ? 16 : 1;
    rows.push_back(stack.extend(context, autograd::slice(Var(x), 1, t, count), cache, call));
    t += count;
    if (t == 30) forked = cache.fork();
  }
  EXPECT_LT(largest_difference(whole, autograd::concat(rows, 1).value()), 2e-4f);
  EXPECT_EQ(cache.length(), 40);
  EXPECT_EQ(cache.rows_kept(), 40);
  // What was read since the fork has not changed the fork.
  const std::int64_t swap[] = {1, 0};
  forked.reorder(swap);
  const Tensor next = autograd::slice(Var(x), 1, 30, 1).value();
  Tensor swapped(DType::f32, {2, 1, dim});
  std::copy_n(next.data<float>() + dim, dim, swapped.data<float>());
  std::copy_n(next.data<float>(), dim, swapped.data<float>() + dim);
  const Tensor y = stack.extend(context, Var(swapped), forked, call).value();
  const Tensor expected = rows[15].value();  // 16 rows at once, then one at a time
  for (std::int64_t i = 0; i < dim; ++i) {
    EXPECT_EQ(y.data<float>()[i], expected.data<float>()[dim + i]);
    EXPECT_EQ(y.data<float>()[dim + i], expected.data<float>()[i]);
  }
}

TEST(HybridStack, KeepsAStateOfTheSameSizeForAnyLength) {
  ParameterSet set(3);
  StackSpec spec = hybrid();
  spec.blocks.erase(spec.blocks.begin() + 3);  // the attention
  const TransformerStack stack(set, "model", spec);
  Context context;
  StackCache cache = stack.start(context);
  const Tensor x = Tensor::normal({1, 1, dim}, 9);
  const TransformerStack::Call call{.mask = Causal{}};
  stack.extend(context, Var(x), cache, call);
  const std::int64_t bytes = cache.bytes();
  for (int t = 0; t < 100; ++t) stack.extend(context, Var(x), cache, call);
  EXPECT_EQ(cache.bytes(), bytes);
  EXPECT_EQ(cache.rows_kept(), 0);
}

TEST(HybridStack, NeedsACausalMask) {
  ParameterSet set(3);
  const TransformerStack stack(set, "model", hybrid());
  Context context;
  const Tensor x = Tensor::normal({1, 3, dim}, 9);
  expect_refused([&] { stack(context, Var(x), {}); }, "mask");
  StackCache cache = stack.start(context);
  expect_refused([&] { stack.extend(context, Var(x), cache, {}); }, "mask");
}

// Retention's are constants, and those of gated DeltaNet for an input of zeros follow from its parameters.
TEST(LogDecays, AreTheMeansOfEachHead) {
  const auto decays_of = [](ParameterSet& set, const RecurrentOptions& options, const Tensor& x) {
    const RecurrentMixer mixer(set, "mixer", dim, options);
    Context context;
    Tensor decays;
    mixer(context, x, {.log_decays = &decays});
    return decays;
  };
  const Tensor x = Tensor::normal({2, 5, dim}, 1), zeros = Tensor::zeros(DType::f32, {2, 5, dim});
  ParameterSet retention(1), delta(1), linear(1);
  const Tensor constant = decays_of(retention, RetentionOptions{.num_heads = 2}, x);
  ASSERT_EQ(constant.shape(), Shape{2});
  EXPECT_FLOAT_EQ(constant.data<float>()[0], std::log1p(-std::exp2(-5.0f)));
  EXPECT_FLOAT_EQ(constant.data<float>()[1], std::log1p(-std::exp2(-6.0f)));
  const Tensor started = decays_of(delta, GatedDeltaOptions{.num_heads = 2}, zeros);
  ASSERT_EQ(started.shape(), Shape{2});
  for (std::int64_t h = 0; h < 2; ++h) {
    const float rate = std::exp(delta.at("mixer.A_log").value.data<float>()[h]),
                step = std::log1p(std::exp(delta.at("mixer.decay_proj.bias").value.data<float>()[h]));
    EXPECT_NEAR(started.data<float>()[h], -rate * step, 1e-6f);
  }
  EXPECT_FALSE(decays_of(linear, LinearAttentionOptions{.num_heads = 2}, x));
}

// Mamba's convolution begins with a bias of 0, so the steps of an input of zeros are those of their biases.
TEST(LogDecays, AreTheMeansOfEachChannelOfMamba) {
  ParameterSet set(1);
  const RecurrentMixer mixer(set, "mixer", dim, MambaOptions{.inner = 16, .state_dim = 3});
  const auto decays_of = [&](const Tensor& x) {
    Context context;
    Tensor decays;
    mixer(context, x, {.log_decays = &decays});
    return decays;
  };
  const Tensor resting = mixer.resting_log_decays(),
               started = decays_of(Tensor::zeros(DType::f32, {2, 5, dim}));
  ASSERT_EQ(started.shape(), (Shape{16, 3}));
  for (std::int64_t i = 0; i < started.count(); ++i)
    EXPECT_NEAR(started.data<float>()[i], resting.data<float>()[i], 1e-6f) << i;
  // A mean over sequences: of two the same as of both alone.
  const Tensor x = Tensor::normal({2, 5, dim}, 1), both = decays_of(x);
  const auto alone = [&](std::int64_t n) {
    return decays_of(Tensor::copy_of(ConstTensorView(x).slice(0, n, 1)));
  };
  const Tensor first = alone(0), second = alone(1);
  double moved = 0.0;
  for (std::int64_t i = 0; i < both.count(); ++i) {
    EXPECT_NEAR(both.data<float>()[i], (first.data<float>()[i] + second.data<float>()[i]) / 2, 1e-5f) << i;
    moved += std::abs(both.data<float>()[i] - resting.data<float>()[i]);
  }
  EXPECT_GT(moved, 1e-3);  // the steps depend on the tokens
}

}  // namespace
}  // namespace fovea::nn
