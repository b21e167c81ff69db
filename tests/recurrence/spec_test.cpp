#include "fovea/recurrence/spec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "fovea/core/error.h"

namespace fovea {
namespace {

constexpr RecurrenceShape good{.batch = 2,
                               .num_query_heads = 2,
                               .num_key_heads = 2,
                               .num_heads = 4,
                               .len = 7,
                               .key_dim = 8,
                               .value_dim = 5};

std::string refused(const RecurrenceSpec& spec, const RecurrenceShape& shape) {
  try {
    checked_shape(spec, shape);
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.function(), "make_recurrence_plan");
    return error.argument();
  }
  return "";
}

template <class Variant, std::size_t... I>
std::size_t kinds_of(std::index_sequence<I...>) {
  return std::set{std::variant_alternative_t<I, Variant>::kind...}.size();
}

// Two parts of one kind would run in the same loop of the kernels.
TEST(RecurrenceSpec, PartsHaveDifferentKinds) {
  const auto all_different = []<class Variant>(const Variant&) {
    constexpr std::size_t count = std::variant_size_v<Variant>;
    return kinds_of<Variant>(std::make_index_sequence<count>()) == count;
  };
  EXPECT_TRUE(all_different(Decay{}));
  EXPECT_TRUE(all_different(Write{}));
  EXPECT_TRUE(all_different(Read{}));
}

TEST(RecurrenceShape, FillsInTheValueDim) {
  RecurrenceShape shape = good;
  EXPECT_EQ(checked_shape({}, shape).value_dim, 5);
  shape.value_dim = RecurrenceShape::as_key_dim;
  EXPECT_EQ(checked_shape({}, shape).value_dim, 8);
}

TEST(RecurrenceShape, NamesTheWrongSize) {
  const auto with = [](std::int64_t RecurrenceShape::*size, std::int64_t value) {
    RecurrenceShape shape = good;
    shape.*size = value;
    return refused({}, shape);
  };
  EXPECT_EQ(refused({}, good), "");
  EXPECT_EQ(with(&RecurrenceShape::batch, -1), "shape.batch");
  EXPECT_EQ(with(&RecurrenceShape::len, -1), "shape.len");
  EXPECT_EQ(with(&RecurrenceShape::key_dim, 0), "shape.key_dim");
  EXPECT_EQ(with(&RecurrenceShape::value_dim, 0), "shape.value_dim");
  EXPECT_EQ(with(&RecurrenceShape::num_heads, 0), "shape.num_heads");
  EXPECT_EQ(with(&RecurrenceShape::num_query_heads, 3), "shape.num_query_heads");
  EXPECT_EQ(with(&RecurrenceShape::num_query_heads, 8), "");
  EXPECT_EQ(with(&RecurrenceShape::num_key_heads, 8), "shape.num_key_heads");
  EXPECT_EQ(with(&RecurrenceShape::len, std::int64_t{1} << 41), "shape.len");
  EXPECT_EQ(with(&RecurrenceShape::len, std::int64_t{1} << 40), "shape");
}

TEST(RecurrenceSpec, NamesTheWrongNumber) {
  EXPECT_EQ(refused({.scale = std::nan("")}, good), "spec.scale");
  EXPECT_EQ(refused({.normalizer = KeySum{-1e-6}}, good), "spec.normalizer");
  EXPECT_EQ(refused({.normalizer = KeySum{0}}, good), "");
}

TEST(RecurrenceSpec, AStateHasAColumnForTheSum) {
  EXPECT_EQ(state_shape({}, good, 3), Shape({3, 4, 8, 5}));
  EXPECT_EQ(state_shape({.normalizer = KeySum{}}, good, 3), Shape({3, 4, 8, 6}));
}

TEST(RecurrenceSpec, HasAText) {
  EXPECT_EQ(to_string(RecurrenceSpec{}), "no decay, additive write, read after write");
  EXPECT_EQ(to_string(RecurrenceSpec{.feature_map = EluPlusOne{},
                                     .decay = KeyDecay{},
                                     .write = DeltaWrite{},
                                     .read = BeforeDecay{},
                                     .normalizer = KeySum{}}),
            "elu+1 features, key decay, delta write, read before decay, sum normaliser");
}

}  // namespace
}  // namespace fovea
