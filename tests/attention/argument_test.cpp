// Declarations of arguments: the shapes and the values with which layers start them.
#include "fovea/attention/argument.h"

#include <gtest/gtest.h>

#include <cmath>

#include "fovea/attention/make_mod.h"
#include "fovea/attention/spec.h"
#include "fovea/core/error.h"

namespace fovea {
namespace {

using Start = ArgumentDeclaration::Start;

std::vector<double> elements(const Tensor& tensor) {
  std::vector<double> all;
  for (std::int64_t n = 0; n < tensor.count(); ++n)
    all.push_back(tensor.dtype() == DType::f64 ? tensor.data<double>()[n] : tensor.data<float>()[n]);
  return all;
}

TEST(Start, ShapesAreTheKnownSizesAndOne) {
  const ArgumentSizes known{.num_query_heads = 3, .query_dim = 4, .key_dim = 4};
  const auto shape_of = [&](const AttentionSpec& spec, std::size_t n) {
    return start_shape(declared_arguments(spec).at(n).declaration, known);
  };
  EXPECT_EQ(shape_of({.mods = {AlibiBias{}}}, 0), (Shape{1, 3, 1, 1}));
  EXPECT_EQ(shape_of({.mods = {RelativeBias{8, 20}}}, 0), (Shape{1, 3, 1, 8}));
  EXPECT_EQ(shape_of({.normalizer = LinearChain{}}, 0), (Shape{2, 2}));
  EXPECT_EQ(shape_of({.score = Bilinear{}}, 0), (Shape{4, 4}));
  EXPECT_EQ(shape_of({.score = Additive{}}, 2), std::nullopt);  // hidden is unknown
  EXPECT_EQ(shape_of({.score = Location{}}, 0), std::nullopt);  // as many rows as a call has keys
}

TEST(Start, ValuesFollowTheDeclaration) {
  const Shape two{2};
  EXPECT_EQ(elements(start_value({.start = Start::zero}, two, DType::f32)), (std::vector<double>{0, 0}));
  EXPECT_EQ(elements(start_value({.start = Start::one}, two, DType::f64)), (std::vector<double>{1, 1}));
  EXPECT_EQ(elements(start_value({.start = Start::number, .start_number = 0.5}, two, DType::f32)),
            (std::vector<double>{0.5, 0.5}));
  EXPECT_EQ(elements(start_value({.start = Start::computed, .start_values = alibi_slopes}, {1, 3, 1, 1},
                                 DType::f64)),
            alibi_slopes(3));
  for (const Start start : {Start::told, Start::given, Start::xavier})
    EXPECT_FALSE(start_value({.start = start}, two, DType::f32));
  EXPECT_THROW(start_value({.start = Start::zero}, two, DType::bf16), InvalidArgument);
}

TEST(Start, OfAUsersModIsTold) {
  const auto shift = [](auto score, Site, auto by) { return score + by; };
  ArgumentDeclaration by = mod_argument("by");
  by.start = Start::one;
  const Mod told = make_mod("shift", {"by"}, shift), one = make_mod("shift", {by}, shift);
  EXPECT_EQ(told.node().arguments().at(0).start, Start::told);
  EXPECT_EQ(one.node().arguments().at(0).start, Start::one);
}

// A file or an array with fewer axes than four is read by the declaration, in the command as in Python.
TEST(Declarations, SayTheAxesOfAModsArgument) {
  const auto written = [](const Mod& mod, std::size_t n = 0) { return mod.node().arguments().at(n).written; };
  EXPECT_EQ(written(AlibiBias{}), "h");
  EXPECT_EQ(written(LearnedTemperature{}), "h");
  EXPECT_EQ(written(DenseBias{}), "bhqk");
  EXPECT_EQ(written(RelativeBias{8, 20}), "hk");
  EXPECT_EQ(written(RelativeKeyBias{4}), "bhqk");
  EXPECT_EQ(written(LocalWindow{2}), "bhq");
  EXPECT_EQ(written(LocalGaussian{2}), "bhq");
  EXPECT_EQ(written(ForgetGate{}), "bhq");
  EXPECT_EQ(written(ForgetGate{}, 1), "bhk");
  EXPECT_EQ(written(make_mod("shift", {"by"}, [](auto score, Site, auto by) { return score + by; })), "bhqk");
}

// A center belongs to a query. One for each key would be read as if it did.
TEST(Declarations, RefuseCentersOfKeys) {
  const ArgumentSizes sizes{.batch = 2, .num_query_heads = 3, .query_len = 4, .key_len = 5};
  for (const Mod& mod : {Mod(LocalWindow{2}), Mod(LocalGaussian{2})}) {
    const ArgumentDeclaration center = mod.node().arguments().at(0);
    EXPECT_TRUE(fits(center, sizes, {2, 3, 4, 1}));
    EXPECT_TRUE(fits(center, sizes, {1, 1, 4, 1}));
    EXPECT_FALSE(fits(center, sizes, {1, 1, 1, 5}));
    EXPECT_FALSE(fits(center, sizes, {1, 1, 4, 5}));
  }
}

// The factor c·ln n of a row that sees n keys is 1 in the mean over n = 1 … 1,024.
TEST(Start, OfScalableSoftmaxIsNearAPlainSoftmax) {
  const std::vector<DeclaredArgument> declared = declared_arguments({.normalizer = ScalableSoftmax{}});
  const double c = elements(start_value(declared.at(0).declaration, {1}, DType::f64)).at(0);
  double mean = 0.0;
  for (int n = 1; n <= 1024; ++n) mean += c * std::log(n) / 1024.0;
  EXPECT_NEAR(mean, 1.0, 1e-12);
}

TEST(Arguments, OfAModHaveNamesOfTheirOwn) {
  const auto two = [](auto score, Site, auto a, auto b) { return score + a * b; };
  EXPECT_NO_THROW(make_mod("product", {"a", "b"}, two));
  EXPECT_THROW(make_mod("product", {"a", "a"}, two), InvalidArgument);
  EXPECT_THROW(make_mod("product", {"a", ""}, two), InvalidArgument);
  EXPECT_THROW(make_mod("", {"a", "b"}, two), InvalidArgument);
  const auto none = [](auto score, Site) { return score + score; };
  EXPECT_EQ(to_string(make_mod("double", {}, none)), to_string(make_mod("double", none)));
}

// Kernels index the axes of a mod's argument by batch entry, head, query and key. Another meaning of an axis
// would be read past the end.
TEST(Arguments, AModsAxesAreThoseOfTheScores) {
  const auto made = [](const std::function<void(ArgumentDeclaration&)>& change) {
    ArgumentDeclaration by = mod_argument("by");
    change(by);
    return make_mod("shift", {by}, [](auto score, Site, auto value) { return score + value; });
  };
  EXPECT_NO_THROW(made([](ArgumentDeclaration&) {}));
  EXPECT_NO_THROW(made([](ArgumentDeclaration& by) { by.axes[2] = {.number = 1}; }));
  EXPECT_THROW(made([](ArgumentDeclaration& by) { by.axes = {{.number = 2}}; }), InvalidArgument);
  EXPECT_THROW(made([](ArgumentDeclaration& by) { by.axes.pop_back(); }), InvalidArgument);
  EXPECT_THROW(made([](ArgumentDeclaration& by) { by.axes[3] = {.number = 5}; }), InvalidArgument);
  EXPECT_THROW(made([](ArgumentDeclaration& by) { std::swap(by.axes[0], by.axes[1]); }), InvalidArgument);
  EXPECT_THROW(made([](ArgumentDeclaration& by) { by.axes[1].fit = ArgumentAxis::Fit::exact; }),
               InvalidArgument);
}

TEST(Arguments, ComputedStartsHaveAValueForEachElement) {
  using Start = ArgumentDeclaration::Start;
  ArgumentDeclaration by = mod_argument("by", "h");
  by.start = Start::computed;
  EXPECT_THROW(start_value(by, {1, 4, 1, 1}, DType::f32), InvalidArgument);
  by.start_values = [](std::int64_t) { return std::vector<double>(5); };
  EXPECT_THROW(start_value(by, {1, 4, 1, 1}, DType::f32), InvalidArgument);
  by.start_values = [](std::int64_t count) {
    return std::vector<double>(static_cast<std::size_t>(count), 2.0);
  };
  EXPECT_EQ(start_value(by, {1, 4, 1, 1}, DType::f32).data<float>()[3], 2.0f);
}

// [heads] slopes in the place of [1, heads, 1, 1], and a bias of queries and keys.
TEST(Arguments, MayHaveTheirWrittenAxesAlone) {
  const ArgumentDeclaration slope = Mod(AlibiBias{}).node().arguments().front();
  EXPECT_EQ(with_all_axes(slope, Tensor::zeros(DType::f32, {3})).shape(), Shape({1, 3, 1, 1}));
  EXPECT_EQ(with_all_axes(slope, Tensor::zeros(DType::f32, {2, 3, 1, 1})).shape(), Shape({2, 3, 1, 1}));
  EXPECT_EQ(with_all_axes(slope, Tensor::zeros(DType::f32, {2, 3})).shape(), Shape({2, 3}));  // refused later
  const ArgumentDeclaration bias = Mod(DenseBias{}).node().arguments().front();
  EXPECT_EQ(with_all_axes(bias, Tensor::zeros(DType::f32, {5, 7})).shape(), Shape({1, 1, 5, 7}));
}

}  // namespace
}  // namespace fovea
