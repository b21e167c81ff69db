// What layers of attention say of arguments that do not fit.
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "fovea/nn/attention.h"

namespace fovea::nn {
namespace {

TEST(Arguments, UnknownOnesAreRefusedByName) {
  ParameterSet set(1);
  try {
    MultiHeadAttention(
        set, "a", 8,
        {.spec = {.mods = {AlibiBias{}}}, .learned = {{"mods[0].slopes", Tensor::zeros(DType::f32, {1})}}});
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.argument(), "options.learned");
    EXPECT_NE(std::string(error.what()).find("mods[0].slope"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("mods[0].slopes"), std::string::npos);
  }
}

// Sizes of calls are not known yet: a slope for each entry of a batch of 3 fits, one for each of 3 heads of 4
// does not.
TEST(Arguments, ThoseWhoseShapeCannotFitAreRefused) {
  const auto make = [](const char* list, const Tensor& slope) {
    ParameterSet set(1);
    AttentionOptions options{.num_query_heads = 4, .spec = {.mods = {AlibiBias{}}}};
    (std::string_view(list) == "learned" ? options.learned : options.fixed) = {{"mods[0].slope", slope}};
    MultiHeadAttention(set, "a", 8, options);
  };
  for (const char* list : {"learned", "fixed"}) {
    for (const Tensor& good : {Tensor::zeros(DType::f32, {4}), Tensor::zeros(DType::f32, {1, 4, 1, 1}),
                               Tensor::zeros(DType::f32, {3, 1, 7, 9})})
      EXPECT_NO_THROW(make(list, good));
    for (const Tensor& bad : {Tensor::zeros(DType::f32, {3}), Tensor::zeros(DType::f32, {1, 3, 1, 1}),
                              Tensor::zeros(DType::f64, {1, 4, 1, 1})}) {
      try {
        make(list, bad);
        FAIL() << list << " " << to_string(bad.shape());
      } catch (const InvalidArgument& error) {
        EXPECT_EQ(error.argument(), std::string("options.") + list);
        EXPECT_NE(std::string(error.what()).find("mods[0].slope of f32 ["), std::string::npos)
            << error.what();
      }
    }
  }
}

TEST(Arguments, AMissingOneIsRefusedWithThePlacesThatMayGiveIt) {
  ParameterSet set(1);
  const MultiHeadAttention layer(set, "a", 8, {.spec = {.mods = {DenseBias{}}}});
  const Tensor x = set.normal("x", {1, 3, 8}, 1.0f).value;
  Context context;
  try {
    layer(context, x, x, {});
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.argument(), "mods[0].bias");
    for (const char* place : {"options.learned", "options.fixed", "call.arguments"})
      EXPECT_NE(std::string(error.what()).find(place), std::string::npos) << error.what();
  }
  const Var bias = Tensor::zeros(DType::f32, {1, 1, 3, 3});
  EXPECT_NO_THROW(layer(context, x, x, {.arguments = {{"mods[0].bias", bias}}}));
}

}  // namespace
}  // namespace fovea::nn
