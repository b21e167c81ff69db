// Tables that grow: the same rotations as of a table that was whole from the beginning.
#include "fovea/nn/rotary.h"

#include <gtest/gtest.h>

#include "fovea/nn/module.h"

namespace fovea::nn {
namespace {

TEST(Rotary, GrowsToTheLimitAndNotBeyond) {
  const Rope rope{.rotary_dim = 4, .base = 500.0};
  const Rotary growing(rope, 1000);
  const Rotary copy = growing;
  const RopeTable whole(rope, 1000, DType::f32);
  for (const std::int64_t needed : {1, 300, 5, 999, 5000}) {
    const RopeTable table = growing.table(needed);
    EXPECT_GE(table.positions(), std::min<std::int64_t>(needed, 1000));
    EXPECT_LE(table.positions(), 1000);
    for (std::int64_t p = 0; p < table.positions(); ++p) {
      ASSERT_EQ(table.cosines().at<float>({p, 1}), whole.cosines().at<float>({p, 1}));
      ASSERT_EQ(table.sines().at<float>({p, 0}), whole.sines().at<float>({p, 0}));
    }
  }
  EXPECT_EQ(copy.table(1).positions(), 1000);
  EXPECT_EQ(Rotary(whole).limit(), 1000);
  EXPECT_THROW(Rotary(rope, 0), InvalidArgument);
  EXPECT_THROW(Rotary(Rope{.rotary_dim = 3}, 5), InvalidArgument);
}

// The frequencies depend on the length of a sequence, and never on what was read before.
TEST(Rotary, LongerSequencesHaveOtherFrequencies) {
  const Rope dynamic{.rotary_dim = 4,
                     .scaling = DynamicNtkScaling{.factor = 2.0, .original_max_positions = 100}};
  const Rope longrope{.rotary_dim = 4, .scaling = LongRopeScaling{100, {1.0, 2.0}, {3.0, 4.0}, 1.5}};
  for (const Rope& rope : {dynamic, longrope}) {
    const Rotary rotary(rope, 400);
    EXPECT_EQ(rotary.changes_behind(), 100);
    EXPECT_EQ(Rotary(rope, 100).changes_behind(), std::nullopt);
    for (const std::int64_t length : {7, 300, 100, 101, 400, 101, 1, 300}) {
      const RopeTable table = rotary.table(length), whole(rope, length, DType::f32);
      ASSERT_GE(table.positions(), length);
      for (std::int64_t p = 0; p < length; ++p)
        ASSERT_EQ(table.sines().at<float>({p, 1}), whole.sines().at<float>({p, 1})) << length << " " << p;
    }
    // Sequences of several lengths in one call, which have read some rows before.
    const std::vector<std::int64_t> lengths{50, 200, 100, 101, 300, 200};
    std::vector<std::int64_t> first{40, 0, 0, 99, 0, 150};
    const std::vector<std::int64_t> before = first;
    const RopeTable table = rotary.table(lengths, first);
    for (std::size_t e = 0; e < lengths.size(); ++e) {
      const RopeTable own(rope, lengths[e], DType::f32);
      for (std::int64_t p = before[e]; p < lengths[e]; ++p)
        ASSERT_EQ(table.cosines().at<float>({first[e] + p - before[e], 1}), own.cosines().at<float>({p, 1}));
    }
    // Position 400 of a limit of 400 is in no row, and so not in another sequence's.
    const std::vector<std::int64_t> beyond{401, 150};
    std::vector<std::int64_t> none{0, 0};
    EXPECT_LE(rotary.table(beyond, none).positions(), rotary.limit());
  }
}

TEST(ParameterSet, TakesValuesFromASource) {
  std::vector<std::string> asked;
  ParameterSet set([&](const std::string& name, const Shape& shape) {
    asked.push_back(name);
    Tensor value(DType::f32, shape);
    value.fill(3.0);
    return value;
  });
  EXPECT_TRUE(set.given());
  set.xavier("a", {2, 3});
  set.normal("b", {2}, 1.0f);
  set.constant("c", {1}, 7.0f);
  set.constant("d", Tensor::zeros(DType::f32, {2}));
  EXPECT_EQ(asked, (std::vector<std::string>{"a", "b", "c", "d"}));
  for (const Parameter& parameter : set.all()) {
    EXPECT_EQ(parameter.value.data<float>()[0], 3.0f) << parameter.name;
    EXPECT_TRUE(parameter.gradient.empty());
  }
  set.zero_gradients();
  ParameterSet wrong([](const std::string&, const Shape&) { return Tensor::zeros(DType::f32, {1}); });
  EXPECT_THROW(wrong.normal("a", {2}, 1.0f), InvalidArgument);
}

}  // namespace
}  // namespace fovea::nn
