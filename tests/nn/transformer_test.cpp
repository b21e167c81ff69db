#include "fovea/nn/transformer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <stdexcept>

#include "fovea/attention/masks.h"
#include "fovea/attention/streaming_sinks.h"
#include "nn/parameter_gradients.h"

namespace fovea::nn {
namespace {

constexpr std::int64_t kDim = 12, kRows = 9;

struct Stacks : testing::TestWithParam<NormPlace> {
  ParameterSet set{3};
  TransformerStack plain{set, "plain", options(TransformerOptions::CrossAttention::without)};
  TransformerStack rotary{set, "rotary", rotary_options()};
  TransformerStack reading{set, "reading", options(TransformerOptions::CrossAttention::with)};
  Tensor x = set.normal("x", {2, kRows, kDim}, 1.0f).value;
  Tensor memory = set.normal("memory", {2, 5, kDim}, 1.0f).value;
  std::vector<std::int64_t> memory_lengths{5, 3};
  Context context;

  static StackSpec options(TransformerOptions::CrossAttention cross_attention) {
    return stack_of({.layers = 2,
                     .dim = kDim,
                     .feed_forward = 16,
                     .heads = 3,
                     .cross_attention = cross_attention,
                     .norm = GetParam()});
  }
  static StackSpec rotary_options() {
    StackSpec made = options(TransformerOptions::CrossAttention::without);
    add_rotary(made, 2 * kRows);
    return made;
  }
  TransformerStack::Call call(Mask mask) const {
    return {.mask = std::move(mask),
            .memory = memory,
            .memory_mask = KeyLengths{},
            .memory_lengths = memory_lengths};
  }
};

// `rows` are the rows of `whole` from `begin` on. Products that sum in another order differ by 1e-5, for
// values of order 1.
void expect_rows_of(const Tensor& whole, const Tensor& rows, std::int64_t begin) {
  for (std::int64_t b = 0; b < rows.size(0); ++b) {
    for (std::int64_t t = 0; t < rows.size(1); ++t) {
      for (std::int64_t d = 0; d < kDim; ++d)
        ASSERT_NEAR(rows.view().at<float>({b, t, d}), whole.view().at<float>({b, begin + t, d}), 1e-5);
    }
  }
}

// Rows one by one or in blocks equal one call over all rows. The products sum in another order, so the
// tolerance is 1e-5 for values of order 1.
TEST_P(Stacks, ExtendRowByRowEqualsTheWholeCall) {
  for (const Mask& mask : {Mask(Causal{}), Mask(Causal{} & SlidingWindow{.lookback = 3})}) {
    const Tensor whole = reading(context, x, call(mask)).value();
    for (const std::int64_t block : {1, 2, 4}) {
      TransformerStack::Cache cache = reading.start(context, memory, {.store = Paged{1}});
      for (std::int64_t begin = 0; begin < kRows; begin += block) {
        const std::int64_t count = std::min(block, kRows - begin);
        const Tensor rows =
            reading.extend(context, autograd::slice(x, 1, begin, count), cache, call(mask)).value();
        expect_rows_of(whole, rows, begin);
      }
      EXPECT_EQ(cache.length(), kRows);
      // Two layers of two entries, of the rows and of the memory: at least their keys and values, and at most
      // 63 bytes more for each part of a page.
      const std::int64_t least = 2 * 2 * 2 * (kRows + 5) * kDim * 4;
      EXPECT_GE(cache.bytes(), least);
      EXPECT_LE(cache.bytes(), least + 2 * 2 * 2 * (kRows + 1) * 63);
    }
  }
}

// Rotary positions count from the beginning of the sequence, whether its rows come at once or in blocks.
// Only differences of positions matter, so a document behind another gives the same as alone. Without
// rotary positions a row's output does not depend on the order of the other rows.
TEST_P(Stacks, RotaryPositionsActByTheirDifferences) {
  const TransformerStack::Call causal{.mask = Causal{}};
  const Tensor whole = rotary(context, x, causal).value();
  TransformerStack::Cache cache = rotary.start(context, {}, {.store = Paged{1}});
  const auto expect_near = [&](const Tensor& rows, std::int64_t from, std::int64_t count, std::int64_t at) {
    for (std::int64_t t = 0; t < count; ++t) {
      for (std::int64_t d = 0; d < kDim; ++d)
        ASSERT_NEAR(rows.view().at<float>({1, from + t, d}), whole.view().at<float>({1, at + t, d}), 1e-5);
    }
  };
  for (std::int64_t begin = 0; begin < kRows; begin += 2) {
    const std::int64_t count = std::min<std::int64_t>(2, kRows - begin);
    expect_near(rotary.extend(context, autograd::slice(x, 1, begin, count), cache, causal).value(), 0, count,
                begin);
  }
  // If rows are forgotten, positions still count from the beginning.
  const TransformerStack::Call window{.mask = Causal{} & SlidingWindow{.lookback = 2}};
  const Tensor windowed = rotary(context, x, window).value();
  TransformerStack::Cache short_cache = rotary.start(context, {}, {.store = Paged{1}});
  for (std::int64_t row = 0; row < kRows; ++row) {
    rotary.forget(short_cache, window.mask, kRows);
    const Tensor one = rotary.extend(context, autograd::slice(x, 1, row, 1), short_cache, window).value();
    for (std::int64_t d = 0; d < kDim; ++d)
      ASSERT_NEAR(one.view().at<float>({1, 0, d}), windowed.view().at<float>({1, row, d}), 1e-5);
  }
  EXPECT_LT(short_cache.bytes(), cache.bytes());
  const Var twice = autograd::concat(std::vector<Var>{x, x}, 1);
  expect_near(rotary(context, twice, {.mask = Causal{} & Documents{{0, kRows, 2 * kRows}}}).value(), kRows,
              kRows, 0);
  const Var swapped =
      autograd::concat(std::vector<Var>{autograd::slice(x, 1, 1, 1), autograd::slice(x, 1, 0, 1),
                                        autograd::slice(x, 1, 2, kRows - 2)},
                       1);
  const auto moved = [&](const TransformerStack& stack) {
    const Tensor a = stack(context, x, {}).value(), b = stack(context, swapped, {}).value();
    float largest = 0.0f;
    for (std::int64_t d = 0; d < kDim; ++d) {
      largest = std::max(
          largest, std::abs(a.view().at<float>({0, kRows - 1, d}) - b.view().at<float>({0, kRows - 1, d})));
    }
    return largest;
  };
  EXPECT_LT(moved(plain), 1e-5f);
  EXPECT_GT(moved(rotary), 1e-3f);
  EXPECT_THROW(rotary(context, autograd::concat(std::vector<Var>{twice, x}, 1), causal), InvalidArgument);
}

// Rows that the mask hides from all later rows are forgotten, and no others. The outputs equal one call
// over all rows, and the number of rows held is counted by hand.
TEST_P(Stacks, ForgetTheRowsThatTheMaskWillHide) {
  struct Case {
    Mask mask;
    std::int64_t held;  // rows that the entry with more of them holds before the last row
  };
  // The second entry sees further back than the first.
  const Mask uneven = Predicate(
      "uneven", {.batch = 2, .query_end = kRows, .key_len = kRows},
      [](const Site& site) { return site.key <= site.query && site.key >= site.query - 2 - 2 * site.batch; });
  for (const auto& [mask, held] :
       {Case{Causal{}, 8}, Case{Causal{} & SlidingWindow{.lookback = 3}, 3},
        Case{(SlidingWindow{.lookback = 2} | GlobalTokens{0, 3}) & Causal{}, 4},
        Case{(SlidingWindow{.lookback = 2} | GlobalTokens{7}) & Causal{}, 2},
        Case{(SlidingWindow{.lookback = 1} | GlobalTokens{8}) & Causal{}, 8},  // the last row sees all
        Case{uneven, 4}, Case{Causal{} & Chunked{4}, 0}, Case{Causal{} & StreamingSinks{2}, 2}}) {
    SCOPED_TRACE(to_string(mask));
    const Tensor whole = reading(context, x, call(mask)).value();
    for (const std::int64_t block : {1, 2, 4}) {
      TransformerStack::Cache cache = reading.start(context, memory, {.store = Paged{1}});
      for (std::int64_t begin = 0; begin < kRows; begin += block) {
        const std::int64_t count = std::min(block, kRows - begin);
        reading.forget(cache, mask, kRows);
        if (begin == kRows - 1) {
          EXPECT_EQ(std::max(cache.rows_kept(0), cache.rows_kept(1)), held);
        }
        const Tensor rows =
            reading.extend(context, autograd::slice(x, 1, begin, count), cache, call(mask)).value();
        expect_rows_of(whole, rows, begin);
      }
    }
  }
}

// In pages of 4 rows a window of 2 keeps the pages that it touches: before row 9 the second entry of rows 4
// to 7 and row 8, in two layers.
TEST_P(Stacks, ForgetWholePages) {
  const TransformerStack::Call window{.mask = Causal{} & SlidingWindow{.lookback = 1}};
  TransformerStack::Cache cache = plain.start(context, {}, {.store = Paged{4}});
  plain.extend(context, x, cache, window);
  const std::int64_t page = cache.bytes() / 6;  // 2 entries of 3 pages, each with the rows of both layers
  plain.forget(cache, window.mask, kRows + 1);
  EXPECT_EQ(cache.bytes(), 2 * page * 1);
  plain.forget(cache, window.mask, kRows);  // no row is left to be read: nothing to forget
  EXPECT_EQ(cache.bytes(), 2 * page);
}

// Entries in another order, some of them twice, go on like their originals, and a fork goes on by itself.
// Compared to the bit, because the rows of an entry are computed alike wherever it stands.
TEST_P(Stacks, ReorderedEntriesContinueLikeTheirOriginals) {
  // Two hypotheses of one entry read its memory in one call, unless the mask reads their positions.
  for (const Mask& memory_mask : {Mask(KeyLengths{}), KeyLengths{} & SlidingWindow{2, 0}}) {
    SCOPED_TRACE(to_string(memory_mask));
    const auto call = [&](Mask mask) {
      TransformerStack::Call made = Stacks::call(std::move(mask));
      made.memory_mask = memory_mask;
      return made;
    };
    const auto row = [&](std::int64_t t) { return autograd::slice(x, 1, t, 1); };
    TransformerStack::Cache cache = reading.start(context, memory);
    reading.extend(context, autograd::slice(x, 1, 0, 5), cache, call(Causal{}));
    TransformerStack::Cache forked = cache.fork();
    const Tensor expected = reading.extend(context, row(5), forked, call(Causal{})).value();
    EXPECT_EQ(cache.length(), 5);
    EXPECT_EQ(forked.length(), 6);
    forked.truncate(5);
    const std::vector<std::int64_t> order{1, 1, 0};
    forked.reorder(order);
    ASSERT_EQ(forked.entries(), 3);
    const Tensor six = row(5).value();
    Tensor rows(DType::f32, {3, 1, kDim});
    for (std::size_t i = 0; i < 3; ++i)
      std::copy_n(six.data<float>() + order[i] * kDim, kDim,
                  rows.data<float>() + static_cast<std::int64_t>(i) * kDim);
    TransformerStack::Call longer = call(Causal{});
    std::vector<std::int64_t> lengths;
    for (const std::int64_t entry : order) lengths.push_back(memory_lengths[static_cast<std::size_t>(entry)]);
    longer.memory_lengths = lengths;
    const Tensor got = reading.extend(context, rows, forked, longer).value();
    for (std::size_t i = 0; i < 3; ++i) {
      for (std::int64_t d = 0; d < kDim; ++d)
        EXPECT_NEAR(got.data<float>()[static_cast<std::int64_t>(i) * kDim + d],
                    expected.data<float>()[order[i] * kDim + d], 1e-6);
    }
    const std::vector<std::int64_t> beyond{3};
    EXPECT_THROW(forked.reorder(beyond), InvalidArgument);
    EXPECT_EQ(forked.entries(), 3);
  }
}

// A call that fails in its middle leaves every entry as it was, and its memory too.
TEST_P(Stacks, AFailedStepReadsNoRow) {
  TransformerStack::Cache cache = plain.start(context, {}, {.store = Paged{4}});
  plain.extend(context, autograd::slice(x, 1, 0, 4), cache, {.mask = Causal{}});
  const std::int64_t bytes = cache.bytes();
  const Var row = autograd::slice(x, 1, 4, 1);
  TransformerStack::Call failing{.mask = Causal{}};
  failing.weights = [](std::string_view, std::size_t layer) -> Tensor* {
    if (layer == 1) throw std::runtime_error("in the middle");
    return nullptr;
  };
  EXPECT_THROW(plain.extend(context, row, cache, failing), std::runtime_error);
  EXPECT_EQ(cache.length(), 4);
  EXPECT_EQ(cache.bytes(), bytes);
  const Tensor whole = plain(context, x, {.mask = Causal{}}).value();
  expect_rows_of(whole, plain.extend(context, row, cache, {.mask = Causal{}}).value(), 4);
  // Room for two pages in each of two layers: the second entry's second page is one too many.
  TransformerStack::Cache limited =
      plain.start(context, {}, {.store = Paged{4}, .limit_bytes = 3 * bytes / 2});
  plain.extend(context, autograd::slice(x, 1, 0, 4), limited, {.mask = Causal{}});
  EXPECT_THROW(plain.extend(context, row, limited, {.mask = Causal{}}), CacheFull);
  EXPECT_EQ(limited.length(0), 4);
  EXPECT_EQ(limited.length(1), 4);
  EXPECT_EQ(limited.bytes(), bytes);
}

// A packed call gives what the sequences give alone, and positions restart in each.
TEST_P(Stacks, TakePackedBatches) {
  const std::vector<std::int64_t> starts{0, 4, kRows}, memory_starts{0, 5, 7}, first{0, 0};
  const auto joined = [&](const Var& rows, std::int64_t a, std::int64_t b) {
    const auto part = [&](std::int64_t entry, std::int64_t count) {
      return autograd::slice(autograd::slice(rows, 0, entry, 1), 1, 0, count);
    };
    return autograd::concat(std::vector<Var>{part(0, a), part(1, b)}, 1);
  };
  const Var packed = joined(x, 4, kRows - 4), packed_memory = joined(memory, 5, 2);
  for (const TransformerStack* stack : {&reading, &rotary}) {
    const bool reads = stack == &reading;
    TransformerStack::Call whole{.mask = Causal{}, .starts = starts};
    if (reads) {
      whole.memory = packed_memory;
      whole.memory_starts = memory_starts;
    }
    const Tensor got = (*stack)(context, packed, whole).value();
    for (std::int64_t e = 0; e < 2; ++e) {
      const std::int64_t count = e == 0 ? 4 : kRows - 4;
      TransformerStack::Call one{.mask = Causal{}};
      if (reads) one.memory = autograd::slice(autograd::slice(memory, 0, e, 1), 1, 0, e == 0 ? 5 : 2);
      const Var rows = autograd::slice(autograd::slice(x, 0, e, 1), 1, 0, count);
      const Tensor alone = (*stack)(context, rows, one).value();
      for (std::int64_t i = 0; i < alone.count(); ++i)
        EXPECT_NEAR(got.data<float>()[starts[static_cast<std::size_t>(e)] * kDim + i], alone.data<float>()[i],
                    1e-5);
    }
  }
  const Tensor entered = reading.enter(context, packed, starts, first).value(),
               second = reading.enter(context, autograd::slice(x, 0, 1, 1)).value();
  for (std::int64_t i = 0; i < (kRows - 4) * kDim; ++i)
    EXPECT_EQ(entered.data<float>()[4 * kDim + i], second.data<float>()[i]);
  const std::vector<std::int64_t> wrong{0, 4, kRows + 1};
  EXPECT_THROW(reading.enter(context, packed, wrong, first), InvalidArgument);
  EXPECT_THROW(reading.enter(context, packed, starts, std::vector<std::int64_t>{0}), InvalidArgument);
}

TEST_P(Stacks, RefuseMasksThatSeeForgottenRows) {
  TransformerStack::Cache cache = plain.start(context, {}, {.store = Paged{1}});
  const Mask narrow = Causal{} & SlidingWindow{.lookback = 2};
  plain.extend(context, autograd::slice(x, 1, 0, 6), cache, {.mask = narrow});
  EXPECT_THROW(plain.forget(cache, KeyLengths{}, kRows), InvalidArgument);
  plain.forget(cache, narrow, kRows);
  const Var row = autograd::slice(x, 1, 6, 1);
  EXPECT_THROW(plain.extend(context, row, cache, {.mask = Causal{}}), InvalidArgument);
  EXPECT_NO_THROW(plain.extend(context, row, cache, {.mask = Causal{} & SlidingWindow{.lookback = 1}}));
}

TEST_P(Stacks, MasksReachTheAttention) {
  Tensor changed = x.clone();
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t d = 0; d < kDim; ++d) changed.view().at<float>({b, kRows - 1, d}) += 1.0f;
  }
  const Tensor causal = plain(context, x, {.mask = Causal{}}).value();
  const Tensor causal_changed = plain(context, changed, {.mask = Causal{}}).value();
  const std::vector<std::int64_t> lengths{kRows - 1, kRows - 1};
  const TransformerStack::Call shorter{.mask = KeyLengths{}, .lengths = lengths};
  const Tensor hidden = plain(context, x, shorter).value();
  const Tensor hidden_changed = plain(context, changed, shorter).value();
  for (std::int64_t b = 0; b < 2; ++b) {
    const std::size_t bytes = (kRows - 1) * kDim * sizeof(float);
    const auto row = [&](const Tensor& t) { return t.data<float>() + b * kRows * kDim; };
    EXPECT_EQ(std::memcmp(row(causal), row(causal_changed), bytes), 0);
    EXPECT_EQ(std::memcmp(row(hidden), row(hidden_changed), bytes), 0);
    EXPECT_NE(std::memcmp(row(causal), row(hidden), bytes), 0);
  }
}

