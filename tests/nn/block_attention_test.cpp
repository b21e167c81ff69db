// Causal attention to few rows of finished blocks: gradients, the cases in which it is full attention, what a
// row may see, and the same rows whether a text is read at once, in pieces or token by token.
#include "fovea/nn/block_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>

#include "fovea/attention/masks.h"
#include "fovea/core/executor.h"
#include "fovea/nn/transformer.h"
#include "nn/compare.h"
#include "nn/finished_blocks.h"
#include "nn/parameter_gradients.h"

namespace fovea::nn {
namespace {

using By = BlockAttentionOptions::By;
using Alibi = BlockAttentionOptions::Alibi;

constexpr std::int64_t dim = 8;

struct Kind {
  const char* name;
  BlockAttentionOptions options;
};

// GoogleTest would print the bytes of the options.
void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.name;
}

// Every form, with each kind of positions in some of them.
std::vector<Kind> kinds() {
  const Rotary rope(Rope{.rotary_dim = 4}, 256);
  return {{"means", {.num_heads = 2, .block = 8, .kept = 2}},
          {"sums", {.num_heads = 2, .block = 8, .kept = 4, .by = By::sums}},
          {"mergings", {.num_heads = 2, .block = 8, .kept = 2, .by = By::mergings}},
          {"means_rotated", {.num_heads = 2, .block = 4, .kept = 1, .rope = rope}},
          {"sums_rotated", {.num_heads = 2, .block = 4, .kept = 2, .by = By::sums, .rope = rope}},
          {"mergings_rotated", {.num_heads = 2, .block = 8, .kept = 4, .by = By::mergings, .rope = rope}},
          {"means_by_distance", {.num_heads = 2, .block = 8, .kept = 2, .alibi = Alibi::with}},
          {"sums_by_distance", {.num_heads = 2, .block = 8, .kept = 4, .by = By::sums, .alibi = Alibi::with}},
          {"mergings_by_distance",
           {.num_heads = 2, .block = 8, .kept = 2, .by = By::mergings, .alibi = Alibi::with}}};
}

class EveryBlockAttention : public ::testing::TestWithParam<Kind> {};

INSTANTIATE_TEST_SUITE_P(Kinds, EveryBlockAttention, ::testing::ValuesIn(kinds()),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST_P(EveryBlockAttention, HasTheGradientOfEveryParameterAndOfItsInput) {
  ParameterSet set(3);
  const BlockAttention attention(set, "attention", dim, GetParam().options);
  Parameter& input = set.normal("x", {2, 21, dim}, 1.0f);
  disturb(set);
  expect_gradients(set, [&](Context& context) { return attention(context, context.use(input), {}); });
  if (GetParam().options.by == By::sums) {
    for (const char* name : {"attention.e", "attention.f"}) {
      float largest = 0.0f;
      const Tensor& gradient = set.at(name).gradient;
      for (std::int64_t i = 0; i < gradient.count(); ++i)
        largest = std::max(largest, std::abs(gradient.data<float>()[i]));
      EXPECT_GT(largest, 1e-3f) << name;
    }
  }
}

Tensor part(const Tensor& x, std::int64_t first, std::int64_t count) {
  return autograd::slice(Var(x), 1, first, count).value();
}

// A cache with the rows of one layer.
class Kept {
 public:
  // Small pages, so that a block is in several.
  Kept(const BlockAttention& attention, std::int64_t entries, const Paged& pages = {4})
      : attention_(attention), cache_({.layers = {attention.finished_layer(pages), attention.open_layer()}}) {
    for (std::int64_t e = 0; e < entries; ++e) sequences_.push_back(cache_.start());
  }
  Tensor read(const Tensor& x, const std::vector<std::int64_t>& starts = {}) {
    std::vector<Sequence*> entries;
    for (std::size_t e = 0; e < sequences_.size(); ++e) {
      cache_.reserve(sequences_[e], starts.empty() ? x.size(1) : starts[e + 1] - starts[e]);
      entries.push_back(&sequences_[e]);
    }
    Context context{.products = autograd::Products::by_row};
    const Tensor y = attention_.extend(context, Var(x), {cache_, 0, 1, entries, starts}).value();
    for (Sequence& sequence : sequences_) cache_.commit(sequence);
    return y;
  }
  Tensor read_in_pieces(const Tensor& x, const std::vector<std::int64_t>& pieces) {
    std::vector<Var> rows;
    std::int64_t first = 0;
    for (const std::int64_t count : pieces) {
      rows.push_back(read(part(x, first, count)));
      first += count;
    }
    return autograd::concat(rows, 1).value();
  }
  KvCache& cache() { return cache_; }
  Sequence& sequence() { return sequences_.front(); }

 private:
  const BlockAttention& attention_;
  KvCache cache_;
  std::vector<Sequence> sequences_;
};

TEST_P(EveryBlockAttention, GivesTheSameRowsInPiecesAndTokenByToken) {
  ParameterSet set(3);
  const BlockAttention attention(set, "attention", dim, GetParam().options);
  disturb(set);
  const Tensor x = Tensor::normal({2, 48, dim}, 9);
  Context context{.products = autograd::Products::by_row};
  const Tensor whole = attention(context, Var(x), {}).value();
  const auto pieces = [&](const std::vector<std::int64_t>& counts) {
    return Kept(attention, 2).read_in_pieces(x, counts);
  };
  EXPECT_LT(largest_difference(whole, pieces({48})), 1e-5f);
  EXPECT_LT(largest_difference(whole, pieces(std::vector<std::int64_t>(48, 1))), 1e-5f);
  EXPECT_LT(largest_difference(whole, pieces({7, 1, 3, 20, 17})), 1e-5f);
  EXPECT_LT(largest_difference(whole, pieces({8, 8, 16, 1, 15})), 1e-5f);
}

// Rows that are copied in several pieces: a prompt of a wide layer, and what follows it.
TEST_P(EveryBlockAttention, GivesTheBitsOfOneThreadForAWideLayer) {
  constexpr std::int64_t wide = 128;
  BlockAttentionOptions options = GetParam().options;
  if (options.rope) options.rope = Rotary(Rope{.rotary_dim = wide / options.num_heads}, 512);
  ParameterSet set(3);
  const BlockAttention attention(set, "attention", wide, options);
  const Tensor x = Tensor::normal({1, 300, wide}, 9);
  const auto read = [&](int threads) {
    const auto pool = make_thread_pool(threads);
    set_default_executor(pool.get());
    const Tensor y = Kept(attention, 1).read_in_pieces(x, {283, 1, 16});
    set_default_executor(nullptr);
    return y;
  };
  const Tensor alone = read(1);
  EXPECT_EQ(largest_difference(alone, read(3)), 0.0f);
  Context context{.products = autograd::Products::by_row};
  EXPECT_LT(largest_difference(attention(context, Var(x), {}).value(), alone), 1e-4f);
}

// Sequences side by side, some of which read one token and some many, and one none.
TEST_P(EveryBlockAttention, GivesTheBitsOfASequenceAloneInAPackedBatch) {
  ParameterSet set(3);
  const BlockAttention attention(set, "attention", dim, GetParam().options);
  disturb(set);
  const std::vector<std::int64_t> before{3, 0, 16, 5, 30, 9}, counts{1, 2, 20, 1, 16, 0};
  std::vector<std::int64_t> first{0}, starts{0};
  for (std::size_t e = 0; e < counts.size(); ++e) {
    first.push_back(first.back() + before[e]);
    starts.push_back(starts.back() + counts[e]);
  }
  const Tensor a = Tensor::normal({1, first.back(), dim}, 9), b = Tensor::normal({1, starts.back(), dim}, 8);
  Kept together(attention, 6);
  together.read(a, first);
  const Tensor y = together.read(b, starts);
  Context context{.products = autograd::Products::by_row};
  std::vector<Var> both;
  std::vector<std::int64_t> all{0};
  for (std::size_t e = 0; e < 5; ++e) {
    Kept alone(attention, 1);
    if (before[e] > 0) alone.read(part(a, first[e], before[e]));
    const Tensor same = alone.read(part(b, starts[e], counts[e]));
    EXPECT_EQ(largest_difference(part(y, starts[e], counts[e]), same), 0.0f) << e;
    both.emplace_back(part(a, first[e], before[e]));
    both.emplace_back(part(b, starts[e], counts[e]));
    all.push_back(all.back() + before[e] + counts[e]);
  }
  // And of a whole call over a packed batch.
  const Tensor whole = attention(context, autograd::concat(both, 1), {.starts = all}).value();
  for (std::size_t e = 0; e < 5; ++e)
    EXPECT_LT(largest_difference(part(y, starts[e], counts[e]), part(whole, all[e] + before[e], counts[e])),
              1e-5f)
        << e;
}

TEST_P(EveryBlockAttention, ReadsFromLeftToRight) {
  ParameterSet set(3);
  const BlockAttention attention(set, "attention", dim, GetParam().options);
  disturb(set);
  Context context;
  Tensor x = Tensor::normal({1, 33, dim}, 9);
  const Tensor y = attention(context, Var(x), {}).value();
  for (const std::int64_t row : {0, 10, 16, 32}) {
    Tensor other = x.clone();
    for (std::int64_t i = 0; i < dim; ++i) other.data<float>()[row * dim + i] += 1.0f;
    const Tensor changed = attention(context, Var(other), {}).value();
    if (row > 0) EXPECT_EQ(largest_difference(part(y, 0, row), part(changed, 0, row)), 0.0f) << row;
    for (std::int64_t later = row; later < 33; ++later)
      EXPECT_GT(largest_difference(part(y, later, 1), part(changed, later, 1)), 1e-6f) << row << " " << later;
  }
}

// A sequence keeps few rows for each block: 1 / group of what attention keeps, and the open block beside.
TEST_P(EveryBlockAttention, KeepsFewRows) {
  ParameterSet set(3);
  const BlockAttention attention(set, "attention", dim, GetParam().options);
  const auto bytes = [&](std::int64_t rows) {
    Kept kept(attention, 1, {16});
    kept.read(Tensor::normal({1, rows, dim}, 1));
    return kept.cache().bytes().used;
  };
  const std::int64_t group = GetParam().options.block / GetParam().options.kept;
  EXPECT_EQ(bytes(256) - bytes(64), 192 / group * attention.finished_layer().head_dim * group * 4) << group;
  EXPECT_LE(attention.finished_layer().head_dim * group, 2 * dim + 2 + group - 1);
}

// The weights of few rows, distributed among those that they stand for, are causal and add up to 1.
TEST_P(EveryBlockAttention, ReturnsWeightsOfAllRows) {
  ParameterSet set(3);
  const BlockAttention attention(set, "attention", dim, GetParam().options);
  disturb(set);
  Context context;
  Tensor weights;
  attention(context, Var(Tensor::normal({2, 21, dim}, 9)), {.weights = &weights});
  ASSERT_EQ(weights.shape(), (Shape{2, 2, 21, 21}));
  for (std::int64_t row = 0; row < 2 * 2 * 21; ++row) {
    double sum = 0.0;
    for (std::int64_t j = 0; j < 21; ++j) {
      const float weight = weights.data<float>()[row * 21 + j];
      if (j > row % 21) EXPECT_EQ(weight, 0.0f) << row << " " << j;
      EXPECT_GE(weight, 0.0f);
      sum += static_cast<double>(weight);
    }
    EXPECT_NEAR(sum, 1.0, 1e-5) << row;
  }
}

// Full attention with the parameters of `set`.
Tensor full_attention(const ParameterSet& set, const BlockAttentionOptions& options, const Tensor& x) {
  ParameterSet copy([&](const std::string& name, const Shape& shape) {
    for (const Parameter& parameter : set.all()) {
      if (parameter.name == name) return parameter.value;
      if (parameter.name == "attention.slope" && name == "attention.mods[0].slope")
        return parameter.value.reshape(shape);
    }
    throw InvalidArgument("full_attention", "name", "a parameter of the set", name);
  });
  AttentionOptions same{.num_query_heads = options.num_heads, .rope = options.rope};
  if (options.alibi == Alibi::with) same.spec.mods.push_back(AlibiBias{});
  const MultiHeadAttention attention(copy, "attention", dim, same);
  Context context;
  return attention(context, Var(x), Var(x), {.mask = Causal{}}).value();
}

BlockAttentionOptions with(BlockAttentionOptions options, std::int64_t block, std::int64_t kept) {
  options.block = block;
  options.kept = kept;
  return options;
}

TEST(BlockAttention, IsFullAttentionInOneBlockOrWithAllRowsKept) {
  const Tensor x = Tensor::normal({2, 21, dim}, 9);
  for (const Kind& kind : kinds()) {
    for (const BlockAttentionOptions& options : {with(kind.options, 32, 4), with(kind.options, 4, 4)}) {
      // E and F that are drawn are no identities.
      if (options.by == By::sums && options.block == 4) continue;
      ParameterSet set(3);
      const BlockAttention attention(set, "attention", dim, options);
      disturb(set);
      Context context;
      EXPECT_LT(largest_difference(attention(context, Var(x), {}).value(), full_attention(set, options, x)),
                1e-5f)
          << kind.name << options.block;
    }
  }
}

TEST(BlockAttention, WithIdentitiesForSumsIsFullAttention) {
  const Tensor x = Tensor::normal({2, 21, dim}, 9);
  for (const Alibi alibi : {Alibi::without, Alibi::with}) {
    const BlockAttentionOptions options{
        .num_heads = 2, .block = 4, .kept = 4, .by = By::sums, .alibi = alibi};
    ParameterSet set(3);
    const BlockAttention attention(set, "attention", dim, options);
    for (const char* name : {"attention.e", "attention.f"}) {
      Tensor& matrix = set.at(name).value;
      matrix.fill(0.0f);
      for (std::int64_t i = 0; i < 4; ++i) matrix.data<float>()[i * 4 + i] = 1.0f;
    }
    Context context;
    EXPECT_LT(largest_difference(attention(context, Var(x), {}).value(), full_attention(set, options, x)),
              1e-5f);
  }
}

// Rows that are equal in fours: a mean is each of them, and counts four times. Merging finds them too,
// because nothing is more like a row than an equal one.
TEST(BlockAttention, OfEqualRowsIsFullAttention) {
  const Tensor different = Tensor::normal({1, 12, dim}, 9);
  Tensor x(DType::f32, {1, 45, dim});
  for (std::int64_t row = 0; row < 45; ++row)
    std::copy_n(different.data<float>() + row / 4 * dim, dim, x.data<float>() + row * dim);
  for (const By by : {By::means, By::mergings}) {
    const BlockAttentionOptions options{.num_heads = 2, .block = 16, .kept = 4, .by = by};
    ParameterSet set(3);
    const BlockAttention attention(set, "attention", dim, options);
    disturb(set);
    Context context;
    EXPECT_LT(largest_difference(attention(context, Var(x), {}).value(), full_attention(set, options, x)),
              1e-5f)
        << name_of(by);
    EXPECT_GT(largest_difference(attention(context, Var(Tensor::normal({1, 45, dim}, 9)), {}).value(),
                                 full_attention(set, options, Tensor::normal({1, 45, dim}, 9))),
              1e-3f)
        << name_of(by);
  }
}

// The spans of the mask by brute force.
TEST(FinishedBlocks, HasTheSpansOfItsPairs) {
  for (const auto& [rows, block, kept] :
       std::vector<std::array<std::int64_t, 3>>{{21, 4, 2}, {16, 4, 4}, {9, 8, 1}, {5, 8, 2}, {33, 8, 2}}) {
    const std::int64_t few = (rows - 1) / block * kept, keys = few + rows;
    const FinishedBlocks mask(block, kept);
    EXPECT_EQ(mask.few(keys), few) << rows;
    for (std::int64_t begin = few; begin < keys; ++begin) {
      for (std::int64_t end = begin + 1; end <= keys; ++end) {
        const QueryBlock queries{.query_begin = begin, .query_end = end, .key_len = keys};
        KeySpans some, all;
        for (std::int64_t key = 0; key < keys; ++key) {
          std::int64_t seen = 0;
          for (std::int64_t query = begin; query < end; ++query)
            seen += mask.allows(Site::at(0, 0, query, key), queries) ? 1 : 0;
          const auto add = [key](KeySpans& to) {
            if (!to.empty() && to.back().end == key)
              ++to.back().end;
            else
              to.push_back({key, key + 1});
          };
          if (seen > 0) add(some);
          if (seen == end - begin) add(all);
        }
        const BlockSpans spans = mask.spans(queries);
        EXPECT_TRUE(spans.some == some) << rows << " " << begin << " " << end;
        EXPECT_TRUE(spans.all == all) << rows << " " << begin << " " << end;
      }
    }
  }
}

TEST(BlockAttention, Refusals) {
  ParameterSet set(3);
  const auto make = [&](const BlockAttentionOptions& options) {
    return [&set, options] { BlockAttention(set, "bad", dim, options); };
  };
  expect_refused(make({.num_heads = 3}), "options.num_heads");
  expect_refused(make({.num_heads = 0}), "options.num_heads");
  expect_refused(make({.head_dim = -1}), "options.head_dim");
  expect_refused(make({.block = 0}), "options.block");
  expect_refused(make({.block = 8, .kept = 0}), "options.kept");
  expect_refused(make({.block = 8, .kept = 16}), "options.kept");
  expect_refused(make({.block = 8, .kept = 3}), "options.kept");
  expect_refused(make({.block = 24, .kept = 8}), "options.kept");
  expect_refused(make({.block = 8192, .kept = 1}), "options.kept");
  const BlockAttention attention(set, "good", dim, {.block = 8, .kept = 2});
  const Tensor x = Tensor::normal({1, 6, dim}, 1), two = Tensor::normal({2, 6, dim}, 1);
  Context context;
  Tensor weights;
  using Numbers = std::vector<std::int64_t>;
  for (const Numbers& starts : {Numbers{1, 6}, Numbers{0, 4, 2, 6}, Numbers{0, 5}, Numbers{0, 7}, Numbers{0}})
    expect_refused([&] { attention(context, Var(x), {.starts = starts}); }, "call.starts");
  const Numbers starts{0, 2, 6};
  expect_refused([&] { attention(context, Var(two), {.starts = starts}); }, "x");
  expect_refused([&] { attention(context, Var(x), {.starts = starts, .weights = &weights}); },
                 "call.weights");
  KvCache cache({.layers = {attention.finished_layer(), attention.open_layer()}});
  Sequence sequence = cache.start();
  cache.reserve(sequence, 6);
  Sequence* entries[] = {&sequence};
  autograd::Tape tape;
  Context training{.tape = &tape};
  expect_refused([&] { attention.extend(training, Var(x), {cache, 0, 1, entries}); }, "context");
  Sequence* const none[] = {nullptr};
  expect_refused([&] { attention.extend(context, Var(x), {cache, 0, 1, none}); }, "to.sequences");
}

// Pages that are gone are noticed, and not read as others.
TEST(BlockAttention, RefusesACacheWithoutItsPages) {
  ParameterSet set(3);
  const BlockAttention attention(set, "attention", dim, {.block = 4, .kept = 2});
  Kept kept(attention, 1);
  kept.read(Tensor::normal({1, 32, dim}, 1));
  const PositionRange gone[] = {{8, 16}};
  kept.cache().drop(kept.sequence(), gone);
  EXPECT_THROW(kept.read(Tensor::normal({1, 1, dim}, 1)), InvalidArgument);
}

// -- stacks

StackSpec mixed() {
  StackSpec spec = stack_of({.layers = 4, .dim = dim, .feed_forward = 8, .heads = 2});
  spec.blocks[0].mixer = BlockAttentionOptions{.num_heads = 2, .block = 8, .kept = 2};
  spec.blocks[1].mixer = GatedDeltaOptions{.num_heads = 2};
  spec.blocks[3].mixer = BlockAttentionOptions{.num_heads = 2, .block = 4, .kept = 1, .by = By::mergings};
  add_rotary(spec, 128);
  return spec;
}

class BlockAttentionInAStack : public ::testing::Test {
 protected:
  BlockAttentionInAStack() { disturb(set); }

  ParameterSet set{3};
  const TransformerStack stack{set, "model", mixed()};
  Context context{.products = autograd::Products::by_row};
  const TransformerStack::Call call{.mask = Causal{}};
};

TEST_F(BlockAttentionInAStack, ReadsRowByRowWhatItReadsAtOnce) {
  const Tensor x = Tensor::normal({2, 40, dim}, 9);
  const Tensor whole = stack(context, Var(x), call).value();
  StackCache cache = stack.start(context), forked;
  std::vector<Var> rows;
  for (std::int64_t t = 0; t < 40;) {
    const std::int64_t count = t == 0 ? 19 : 1;
    rows.push_back(stack.extend(context, Var(part(x, t, count)), cache, call));
    t += count;
    if (t == 30) forked = cache.fork();
  }
  EXPECT_LT(largest_difference(whole, autograd::concat(rows, 1).value()), 2e-4f);
  EXPECT_EQ(cache.length(), 40);
  // What was read since the fork has not changed the fork.
  const Tensor y = stack.extend(context, Var(part(x, 30, 1)), forked, call).value();
  EXPECT_EQ(largest_difference(y, rows[12].value()), 0.0f);  // 19 rows at once, then one at a time
}

TEST_F(BlockAttentionInAStack, GoesBackToACheckpoint) {
  const Tensor x = Tensor::normal({1, 40, dim}, 9);
  StackCache cache = stack.start(context);
  stack.extend(context, Var(part(x, 0, 21)), cache, call);
  cache.rows().checkpoint(cache.sequence());
  const Tensor first = stack.extend(context, Var(part(x, 21, 19)), cache, call).value();
  cache.truncate(21);
  EXPECT_EQ(largest_difference(first, stack.extend(context, Var(part(x, 21, 19)), cache, call).value()),
            0.0f);
}

TEST_F(BlockAttentionInAStack, SeesThePastAlone) {
  const Tensor x = Tensor::normal({2, 3, dim}, 9);
  expect_refused([&] { stack(context, Var(x), {}); }, "mask");
  StackCache cache = stack.start(context);
  expect_refused([&] { stack.extend(context, Var(x), cache, {}); }, "mask");
  StackSpec both = stack_of(dim, 1, {.mixer = BlockAttentionOptions{}, .recurrence_sees = Sees::both_sides});
  expect_refused([&] { TransformerStack(set, "both", both); }, "spec.blocks");
  try {
    TransformerStack(set, "both", both);
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.got(), "block 0: pooled that sees both sides");
  }
}

}  // namespace
}  // namespace fovea::nn
