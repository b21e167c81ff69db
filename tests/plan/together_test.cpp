// Entries of a cached call that run in one call of the kernel: forks, beams and texts that begin alike, whose
// common keys are read once, and entries of few keys. Every row has the bits of a call of its own.
#include "plan/together.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "fovea/cache/kv_cache.h"
#include "fovea/core/philox.h"
#include "fovea/plan/plan.h"

namespace fovea {
namespace {

constexpr std::int64_t heads = 6, kv_heads = 2, dim = 40, value_dim = 24;

Tensor as(DType dtype, const Tensor& x) {
  Tensor result(dtype, x.shape());
  for (std::int64_t n = 0; n < x.count(); ++n) {
    if (dtype == DType::bf16) result.data<bfloat16>()[n] = bfloat16(x.data<float>()[n]);
    if (dtype == DType::f16) result.data<float16>()[n] = float16(x.data<float>()[n]);
    if (dtype == DType::f64) result.data<double>()[n] = static_cast<double>(x.data<float>()[n]);
    if (dtype == DType::f32) result.data<float>()[n] = x.data<float>()[n];
  }
  return result;
}

// Sequences whose rows agree as far as a tree says.
struct Forest {
  KvCache cache;
  DType dtype;
  std::uint64_t seed = 1;
  std::vector<Sequence> sequences;