TEST_P(Stacks, ReturnTheirWeightsOnRequest) {
  std::vector<Tensor> self(2), cross(2);
  TransformerStack::Call asked = call(Causal{});
  asked.weights = [&](std::string_view place, std::size_t layer) -> Tensor* {
    return layer == 0 && place == "self" ? nullptr : &(place == "self" ? self : cross).at(layer);
  };
  reading(context, x, asked);
  EXPECT_FALSE(self[0]);
  ASSERT_TRUE(self[1]);
  for (const Tensor& weights : cross) {
    ASSERT_EQ(weights.shape(), Shape({2, 3, kRows, 5}));
    double sum = 0.0;
    for (std::int64_t j = 0; j < 5; ++j) sum += weights.view().at<float>({1, 2, 4, j});
    EXPECT_NEAR(sum, 1.0, 1e-6);
    EXPECT_EQ(weights.view().at<float>({1, 2, 4, 3}), 0.0f);  // beyond the second entry's length
  }
}

TEST_P(Stacks, RefuseMissingMemoryAndForeignCaches) {
  EXPECT_THROW(reading(context, x, {}), InvalidArgument);
  EXPECT_THROW(plain(context, x, {.memory = memory}), InvalidArgument);  // no block reads one
  EXPECT_THROW(reading.start(context), InvalidArgument);
  TransformerStack::Cache foreign;
  EXPECT_THROW(plain.extend(context, x, foreign, {}), InvalidArgument);
  KvCache cache({.layers = plain.cache_layers()});
  Sequence sequence = cache.start();
  Sequence *const none[] = {&sequence, nullptr}, *const twice[] = {&sequence, &sequence};
  for (const std::span<Sequence* const> entries : {std::span(none), std::span(twice)}) {
    EXPECT_THROW(plain.extend(context, x, {.cache = cache, .entries = entries}, {.mask = Causal{}}),
                 InvalidArgument);
  }
  EXPECT_EQ(cache.length(sequence), 0);
  ParameterSet set(1);
  const MultiHeadAttention attention(set, "rotary", kDim,
                                     {.num_query_heads = 1, .rope = Rotary(Rope{.rotary_dim = 4}, 16)});
  KvCache one({.layers = {attention.cache_layer()}});
  EXPECT_THROW(attention.append(context, x, {one, 0, none}), InvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Norms, Stacks, testing::Values(NormPlace::pre, NormPlace::post),
                         [](const auto& info) { return info.param == NormPlace::pre ? "pre" : "post"; });

TEST(AttentionPooling, IsAttentionOfItsQueries) {
  ParameterSet set(4);
  const AttentionPooling pooling(set, "pool", 8, 2, 3);
  const Tensor x = set.normal("x", {2, 5, 8}, 1.0f).value;
  const std::vector<std::int64_t> lengths{5, 2};
  Context context;
  Tensor weights;
  const Tensor pooled = pooling(context, x, lengths, &weights).value();
  ASSERT_EQ(pooled.shape(), Shape({2, 3, 8}));
  ASSERT_EQ(weights.shape(), Shape({2, 2, 3, 5}));
  EXPECT_EQ(weights.view().at<float>({1, 0, 0, 2}), 0.0f);
  Tensor repeated(DType::f32, {2, 3, 8});
  for (int b = 0; b < 2; ++b)
    std::memcpy(repeated.data<float>() + b * 24, pooling.query->value.data<float>(), 24 * sizeof(float));
  const Tensor expected =
      pooling.attention(context, repeated, x, {.mask = KeyLengths{}, .key_lengths = lengths}).value();
  EXPECT_EQ(std::memcmp(pooled.raw(), expected.raw(), pooled.bytes()), 0);
}

TEST(AttentionPooling, HasTheGradientOfEveryParameterAndOfItsInput) {
  ParameterSet set(4);
  const AttentionPooling pooling(set, "pool", 8, 2, 3);
  Parameter& input = set.normal("x", {2, 5, 8}, 1.0f);
  const std::vector<std::int64_t> lengths{5, 2};
  expect_gradients(set, [&](Context& context) { return pooling(context, context.use(input), lengths); });
}

}  // namespace
}  // namespace fovea::nn
