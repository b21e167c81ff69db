#include "fovea/autograd/recompute.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <vector>

#include "autograd/drawn.h"
#include "fovea/autograd/ops.h"
#include "fovea/core/executor.h"

namespace fovea::autograd {
namespace {

using Part = std::function<Var(Tape& tape, std::span<const Var> inputs)>;

Parameter parameter(const char* name, Shape shape, std::uint64_t seed) {
  return {.name = name, .value = drawn(shape, seed), .gradient = Tensor::zeros(DType::f32, shape)};
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() &&
         std::memcmp(a.raw(), b.raw(), static_cast<std::size_t>(a.count()) * sizeof(float)) == 0;
}

struct Recomputed : ::testing::Test {
  Parameter x = parameter("x", {6, 8}, 1), weight = parameter("weight", {8, 8}, 2);

  // d x and d weight of Σ y ∘ d, where y is made of x on a tape.
  std::vector<Tensor> gradients(const std::function<Var(Tape&, const Var&)>& y) {
    Tape tape;
    x.gradient.fill(0.0);
    weight.gradient.fill(0.0);
    const Var input = tanh(tape.use(x));  // its gradient is of the tape, not of a parameter
    tape.backward(sum(multiply(y(tape, input), Var(drawn({6, 8}, 3)))));
    return {x.gradient.clone(), weight.gradient.clone()};
  }

  void expect_same(const Part& part, const std::function<Var(const Var&)>& around,
                   const std::function<std::vector<Var>(const Var&)>& inputs) {
    const auto kept =
        gradients([&](Tape& tape, const Var& in) { return add(around(in), part(tape, inputs(in))); });
    const auto again = gradients(
        [&](Tape& tape, const Var& in) { return add(around(in), recomputed(tape, inputs(in), part)); });
    for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(same_bits(kept[i], again[i])) << i;
  }
};

Var itself(const Var& x) {
  return x;
}

TEST_F(Recomputed, HasTheBitsOfGradientsThatWereKept) {
  expect_same(
      [&](Tape& tape, std::span<const Var> in) {
        const Var w = tape.use(weight);
        return add(in[0], linear(tanh(linear(in[0], w, Var())), w, Var()));
      },
      itself, [](const Var& x) { return std::vector<Var>{x}; });
}

// The order in which three contributions are added decides their last bits.
TEST_F(Recomputed, AddsToTheGradientThatAnInputHasAlready) {
  expect_same(
      [&](Tape& tape, std::span<const Var> in) {
        const Var w = tape.use(weight);
        return add(linear(in[0], w, Var()), multiply(in[0], in[0]));
      },
      [](const Var& x) { return multiply(x, sigmoid(x)); }, [](const Var& x) { return std::vector<Var>{x}; });
}

TEST_F(Recomputed, AnInputMayBeGivenTwiceAndAnotherNotBeRecorded) {
  expect_same(
      [&](Tape& tape, std::span<const Var> in) {
        const Var w = tape.use(weight);
        return add(multiply(in[0], linear(in[1], w, Var())), in[2]);
      },
      itself,
      [](const Var& x) {
        return std::vector<Var>{x, x, Var(drawn({6, 8}, 4))};
      });
}

TEST_F(Recomputed, APartMayReturnItsInputOrReadParametersAlone) {
  expect_same([](Tape&, std::span<const Var> in) { return in[0]; }, itself,
              [](const Var& x) { return std::vector<Var>{x}; });
  expect_same(
      [&](Tape& tape, std::span<const Var>) {
        const Var w = tape.use(weight);
        return linear(Var(drawn({6, 8}, 4)), w, Var());
      },
      itself, [](const Var&) { return std::vector<Var>{}; });
}

TEST_F(Recomputed, PartsMayStandInsideParts) {
  const Part inner = [&](Tape& tape, std::span<const Var> in) {
    return tanh(linear(in[0], tape.use(weight), Var()));
  };
  expect_same([&](Tape& tape, std::span<const Var> in) { return add(in[0], recomputed(tape, in, inner)); },
              itself, [](const Var& x) { return std::vector<Var>{x}; });
}

TEST_F(Recomputed, RunsOnceWithoutBackwardAndTwiceWithIt) {
  int runs = 0;
  const Part part = [&](Tape&, std::span<const Var> in) {
    ++runs;
    return tanh(in[0]);
  };
  Tape tape;
  const Var in[] = {tape.use(x)};
  const Var y = recomputed(tape, in, part);
  EXPECT_EQ(runs, 1);
  tape.backward(sum(y));
  EXPECT_EQ(runs, 2);
}

TEST_F(Recomputed, WithoutAnythingRecordedIsAPlainValue) {
  Tape tape;
  const Var in[] = {Var(x.value)};
  EXPECT_FALSE(recomputed(tape, in, [](Tape&, std::span<const Var> v) { return tanh(v[0]); }).recorded());
}

TEST_F(Recomputed, RefusesAnInputOfAnotherTape) {
  Tape tape, other;
  const Var in[] = {Var(x.value), other.use(x)};
  EXPECT_THROW(recomputed(tape, in, [](Tape&, std::span<const Var> v) { return v[0]; }), InvalidArgument);
}

TEST_F(Recomputed, BackwardTakesAGradientOfTheShapeOfItsResult) {
  Tape tape;
  const Var y = tanh(tape.use(x));
  EXPECT_THROW(tape.backward(y, drawn({8, 6}, 1)), InvalidArgument);
  EXPECT_THROW(tape.backward(y, Tensor()), InvalidArgument);
  EXPECT_THROW(tape.backward(Var(x.value), drawn({6, 8}, 1)), InvalidArgument);
}

// x and weight are two nodes of one parameter, so both gradients of linear are added to it. Threads compute
// both at the same time.
TEST(RecomputedLinear, OfAParameterByItself) {
  const auto pool = make_thread_pool(2);
  const auto gradient = [](Executor& executor) {
    set_default_executor(&executor);
    Parameter w{
        .name = "w", .value = Tensor::normal({512, 128}, 1), .gradient = Tensor::normal({512, 128}, 2)};
    Tape tape;
    const Var inputs[] = {tape.use(w)};
    const Var y = recomputed(tape, inputs, [&w](Tape& inner, std::span<const Var> in) {
      return linear(in[0], inner.use(w), Var());
    });
    tape.backward(y, Tensor::normal({512, 512}, 3));
    set_default_executor(nullptr);
    return w.gradient.clone();
  };
  const Tensor alone = gradient(serial_executor());
  for (int turn = 0; turn < 5; ++turn) EXPECT_TRUE(same_bits(gradient(*pool), alone));
}

}  // namespace
}  // namespace fovea::autograd