  Forest(DType type, const CacheStore& store, std::int64_t kv = kv_heads)
      : cache({.layers = {{.num_kv_heads = kv,
                           .head_dim = dim,
                           .value_dim = value_dim,
                           .dtype = type,
                           .store = store}}}),
        dtype(type) {}
  void add(Sequence& to, std::int64_t rows) {
    const std::int64_t kv = cache.options().layers[0].num_kv_heads;
    for (; rows > 0; rows -= 100) {
      const std::int64_t count = std::min<std::int64_t>(rows, 100);
      cache.reserve(to, count);
      cache.append(0, to, as(dtype, Tensor::normal({1, kv, count, dim}, seed)),
                   as(dtype, Tensor::normal({1, kv, count, value_dim}, seed + 1)));
      cache.commit(to);
      seed += 2;
    }
  }
  std::vector<KeyValueView> views() const {
    std::vector<KeyValueView> all;
    for (const Sequence& s : sequences) all.push_back(cache.view(0, s));
    return all;
  }
  // Groups of forks that part at different lengths, forks of forks, and one sequence that shares nothing.
  void grow() {
    sequences.push_back(cache.start());
    add(sequences[0], 2300);
    const auto fork = [&](std::size_t of, std::int64_t length, std::int64_t more) {
      sequences.push_back(cache.fork(sequences[of]));
      cache.truncate(sequences.back(), length);
      add(sequences.back(), more);
    };
    fork(0, 2300, 1);
    fork(0, 2300, 900);
    fork(0, 2048, 10);
    fork(0, 1400, 0);
    fork(0, 1400, 300);
    fork(2, 3200, 5);
    fork(0, 150, 60);
    fork(0, 100, 2000);
    sequences.push_back(cache.start());
    add(sequences.back(), 1500);
    fork(sequences.size() - 1, 1500, 7);
    sequences.push_back(cache.start());
    add(sequences.back(), 40);
    sequences.push_back(cache.start());
    fork(0, 2300, 0);
    fork(0, 2300, 0);
  }
};

struct Result {
  Tensor output, log_sum_exp;
};

Result run(const AttentionPlan& plan, const AttentionInputs& inputs, const CallResources& resources = {}) {
  const ConstTensorView& q = inputs.query;
  Result result{
      Tensor(plan.dtype(), {q.size(0), q.size(1), q.size(2), plan.shape().value_dim}),
      Tensor(plan.dtype() == DType::f64 ? DType::f64 : DType::f32, {q.size(0), q.size(1), q.size(2)})};
  attend(plan, inputs, {.output = result.output, .log_sum_exp = result.log_sum_exp}, resources);
  return result;
}

bool same_bits(const ConstTensorView& a, const ConstTensorView& b) {
  const Tensor x = Tensor::copy_of(a), y = Tensor::copy_of(b);
  return x.bytes() == y.bytes() && std::memcmp(x.raw(), y.raw(), x.bytes()) == 0;
}

struct Mechanism {
  const char* name;
  AttentionSpec spec;
};
std::vector<Mechanism> mechanisms() {
  return {{"causal", {.mask = Causal{}}},
          {"ALiBi", {.mods = {AlibiBias{}}, .mask = Causal{}}},
          {"window", {.mask = SlidingWindow{700} & Causal{}}},
          {"window and first keys", {.mask = (SlidingWindow{50} | GlobalTokens{0, 1, 2}) & Causal{}}},
          {"sigmoid", {.mask = Causal{}, .normalizer = Sigmoid{}}}};
}

AttentionPlan plan_of(const AttentionSpec& spec, DType dtype, std::int64_t batch, std::int64_t queries,
                      std::int64_t kv, const std::string& kernel) {
  return make_plan(spec,
                   {.batch = batch,
                    .num_query_heads = heads,
                    .num_kv_heads = kv,
                    .query_len = queries,
                    .key_len = 4000,
                    .head_dim = dim,
                    .value_dim = value_dim},
                   {.dtype = dtype, .kernel = kernel});
}

// Every entry of a call together against the entry alone.
void expect_bits_of_each_alone(const Forest& forest, const AttentionSpec& spec, const std::string& kernel,
                               std::int64_t kv, const std::vector<std::int64_t>& queries,
                               const std::string& what) {
  const std::vector<KeyValueView> views = forest.views();
  std::vector<std::int64_t> starts{0}, offsets;
  for (std::size_t n = 0; n < views.size(); ++n) {
    const std::int64_t count = std::min(queries[n % queries.size()], views[n].length);
    starts.push_back(starts.back() + count);
  }
  const AttentionPlan plan = plan_of(spec, forest.dtype, std::ssize(views), 64, kv, kernel);
  std::vector<Tensor> tensors;
  Arguments arguments;
  const DType computed = forest.dtype == DType::f64 ? DType::f64 : DType::f32;
  for (const DeclaredArgument& argument : plan.arguments()) {
    tensors.push_back(as(computed, Tensor::normal({1, heads, 1, 1}, 77)));
    arguments.set(argument.name, tensors.back());
  }
  const Tensor query = as(forest.dtype, Tensor::normal({1, heads, starts.back(), dim}, 9));
  const auto pool = make_thread_pool(3);
  const Result together = run(
      plan, {.query = query, .arguments = arguments, .query_starts = starts, .cache = views}, {pool.get()});
  for (std::size_t n = 0; n < views.size(); ++n) {
    const std::int64_t begin = starts[n], count = starts[n + 1] - begin;
    if (count == 0) continue;
    const Result alone =
        run(plan,
            {.query = query.view().slice(2, begin, count), .arguments = arguments, .cache = {&views[n], 1}});
    ASSERT_TRUE(same_bits(together.output.view().slice(2, begin, count), alone.output))
        << what << ", entry " << n;
    ASSERT_TRUE(same_bits(together.log_sum_exp.view().slice(2, begin, count), alone.log_sum_exp))
        << what << ", entry " << n;
  }
}

std::vector<std::string> kernels_here() {
  std::vector<std::string> names;
  for (const KernelInfo& kernel : list_kernels()) {
    if (kernel.available && kernel.isa != "reference" && (names.empty() || names.back() != kernel.isa))
      names.push_back(kernel.isa);
  }
  return names;
}

// Few queries, of which some entries have several; and some entries with many.
void expect_bits_of_each_alone(const Forest& forest, const Mechanism& mechanism, const std::string& kernel) {
  for (const std::vector<std::int64_t>& queries :
       {std::vector<std::int64_t>{1}, std::vector<std::int64_t>{3, 1, 8}, std::vector<std::int64_t>{1, 50}}) {
    expect_bits_of_each_alone(forest, mechanism.spec, kernel, kv_heads, queries,
                              kernel + ", " + mechanism.name + ", " + std::string(to_string(forest.dtype)));
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(Together, HasTheBitsOfEachEntryAlone) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Forest forest(dtype, Paged{64});
    forest.grow();
    for (const Mechanism& mechanism : mechanisms())
      ASSERT_NO_FATAL_FAILURE(expect_bits_of_each_alone(forest, mechanism, ""));
    for (const std::string& kernel : kernels_here())
      ASSERT_NO_FATAL_FAILURE(expect_bits_of_each_alone(forest, mechanisms().front(), kernel));
  }
}

TEST(Together, HasTheBitsOfEachEntryAloneInEveryTypeAndStore) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    for (const CacheStore& store : std::vector<CacheStore>{Paged{2}, Contiguous{}}) {
      Forest forest(dtype, store);
      forest.grow();
      expect_bits_of_each_alone(forest, {.mask = Causal{}}, "", kv_heads, {1, 2},
                                std::string(to_string(dtype)));
      ASSERT_FALSE(HasFatalFailure());
    }
  }
}

