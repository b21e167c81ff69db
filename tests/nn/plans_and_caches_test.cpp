// MultiHeadAttention plans once for many calls, decodes behind a cache of keys and values, and takes
// batches of entries of different lengths.
#include <gtest/gtest.h>

#include "fovea/attention/masks.h"
#include "fovea/attention/predicate.h"
#include "fovea/attention/streaming_sinks.h"
#include "fovea/nn/attention.h"
#include "nn/kept_rows.h"

namespace fovea::nn {
namespace {

// A decoding loop plans once, whatever mask expression it passes in each step, and the plan serves a prompt
// of several rows and another number of sequences too.
TEST(MultiHeadAttention, PlansOnceInADecodingLoop) {
  for (const Mask& mask :
       {Mask(SlidingWindow{.lookback = 20}), SlidingWindow{.lookback = 20} | StreamingSinks{4},
        ~(~Mask(SlidingWindow{.lookback = 20}) & ~Mask(StreamingSinks{4}))}) {
    SCOPED_TRACE(to_string(mask));
    ParameterSet set(2);
    const MultiHeadAttention layer(set, "a", 12,
                                   {.num_query_heads = 3, .spec = {.mods = {AlibiBias{}}, .mask = mask}});
    const Tensor input = set.normal("input", {2, 200, 12}, 1.0f).value;
    Context context;
    KeptRows kept(layer, 2);
    const auto read = [&](std::int64_t first, std::int64_t rows) {
      const Var some = autograd::slice(input, 1, first, rows);
      kept.append(context, some);
      layer.attend_cached(context, some, kept.views(),
                          {.mask = Causal{} & (StreamingSinks{1} | GlobalTokens{0}), .query_offset = first});
    };
    read(0, 40);
    for (std::int64_t t = 40; t < 200; ++t) read(t, 1);
    EXPECT_EQ(layer.plans_made(), 1);
  }
}

// A predicate has rows for as many keys as it was made for, fewer than a plan of the next power of two has.
TEST(MultiHeadAttention, DecodesBehindAPredicate) {
  constexpr std::int64_t length = 70;
  const Mask even = Predicate("even", {.query_end = length, .key_len = length},
                              [](const Site& site) { return site.key % 2 == 0 || site.key == site.query; });
  ParameterSet set(2);
  const MultiHeadAttention layer(set, "a", 12, {.num_query_heads = 3, .spec = {.mask = even}});
  const Tensor input = set.normal("input", {1, length, 12}, 1.0f).value;
  Context context{.products = autograd::Products::by_row};
  const Tensor whole = layer(context, input, input, {.mask = Causal{}, .query_offset = 0}).value();
  KeptRows kept(layer, 1);
  for (std::int64_t t = 0; t < length; ++t) {
    const Var row = autograd::slice(input, 1, t, 1);
    kept.append(context, row);
    const Tensor one =
        layer.attend_cached(context, row, kept.views(), {.mask = Causal{}, .query_offset = t}).value();
    for (std::int64_t i = 0; i < 12; ++i)
      EXPECT_NEAR(one.data<float>()[i], whole.data<float>()[t * 12 + i], 1e-5) << t;
  }
  EXPECT_EQ(layer.plans_made(), 1 + 1);  // of the whole and of the cache
}

// A batch that grows and shrinks as sentences come and go, and pieces of prompts, need one plan.
TEST(MultiHeadAttention, PlansOnceWhereTheBatchChanges) {
  ParameterSet set(2);
  const MultiHeadAttention layer(set, "a", 12, {.num_query_heads = 3, .spec = {.mods = {AlibiBias{}}}});
  const Tensor input = set.normal("input", {8, 40, 12}, 1.0f).value;
  Context context{.products = autograd::Products::by_row};
  KeptRows kept(layer, 8);
  kept.append(context, autograd::slice(Var(input), 1, 0, 30));
  const std::vector<KeyValueView> views = kept.views();
  const auto read = [&](std::int64_t batch, std::int64_t rows) {
    const Var x = autograd::slice(autograd::slice(Var(input), 0, 0, batch), 1, 30 - rows, rows);
    return layer.attend_cached(context, x, std::span(views).first(static_cast<std::size_t>(batch)),
                               {.mask = Causal{}});
  };
  const Tensor all = read(8, 1).value();
  for (const std::int64_t batch : {7, 5, 6, 8, 5}) {
    const Tensor some = read(batch, 1).value();
    for (std::int64_t i = 0; i < some.count(); ++i) EXPECT_EQ(some.data<float>()[i], all.data<float>()[i]);
  }
  EXPECT_EQ(layer.plans_made(), 1);
  for (const std::int64_t rows : {5, 6, 7, 8}) read(8, rows);
  EXPECT_EQ(layer.plans_made(), 1);
}

// Layers of a stack are called alike. Others keep plans of their own.
TEST(MultiHeadAttention, SharesPlansWithLayersOfItsSpecAndSizes) {
  ParameterSet set(2);
  const AttentionOptions options{.num_query_heads = 3, .spec = {.mods = {AlibiBias{}}}};
  const MultiHeadAttention first(set, "first", 12, options);
  MultiHeadAttention same(set, "same", 12, options);
  MultiHeadAttention other_mods(set, "other mods", 12, {.num_query_heads = 3}),
      other_heads(set, "other heads", 12, {.num_query_heads = 2, .spec = options.spec});
  const Tensor input = set.normal("input", {2, 9, 12}, 1.0f).value;
  Context context;
  const auto read = [&](const MultiHeadAttention& layer) {
    return layer(context, input, input, {.mask = Causal{}}).value();
  };
  const Tensor alone = read(same);
  for (MultiHeadAttention* layer : {&same, &other_mods, &other_heads}) layer->share_plans(first);
  read(first);
  const Tensor shared = read(same);
  for (std::int64_t i = 0; i < alone.count(); ++i) EXPECT_EQ(shared.data<float>()[i], alone.data<float>()[i]);
  for (const MultiHeadAttention* layer : {&other_mods, &other_heads}) {
    read(*layer);
    EXPECT_EQ(layer->plans_made(), 1);
  }
  EXPECT_EQ(first.plans_made(), 1);
  EXPECT_EQ(same.plans_made(), 1);
}

// The counter of a packed matrix would be a line that all threads share.
TEST(Context, BorrowsPackedMatricesForInference) {
  ParameterSet set(2);
  const Linear layer(set, "a", 12, 8);
  set.pack();
  Context context;
  const Var used = context.use(*layer.weight);
  EXPECT_EQ(used.packed(), layer.weight->packed.get());
  EXPECT_EQ(layer.weight->packed.use_count(), 1);
}

// A mask with a number for each entry fits a batch of that size alone, whatever size a plan has room for.
TEST(MultiHeadAttention, MasksWithANumberForEachEntryDecodeBehindACache) {
  for (const std::int64_t batch : {1, 2, 3}) {
    ParameterSet set(2);
    const MultiHeadAttention layer(set, "a", 12, {.num_query_heads = 3});
    const Tensor input = set.normal("input", {batch, 9, 12}, 1.0f).value;
    Context context{.products = autograd::Products::by_row};
    KeptRows kept(layer, batch);
    kept.append(context, input);
    std::vector<std::int64_t> numbers;
    for (std::int64_t n = 0; n < batch; ++n) numbers.push_back(4 + n);
    for (const Mask& mask : {Mask(KeyLengths{numbers}), Mask(Prefix{numbers})}) {
      const Tensor whole = layer(context, input, input, {.mask = mask}).value(),
                   cached = layer.attend_cached(context, input, kept.views(), {.mask = mask}).value();
      for (std::int64_t i = 0; i < whole.count(); ++i)
        ASSERT_NEAR(cached.data<float>()[i], whole.data<float>()[i], 1e-5)
            << to_string(mask) << ", " << batch;
    }
  }
}

// Without an offset the queries are the last positions of what they read, for the mask and for rotations.
TEST(MultiHeadAttention, WithoutAnOffsetQueriesAreTheLastPositions) {
  ParameterSet set(5);
  const MultiHeadAttention layer(
      set, "a", 12, {.num_query_heads = 3, .rope = RopeTable({.rotary_dim = 4}, 16, DType::f32)});
  const Var all(set.normal("input", {2, 9, 12}, 1.0f).value), last = autograd::slice(all, 1, 6, 3);
  Context context;
  const Tensor whole = layer(context, all, all, {.mask = Causal{}}).value(),
               rows = layer(context, last, all, {.mask = Causal{}}).value(),
               given = layer(context, last, all, {.mask = Causal{}, .query_offset = 6}).value(),
               expected = autograd::slice(Var(whole), 1, 6, 3).value();
  for (std::int64_t i = 0; i < rows.count(); ++i) {
    EXPECT_EQ(rows.data<float>()[i], given.data<float>()[i]);
    EXPECT_NEAR(rows.data<float>()[i], expected.data<float>()[i], 1e-5);
  }
}

// The layer draws with another seed at each use of a step and at each step, as dropout does.
TEST(MultiHeadAttention, DrawsWithTheContextsSeed) {
  ParameterSet set(6);
  const MultiHeadAttention layer(set, "a", 12,
                                 {.num_query_heads = 3, .spec = {.normalizer = GumbelSample{}}});
  const Var x(set.normal("input", {1, 30, 12}, 1.0f).value);
  const auto draw = [&](std::uint64_t step, int use) {
    autograd::Tape tape;
    Context context{.tape = &tape, .dropout_seed = step};
    Tensor weights;
    for (int i = 0; i <= use; ++i) layer(context, x, x, {.weights = &weights});
    return std::vector<float>(weights.data<float>(), weights.data<float>() + weights.count());
  };
  EXPECT_EQ(draw(1, 0), draw(1, 0));
  EXPECT_NE(draw(1, 0), draw(2, 0));
  EXPECT_NE(draw(1, 0), draw(1, 1));
}

// The layer's plans take the kernel and the precision of its options.
TEST(MultiHeadAttention, TakesAKernelByName) {
  ParameterSet set(7);
  const Var x(set.normal("input", {1, 5, 12}, 1.0f).value);
  Context context;
  const auto run = [&](const std::string& kernel) {
    ParameterSet own(8);
    return MultiHeadAttention(own, "a", 12, {.num_query_heads = 3, .kernel = kernel})(context, x, x, {})
        .value();
  };
  const Tensor best = run(""), reference = run("reference");
  for (std::int64_t i = 0; i < best.count(); ++i)
    EXPECT_NEAR(best.data<float>()[i], reference.data<float>()[i], 1e-5);
  EXPECT_THROW(run("no such kernel"), InvalidArgument);
}

// Two sentences of different lengths in one cache, each with its next word, give the same as each alone.
// Keys are rotated and biased by distance.
TEST(MultiHeadAttention, EntriesOfDifferentLengthsDecodeTogether) {
  ParameterSet set(3);
  const MultiHeadAttention layer(set, "a", 12,
                                 {.num_query_heads = 3,
                                  .spec = {.mods = {AlibiBias{}}},
                                  .rope = RopeTable({.rotary_dim = 4}, 16, DType::f32)});
  const Tensor input = set.normal("input", {2, 9, 12}, 1.0f).value;
  const std::vector<std::int64_t> at{8, 3};
  const auto alone = [&](std::int64_t b) {  // the row of the next word, computed with all words at once
    Context context;
    const Var words =
        autograd::slice(autograd::slice(input, 0, b, 1), 1, 0, at[static_cast<std::size_t>(b)] + 1);
    return autograd::slice(layer(context, words, words, {.mask = Causal{}}), 1,
                           at[static_cast<std::size_t>(b)], 1)
        .value();
  };
  Tensor next(DType::f32, {2, 1, 12});
  for (std::int64_t b = 0; b < 2; ++b)
    std::copy_n(input.data<float>() + (b * 9 + at[static_cast<std::size_t>(b)]) * 12, 12,
                next.data<float>() + b * 12);
  Context context;
  KeptRows kept(layer, 2);
  kept.append(context, input);
  const MultiHeadAttention::Call call{.mask = Causal{}, .query_offsets = at};
  const Tensor cached = layer.attend_cached(context, next, kept.views(), call).value(),
               whole = layer(context, next, input, call).value();
  for (std::int64_t b = 0; b < 2; ++b) {
    const Tensor want = alone(b);
    for (std::int64_t d = 0; d < 12; ++d) {
      // Sums of at most 12 terms of order 1, through three products.
      EXPECT_NEAR(cached.data<float>()[b * 12 + d], want.data<float>()[d], 1e-5) << b;
      EXPECT_NEAR(whole.data<float>()[b * 12 + d], want.data<float>()[d], 1e-5) << b;
    }
  }
}

// Forward and backward: outputs equal those of the entries alone, and gradients of parameters equal the sum
// of theirs.
TEST(MultiHeadAttention, TakesPackedBatches) {
  ParameterSet set(3);
  const MultiHeadAttention layer(set, "m", 12,
                                 {.num_query_heads = 2,
                                  .spec = {.mods = {AlibiBias{}}},
                                  .rope = RopeTable({.rotary_dim = 4}, 16, DType::f32)});
  const std::vector<std::int64_t> starts{0, 4, 5, 11};
  const Tensor input = set.normal("input", {1, 11, 12}, 1.0f).value;
  const auto run = [&](const Tensor& words, const MultiHeadAttention::Call& call) {
    autograd::Tape tape;
    Context context;
    context.tape = &tape;
    const Var out = layer(context, words, words, call);
    tape.backward(autograd::sum(autograd::multiply(out, out)));
    return out.value();
  };
  const auto gradients = [&] {
    std::vector<Tensor> list;
    for (Parameter& parameter : set.all()) {
      list.push_back(parameter.gradient.clone());
      parameter.gradient.fill(0);
    }
    return list;
  };
  gradients();
  const Tensor together = run(input, {.mask = Causal{}, .query_starts = starts, .key_starts = starts});
  const std::vector<Tensor> got = gradients();
  for (std::size_t e = 0; e + 1 < starts.size(); ++e) {
    const Tensor words = autograd::slice(input, 1, starts[e], starts[e + 1] - starts[e]).value(),
                 alone = run(words, {.mask = Causal{}});
    for (std::int64_t i = 0; i < alone.count(); ++i)
      EXPECT_NEAR(together.data<float>()[starts[e] * 12 + i], alone.data<float>()[i], 1e-5) << e;
  }
  const std::vector<Tensor> want = gradients();
  for (std::size_t n = 0; n < want.size(); ++n) {
    for (std::int64_t i = 0; i < want[n].count(); ++i)
      EXPECT_NEAR(got[n].data<float>()[i], want[n].data<float>()[i], 1e-4) << n;
  }
  Context context;
  KeptRows kept(layer, 1);
  kept.append(context, input);
  EXPECT_THROW(
      layer.attend_cached(context, input, kept.views(), {.query_starts = starts, .key_starts = starts}),
      InvalidArgument);
  EXPECT_THROW(layer(context, input, input, {.query_starts = starts}), InvalidArgument);
}

}  // namespace
}  // namespace fovea::nn
