#include "fovea/attention/mod.h"

#include <gtest/gtest.h>

#include "fovea/attention/make_mod.h"

namespace fovea {
namespace {

Mods built_in_mods() {
  return {SoftCap{50.0},
          SoftCap{50.0 + 1e-14},
          Temperature{50.0},
          LearnedTemperature{},
          RelativeKeyBias{3},
          RelativeKeyBias{4},
          LocalWindow{2.0},
          LocalGaussian{2.0},
          AlibiBias{},
          SymmetricAlibiBias{},
          DenseBias{},
          ForgetGate{},
          RelativeBias{.buckets = 32, .max_distance = 128},
          RelativeBias{.buckets = 32, .max_distance = 129},
          RelativeBias{.buckets = 32, .max_distance = 128, .direction = RelativeBias::Direction::causal}};
}

// So a plan that is kept for one serves the other, and no other.
TEST(Mod, BuiltInModsAreEqualWhereTheirValuesAre) {
  const Mods mods = built_in_mods(), again = built_in_mods();
  for (std::size_t i = 0; i < mods.size(); ++i)
    for (std::size_t j = 0; j < mods.size(); ++j)
      EXPECT_EQ(mods[i] == again[j], i == j) << to_string(mods[i]) << " and " << to_string(mods[j]);
}

Mod shifted_without_captures(const char* name, const ArgumentDeclaration& argument) {
  return make_mod(name, {argument}, [](auto score, Site, auto by) { return score + by; });
}

TEST(Mod, LambdasWithoutCapturesAreEqualByTypeNameAndArguments) {
  const Mod mod = shifted_without_captures("shift", mod_argument("by"));
  EXPECT_TRUE(mod == shifted_without_captures("shift", mod_argument("by")));
  EXPECT_FALSE(mod == shifted_without_captures("moved", mod_argument("by")));
  EXPECT_FALSE(mod == shifted_without_captures("shift", mod_argument("at")));
  EXPECT_FALSE(mod == shifted_without_captures("shift", mod_argument("by", "bh")));
  ArgumentDeclaration other = mod_argument("by");
  other.start = ArgumentDeclaration::Start::one;
  EXPECT_FALSE(mod == shifted_without_captures("shift", other));
  EXPECT_FALSE(mod == make_mod("shift", {"by"}, [](auto score, Site, auto by) { return score - by; }));
}

// The name does not tell what a lambda holds.
TEST(Mod, LambdasWithCapturesAreEqualToTheirCopiesAlone) {
  const auto shifted = [](float by) {
    return make_mod("shift", [by](auto score, Site) { return score + by; });
  };
  const Mod one = shifted(1.0f), copy = one;
  EXPECT_TRUE(one == copy);
  EXPECT_FALSE(one == shifted(2.0f));
  EXPECT_FALSE(one == shifted(1.0f));
}

}  // namespace
}  // namespace fovea