TEST(Together, HasTheBitsOfEachEntryAloneWithOneHeadOfKeys) {
  Forest forest(DType::bf16, Paged{16}, 1);
  forest.grow();
  for (const std::string& kernel : kernels_here())
    expect_bits_of_each_alone(forest, {.mask = Causal{}}, kernel, 1, {1, 2}, kernel);
}

// Which entries run together, and what the memory of a call allows.
TEST(Together, FindsWhatIsSharedAndFitsTheMemory) {
  Forest forest(DType::f32, Paged{64});
  forest.grow();
  const std::vector<KeyValueView> views = forest.views();
  const std::int64_t count = std::ssize(views);
  const AttentionPlan plan = plan_of({.mask = Causal{}}, DType::f32, count, 1, kv_heads, "");
  const Tensor query = Tensor::normal({count, heads, 1, dim}, 9);
  Tensor output(DType::f32, {count, heads, 1, value_dim});
  const AttentionInputs inputs{.query = query, .cache = views};
  const AttentionOutputs outputs{.output = output};
  const Call call = call_of("attend", plan.impl(), inputs);
  const PackedBatch batch(inputs);
  const auto ran = [&](std::size_t most) {
    JointEntries shared(plan.impl(), call, outputs, batch);
    const std::size_t bytes = shared.bytes(1, most);
    EXPECT_LE(bytes, most);
    std::vector<std::byte> memory(bytes + 64);
    auto* begin =
        reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(memory.data()) + 63) / 64 * 64);
    if (bytes > 0) shared.run(serial_executor(), {begin, bytes});
    std::vector<std::int64_t> entries;
    for (std::int64_t n = 0; n < count; ++n) {
      if (shared.has_run(n)) entries.push_back(n);
    }
    return entries;
  };
  // Entry 8 shares 100 rows, less than a tile; 11 shares nothing, but has few keys; 12 is empty.
  EXPECT_EQ(ran(most_together_bytes), (std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 13, 14}));
  EXPECT_TRUE(ran(1000).empty());
  JointEntries all(plan.impl(), call, outputs, batch);
  EXPECT_FALSE(ran(all.bytes(1, most_together_bytes) / 2).empty());
  // A workspace of the plan is enough for all of them, and every smaller one gives the same bits.
  const Result want = run(plan, inputs);
  const std::size_t bytes = workspace_bytes(plan, 1);
  EXPECT_GE(bytes, all.bytes(1, most_together_bytes));
  std::vector<std::byte> memory(bytes + 64);
  const Result got = run(plan, inputs, {&serial_executor(), {memory.data(), memory.size()}});
  EXPECT_TRUE(same_bits(got.output, want.output));
}

// A key that only some entries see may hold anything: it lies behind what they share, or before their window.
TEST(Together, RowsThatNoQuerySeesChangeNothing) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Forest forest(dtype, Paged{16});
    forest.sequences.push_back(forest.cache.start());
    forest.sequences.reserve(4);  // `first` stays where it is
    Sequence& first = forest.sequences[0];
    forest.add(first, 300);
    Tensor poison(DType::f32, {1, kv_heads, 1, dim}), poisoned(DType::f32, {1, kv_heads, 1, value_dim});
    poison.fill(std::numeric_limits<double>::quiet_NaN());
    poisoned.fill(std::numeric_limits<double>::infinity());
    forest.cache.reserve(first, 1);
    forest.cache.append(0, first, as(dtype, poison), as(dtype, poisoned));
    forest.cache.commit(first);
    forest.add(first, 900);
    for (const std::int64_t more : {3, 9, 120}) {
      Sequence fork = forest.cache.fork(first);
      forest.add(fork, more);
      forest.sequences.push_back(std::move(fork));
    }
    expect_bits_of_each_alone(forest, {.mask = SlidingWindow{800} & Causal{}}, "", kv_heads, {1}, "window");
    const std::vector<KeyValueView> views = forest.views();
    const AttentionPlan plan = plan_of({.mask = SlidingWindow{800} & Causal{}}, dtype, 4, 1, kv_heads, "");
    const Tensor query = as(dtype, Tensor::normal({4, heads, 1, dim}, 9));
    const Result got = run(plan, {.query = query, .cache = views});
    for (std::int64_t n = 0; n < got.log_sum_exp.count(); ++n)
      ASSERT_TRUE(std::isfinite(got.log_sum_exp.data<float>()[n])) << n;
  }
}

