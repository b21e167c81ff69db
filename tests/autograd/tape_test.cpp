// The memory of a tape: functions end once, in any case, and have room however large they are.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "fovea/autograd/ops.h"
#include "fovea/autograd/var.h"

namespace fovea::autograd {
namespace {

Var value_on(Tape& tape, std::shared_ptr<int> kept) {
  return {Tensor::zeros(DType::f32, {1}), tape.record([kept](const Tensor&) { ++*kept; })};
}

TEST(TapeMemory, FunctionsEndWithTheTape) {
  const auto count = std::make_shared<int>(0);
  {
    Tape tape;
    for (int i = 0; i < 1000; ++i) value_on(tape, count);
    EXPECT_EQ(count.use_count(), 1001);
    tape.clear();
    EXPECT_EQ(count.use_count(), 1);
    value_on(tape, count);
    EXPECT_EQ(count.use_count(), 2);
  }
  EXPECT_EQ(count.use_count(), 1);
  EXPECT_EQ(*count, 0);
}

TEST(TapeMemory, FunctionsEndOnceTheyAreCalled) {
  const auto first = std::make_shared<int>(0);
  Tape tape;
  const Var x = value_on(tape, first);
  long uses_in_between = -1;
  const Var before(Tensor::zeros(DType::f32, {1}),
                   tape.record([&, x](const Tensor& d) { accumulate_copy(x, d); }));
  const Var y(Tensor::zeros(DType::f32, {1}), tape.record([&, before](const Tensor& d) {
    accumulate_copy(before, d);
    uses_in_between = first.use_count();
  }));
  tape.backward(y);
  EXPECT_EQ(uses_in_between, 2);
  EXPECT_EQ(*first, 1);
  EXPECT_EQ(first.use_count(), 1);
}

// Larger than any piece of the memory.
TEST(TapeMemory, LargeFunctionsHaveRoom) {
  using Numbers = std::array<std::int64_t, 100'000>;
  const auto numbers = std::make_unique<Numbers>();
  (*numbers)[99'999] = 7;
  std::int64_t seen = 0;
  Tape tape;
  const auto count = std::make_shared<int>(0);
  value_on(tape, count);
  const Var y(Tensor::zeros(DType::f32, {1}),
              tape.record([&seen, all = *numbers](const Tensor&) { seen = all[99'999]; }));
  value_on(tape, count);
  tape.backward(y);
  EXPECT_EQ(seen, 7);
  EXPECT_EQ(count.use_count(), 1);
}

TEST(TapeMemory, UsesOfAParameterShareANode) {
  Parameter a{.name = "a", .value = Tensor::zeros(DType::f32, {2})},
      b{.name = "b", .value = Tensor::zeros(DType::f32, {2})};
  Tape tape;
  const Var first = tape.use(a), other = tape.use(b), again = tape.use(a);
  EXPECT_EQ(first.node(), again.node());
  EXPECT_NE(first.node(), other.node());
  EXPECT_EQ(first.node()->gradient.raw(), a.gradient.raw());
}

}  // namespace
}  // namespace fovea::autograd
