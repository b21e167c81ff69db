// Attention over few rows that stand for many: gradients, the cases in which it is full attention, padded
// batches, and what is refused.
#include "fovea/nn/compression.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <ostream>
#include <utility>

#include "fovea/attention/masks.h"
#include "fovea/nn/transformer.h"
#include "nn/parameter_gradients.h"

namespace fovea::nn {
namespace {

constexpr std::int64_t dim = 8, rows = 10;
const std::vector<std::int64_t> lengths{10, 3, 0};

struct Kind {
  const char* name;
  Compression compression;
};

// GoogleTest would print the bytes of the options.
void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.name;
}

std::vector<Kind> kinds() {
  return {{"linformer", LinformerRows{.kept = 3, .longest = 12}},
          {"mean", MeanRows{.group = 4}},
          {"strided", StridedRows{.stride = 4}},
          {"learned", LearnedRows{.kept = 3, .num_heads = 2}}};
}

struct Attention {
  ParameterSet set{3};
  MultiHeadAttention layer;
  Context context;

  explicit Attention(std::optional<Compression> compression)
      : layer(set, "attention", dim, {.num_query_heads = 2, .compression = std::move(compression)}) {}
  Tensor operator()(const Tensor& x, const MultiHeadAttention::Call& call = {}) {
    return layer(context, x, x, call).value();
  }
};

class EveryCompression : public ::testing::TestWithParam<Kind> {};

INSTANTIATE_TEST_SUITE_P(Kinds, EveryCompression, ::testing::ValuesIn(kinds()),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST_P(EveryCompression, HasTheGradientOfEveryParameterAndOfItsInput) {
  for (const bool padded : {false, true}) {
    Attention attention(GetParam().compression);
    Parameter& input = attention.set.normal("x", {3, rows, dim}, 1.0f);
    disturb(attention.set);
    MultiHeadAttention::Call call;
    if (padded) call = {.mask = KeyLengths{}, .key_lengths = lengths};
    expect_gradients(attention.set, [&](Context& context) {
      const Var x = context.use(input);
      return attention.layer(context, x, x, call);
    });
  }
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() &&
         std::memcmp(a.raw(), b.raw(), static_cast<std::size_t>(a.count()) * sizeof(float)) == 0;
}

// 1e-5 for values of order 1, whose sums have another order.
void expect_near(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.shape(), b.shape());
  for (std::int64_t i = 0; i < a.count(); ++i) ASSERT_NEAR(a.data<float>()[i], b.data<float>()[i], 1e-5) << i;
}

// Padding is never read, and an entry has the rows that it has alone.
TEST_P(EveryCompression, ReadsAPaddedEntryAsItIsAlone) {
  Attention attention(GetParam().compression);
  Tensor x = Tensor::normal({3, rows, dim}, 5);
  for (std::int64_t i = 3 * dim; i < rows * dim; ++i)
    x.data<float>()[rows * dim + i] = std::numeric_limits<float>::quiet_NaN();
  const Tensor queries = Tensor::normal({3, 2, dim}, 6);
  const Tensor y =
      attention.layer(attention.context, queries, x, {.mask = KeyLengths{}, .key_lengths = lengths}).value();
  for (std::int64_t b = 0; b < 2; ++b) {
    const auto entry = [b](const Tensor& all) { return autograd::slice(all, 0, b, 1); };
    const std::int64_t length = lengths[static_cast<std::size_t>(b)];
    const Tensor alone =
        attention.layer(attention.context, entry(queries), autograd::slice(entry(x), 1, 0, length), {})
            .value();
    expect_near(entry(y).value(), alone);
  }
}

TEST_P(EveryCompression, StandsInAStackAndReturnsTheWeightsOfItsRows) {
  ParameterSet set(3);
  BlockSpec block{.mixer = AttentionOptions{.num_query_heads = 2, .compression = GetParam().compression}};
  const TransformerStack stack(set, "stack", stack_of(dim, 2, block));
  Context context;
  std::vector<Tensor> weights(2);
  const Tensor y = stack(context, Tensor::normal({2, rows, dim}, 1),
                         {.weights = [&](std::string_view, std::size_t layer) { return &weights[layer]; }})
                       .value();
  EXPECT_EQ(y.shape(), (Shape{2, rows, dim}));
  for (const Tensor& layer : weights) EXPECT_EQ(layer.shape(), (Shape{2, 2, rows, 3}));
  EXPECT_THROW(stack.start(context), InvalidArgument);
  EXPECT_THROW(stack(context, y, {.mask = Causal{}}), InvalidArgument);
}

// Linformer whose matrices are multiples of the identity.
Attention linformer_of(float e, float f) {
  Attention linformer(LinformerRows{.kept = rows, .longest = 12});
  for (const auto& [name, value] :
       {std::pair("attention.compression.e", e), {"attention.compression.f", f}}) {
    Tensor& matrix = linformer.set.at(name).value;
    matrix.fill(0.0f);
    for (std::int64_t i = 0; i < rows; ++i) matrix.data<float>()[i * 12 + i] = value;
  }
  return linformer;
}

// Biases start at 0, so twice the values are twice the output, while twice the keys change the weights.
TEST(Linformer, IsFullAttentionWithIdentitiesAndMakesValuesOfF) {
  Attention full(std::nullopt), linformer = linformer_of(1.0f, 1.0f), doubled = linformer_of(1.0f, 2.0f);
  const Tensor x = Tensor::normal({3, rows, dim}, 1), y = full(x);
  expect_near(y, linformer(x));
  expect_near(autograd::scale(y, 2.0f).value(), doubled(x));
}

TEST(MeanAndStrided, AreFullAttentionInGroupsOfOne) {
  Attention full(std::nullopt), mean(MeanRows{.group = 1}), strided(StridedRows{.stride = 1});
  const Tensor x = Tensor::normal({3, rows, dim}, 1);
  EXPECT_TRUE(same_bits(full(x), mean(x)));
  EXPECT_TRUE(same_bits(full(x), strided(x)));
}

// Each row of `x` several times over, four times but for the last.
Tensor repeated(const Tensor& x) {
  Tensor result(DType::f32, {1, rows, dim});
  for (std::int64_t i = 0; i < rows; ++i)
    std::copy_n(x.data<float>() + i / 4 * dim, dim, result.data<float>() + i * dim);
  return result;
}

// The mean of equal rows is the row, and the logarithm of its size makes it count as often. The last group
// has two rows. Without the logarithms it would count as four.
TEST(Mean, OfEqualRowsIsFullAttention) {
  Attention full(std::nullopt), mean(MeanRows{.group = 4}), strided(StridedRows{.stride = 4});
  const Tensor x = repeated(Tensor::normal({1, 3, dim}, 1));
  const std::vector<std::int64_t> length{rows};
  expect_near(full(x), mean(x));
  expect_near(full(x), mean(x, {.mask = KeyLengths{}, .key_lengths = length}));
  const Tensor a = full(x), b = strided(x);
  float largest = 0.0f;
  for (std::int64_t i = 0; i < a.count(); ++i)
    largest = std::max(largest, std::abs(a.data<float>()[i] - b.data<float>()[i]));
  EXPECT_GT(largest, 1e-3f);
}

// Learned queries do not see in which order the rows stand.
TEST(Learned, DoesNotDependOnTheOrderOfRows) {
  Attention learned(LearnedRows{.kept = 3, .num_heads = 2});
  const Tensor x = Tensor::normal({1, rows, dim}, 1);
  const std::vector<std::int64_t> order{3, 1, 4, 0, 9, 2, 6, 5, 8, 7};
  const Tensor other = autograd::gather_rows(x, order, rows).value();
  const Tensor queries = Tensor::normal({1, 4, dim}, 2);
  expect_near(learned.layer(learned.context, queries, x, {}).value(),
              learned.layer(learned.context, queries, other, {}).value());
}

// A row that counts twice has the weight of two equal rows.
TEST(KeyLogSizes, CountARowAsOftenAsTheySay) {
  Attention full(std::nullopt);
  const Tensor x = Tensor::normal({1, 3, dim}, 1), queries = Tensor::normal({1, 4, dim}, 2);
  const std::vector<std::int64_t> doubled{0, 1, 1, 2};
  Tensor sizes = Tensor::zeros(DType::f32, {1, 3});
  sizes.data<float>()[1] = std::log(2.0f);
  expect_near(full.layer(full.context, queries, autograd::gather_rows(x, doubled, 4), {}).value(),
              full.layer(full.context, queries, x, {.key_log_sizes = sizes}).value());
  EXPECT_THROW(full(x, {.key_log_sizes = Tensor::zeros(DType::f32, {1, 4})}), InvalidArgument);
}

TEST(Compressions, RefuseWhatReadsPositions) {
  ParameterSet set(1);
  const auto make = [&](AttentionOptions options) {
    options.compression = MeanRows{};
    return MultiHeadAttention(set, "refused", dim, options);
  };
  EXPECT_THROW(make({.rope = Rotary(Rope{.rotary_dim = 8}, 16)}), InvalidArgument);
  EXPECT_THROW(make({.spec = {.mods = {AlibiBias{}}}}), InvalidArgument);
  EXPECT_THROW(make({.spec = {.mask = Causal{}}}), InvalidArgument);
  Attention mean(MeanRows{});
  const Tensor x = Tensor::normal({1, rows, dim}, 1);
  const std::vector<std::int64_t> starts{0, 4, rows};
  EXPECT_THROW(mean(x, {.mask = Causal{}}), InvalidArgument);
  EXPECT_THROW(mean(x, {.query_starts = starts, .key_starts = starts}), InvalidArgument);
  EXPECT_THROW(mean(x, {.key_log_sizes = Tensor::zeros(DType::f32, {1, rows})}), InvalidArgument);
  EXPECT_THROW(mean.layer.cache_layer(), InvalidArgument);
}

TEST(Compressions, RefuseWrongSizes) {
  for (const Compression& wrong :
       {Compression(LinformerRows{.kept = 0}), Compression(LinformerRows{.longest = 0}),
        Compression(MeanRows{.group = 0}), Compression(StridedRows{.stride = -1}),
        Compression(LearnedRows{.kept = 0}), Compression(LearnedRows{.num_heads = 0}),
        Compression(LearnedRows{.num_heads = 3})}) {
    EXPECT_THROW(Attention attention(wrong), InvalidArgument) << name_of(wrong);
  }
  Attention linformer(LinformerRows{.kept = 2, .longest = rows - 1});
  EXPECT_THROW(linformer(Tensor::normal({1, rows, dim}, 1)), InvalidArgument);
}

}  // namespace
}  // namespace fovea::nn