// Shapes where so many rows see a key that it is multiplied with vectors of rows
// (kernels/tiles/many_rows-inl.h).
struct ManyRows {
  std::int64_t heads, kv_heads, dim, value_dim, forks, page;
};
void expect_bits_of_each_fork(const ManyRows& m, bool wild, const std::string& kernel) {
  KvCache cache({.layers = {{.num_kv_heads = m.kv_heads,
                             .head_dim = m.dim,
                             .value_dim = m.value_dim,
                             .dtype = DType::bf16,
                             .store = Paged{m.page}}}});
  std::uint64_t seed = 1;
  const auto add = [&](Sequence& to, std::int64_t rows) {
    Tensor value = Tensor::normal({1, m.kv_heads, rows, m.value_dim}, seed + 1);
    if (wild && rows > 5) value.data<float>()[5 * m.value_dim] = std::numeric_limits<float>::infinity();
    cache.reserve(to, rows);
    cache.append(0, to, as(DType::bf16, Tensor::normal({1, m.kv_heads, rows, m.dim}, seed)),
                 as(DType::bf16, value));
    cache.commit(to);
    seed += 2;
  };
  std::vector<Sequence> sequences;
  sequences.push_back(cache.start());
  add(sequences[0], 1500);
  std::vector<KeyValueView> views;
  for (std::int64_t n = 0; n < m.forks; ++n) {
    sequences.push_back(cache.fork(sequences[0]));
    add(sequences.back(), 1 + n % 3);
  }
  for (std::int64_t n = 1; n <= m.forks; ++n)
    views.push_back(cache.view(0, sequences[static_cast<std::size_t>(n)]));
  const AttentionPlan plan = make_plan({.mask = Causal{}},
                                       {.batch = m.forks,
                                        .num_query_heads = m.heads,
                                        .num_kv_heads = m.kv_heads,
                                        .query_len = 1,
                                        .key_len = 1503,
                                        .head_dim = m.dim,
                                        .value_dim = m.value_dim},
                                       {.dtype = DType::bf16, .kernel = kernel});
  Tensor query = Tensor::normal({m.forks, m.heads, 1, m.dim}, 9);
  // Some rows have weights that vanish, beside rows that have none.
  for (std::int64_t n = 0; n < query.count(); ++n)
    query.data<float>()[n] *= n / m.dim % 29 == 0 ? 18.0f : 0.3f;
  query = as(DType::bf16, query);
  const auto pool = make_thread_pool(2);
  const Result together = run(plan, {.query = query, .cache = views}, {pool.get()});
  for (std::int64_t n = 0; n < m.forks; ++n) {
    const auto entry = static_cast<std::size_t>(n);
    const Result alone = run(plan, {.query = query.view().slice(0, n, 1), .cache = {&views[entry], 1}});
    ASSERT_TRUE(same_bits(together.output.view().slice(0, n, 1), alone.output)) << "fork " << n;
    ASSERT_TRUE(same_bits(together.log_sum_exp.view().slice(0, n, 1), alone.log_sum_exp)) << "fork " << n;
  }
}

TEST(Together, ManyRowsHaveTheBitsOfEachForkAlone) {
  for (const ManyRows& m :
       {ManyRows{8, 2, 128, 128, 16, 64}, ManyRows{6, 2, 64, 96, 21, 16}, ManyRows{2, 2, 96, 40, 14, 8},
        ManyRows{3, 1, 32, 130, 10, 4}, ManyRows{12, 1, 128, 64, 12, 64}, ManyRows{4, 2, 160, 64, 16, 64}}) {
    for (const std::string& kernel : kernels_here()) {
      for (const bool wild : {false, true}) {
        SCOPED_TRACE(kernel + ", " + std::to_string(m.dim));
        ASSERT_NO_FATAL_FAILURE(expect_bits_of_each_fork(m, wild, kernel));
      }
    }
  }
}

}  // namespace
}  // namespace fovea
