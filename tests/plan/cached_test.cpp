// Calls whose keys and values are in a cache (AttentionInputs::cache): the numbers of the same rows gathered,
// and the same bits whatever the store, the size of pages, the other entries and the number of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>

#include "cache/expect_refused.h"
#include "fovea/attention/argument.h"
#include "fovea/cache/kv_cache.h"
#include "fovea/core/executor.h"
#include "fovea/plan/plan.h"

namespace fovea {
namespace {

struct Sizes {
  std::int64_t num_query_heads = 4, num_kv_heads = 2, head_dim = 20, value_dim = 12;
};

Tensor as(DType dtype, const Tensor& x) {
  if (dtype == x.dtype()) return x;
  Tensor result(dtype, x.shape());
  for (std::int64_t n = 0; n < x.count(); ++n) {
    if (dtype == DType::bf16) result.data<bfloat16>()[n] = bfloat16(x.data<float>()[n]);
    if (dtype == DType::f16) result.data<float16>()[n] = float16(x.data<float>()[n]);
    if (dtype == DType::f64) result.data<double>()[n] = static_cast<double>(x.data<float>()[n]);
  }
  return result;
}

// Keys and values [1, num_kv_heads, length, dim] of one sequence, and the same rows in a cache.
struct Rows {
  Tensor key, value;
  Rows(const Sizes& s, std::int64_t length, DType dtype, std::uint64_t seed)
      : key(as(dtype, Tensor::normal({1, s.num_kv_heads, length, s.head_dim}, seed))),
        value(as(dtype, Tensor::normal({1, s.num_kv_heads, length, s.value_dim}, seed + 1))) {}
};

KvCache cache_of(const Sizes& s, DType dtype, const CacheStore& store) {
  return KvCache({.layers = {{.num_kv_heads = s.num_kv_heads,
                              .head_dim = s.head_dim,
                              .value_dim = s.value_dim,
                              .dtype = dtype,
                              .store = store}}});
}

void add(KvCache& cache, Sequence& sequence, const Rows& rows, std::int64_t begin, std::int64_t end) {
  cache.reserve(sequence, end - begin);
  cache.append(0, sequence, rows.key.view().slice(2, begin, end - begin),
               rows.value.view().slice(2, begin, end - begin));
  cache.commit(sequence);
}

std::vector<std::byte> bytes_of(const Tensor& x) {
  return {x.raw(), x.raw() + x.bytes()};
}
double number(const Tensor& x, std::int64_t n) {
  switch (x.dtype()) {
    case DType::bf16:
      return static_cast<float>(x.data<bfloat16>()[n]);
    case DType::f16:
      return static_cast<float>(x.data<float16>()[n]);
    case DType::f64:
      return x.data<double>()[n];
    case DType::f32:
      break;
  }
  return x.data<float>()[n];
}

struct Result {
  Tensor output, log_sum_exp;
};

Result run(const AttentionPlan& plan, const AttentionInputs& inputs, Executor* executor = nullptr) {
  const ConstTensorView& q = inputs.query;
  Result result{
      Tensor(plan.dtype(), {q.size(0), q.size(1), q.size(2), plan.shape().value_dim}),
      Tensor(plan.dtype() == DType::f64 ? DType::f64 : DType::f32, {q.size(0), q.size(1), q.size(2)})};
  attend(plan, inputs, {.output = result.output, .log_sum_exp = result.log_sum_exp}, {.executor = executor});
  return result;
}

std::vector<std::string> kernels_here() {
  std::vector<std::string> names;
  for (const KernelInfo& kernel : list_kernels()) {
    if (kernel.available && (names.empty() || names.back() != kernel.isa)) names.push_back(kernel.isa);
  }
  return names;
}

struct Mechanism {
  const char* name;
  AttentionSpec spec;
};

std::vector<Mechanism> mechanisms() {
  return {{"causal softmax", {.mask = Causal{}}},
          {"ALiBi", {.mods = {AlibiBias{}}, .mask = Causal{}}},
          {"window and first keys", {.mask = (SlidingWindow{50} | GlobalTokens{0, 1, 2}) & Causal{}}},
          {"additive", {.score = Additive{}, .mask = Causal{}}},
          {"bilinear", {.score = Bilinear{}, .mask = Causal{}}},
          {"sigmoid", {.mask = Causal{}, .normalizer = Sigmoid{}}},
          {"sparsemax", {.mask = Causal{}, .normalizer = Sparsemax{}}},
          {"dropout", {.mask = Causal{}, .dropout = {.rate = 0.25}}}};
}

// Arguments of a mechanism, in the type that is computed in.
struct Given {
  std::vector<Tensor> tensors;
  Arguments arguments;
  Given(const AttentionPlan& plan, const Sizes& s) {
    const DType dtype = plan.dtype() == DType::f64 ? DType::f64 : DType::f32;
    const std::int64_t hidden = plan.shape().hidden;
    for (const DeclaredArgument& argument : plan.arguments()) {
      const Shape shape = argument.name == "score.v"         ? Shape{hidden}
                          : argument.name == "score.U"       ? Shape{hidden, s.head_dim}
                          : argument.name == "score.b"       ? Shape{hidden}
                          : argument.name == "mods[0].slope" ? Shape{1, s.num_query_heads, 1, 1}
                          : std::holds_alternative<Additive>(plan.spec().score)
                              ? Shape{hidden, s.head_dim}
                              : Shape{s.head_dim, s.head_dim};
      tensors.push_back(as(dtype, Tensor::normal(shape, 77 + tensors.size())));
      arguments.set(argument.name, tensors.back());
    }
  }
};

AttentionPlan plan_of(const Sizes& s, const AttentionSpec& spec, DType dtype, std::int64_t batch,
                      std::int64_t queries, std::int64_t keys, const std::string& kernel = "") {
  return make_plan(spec,
                   {.batch = batch,
                    .num_query_heads = s.num_query_heads,
                    .num_kv_heads = s.num_kv_heads,
                    .query_len = queries,
                    .key_len = keys,
                    .head_dim = s.head_dim,
                    .value_dim = s.value_dim,
                    .hidden = 8},
                   {.dtype = dtype, .kernel = kernel});
}

double tolerance(DType dtype) {
  // Of sums of some hundred products and weights, in another order.
  return dtype == DType::f64 ? 1e-12 : dtype == DType::f32 ? 2e-5 : dtype == DType::f16 ? 4e-3 : 3e-2;
}

void expect_near(const Tensor& a, const Tensor& b, DType dtype, const std::string& what) {
  for (std::int64_t n = 0; n < a.count(); ++n) {
    const double x = number(a, n), y = number(b, n);
    ASSERT_TRUE(x == y || std::abs(x - y) <= tolerance(dtype) * std::max(1.0, std::abs(y)))
        << what << " at " << n << ": " << x << ", gathered " << y;
  }
}

// What tensors give is the outside oracle: they are compared with the reference in case_table_test.cpp.
TEST(Cached, GivesWhatTheSameRowsGiveAsTensors) {
  const Sizes s;
  for (const std::string& kernel : kernels_here()) {
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
      for (const Mechanism& mechanism : mechanisms()) {
        for (const std::int64_t queries : {std::int64_t{1}, std::int64_t{3}, std::int64_t{70}}) {
          const std::string what = kernel + ", " + mechanism.name + ", " + std::string(to_string(dtype)) +
                                   ", " + std::to_string(queries) + " queries";
          const std::int64_t length = 300;
          const AttentionPlan plan = plan_of(s, mechanism.spec, dtype, 1, queries, length, kernel);
          const Given given(plan, s);
          const Rows rows(s, length, dtype, 5);
          KvCache cache = cache_of(s, dtype, Paged{16});
          Sequence sequence = cache.start();
          add(cache, sequence, rows, 0, length);
          const Tensor query = as(dtype, Tensor::normal({1, s.num_query_heads, queries, s.head_dim}, 9));
          const std::vector<KeyValueView> views{cache.view(0, sequence)};
          const Result got =
              run(plan, {.query = query, .arguments = given.arguments, .cache = views, .dropout_seed = 4});
          const Result want = run(plan, {.query = query,
                                         .key = rows.key,
                                         .value = rows.value,
                                         .arguments = given.arguments,
                                         .dropout_seed = 4});
          expect_near(got.output, want.output, dtype, what);
          expect_near(got.log_sum_exp, want.log_sum_exp, dtype == DType::f64 ? dtype : DType::f32, what);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// A row's bits: with every store, page size, in a padded and in a packed batch of other lengths, for one
// thread and two, after rollback, as a fork, and with the prompt read in pieces.
TEST(Cached, GivesTheSameBitsHoweverRowsAreStoredAndBatched) {
  const Sizes s{.num_query_heads = 6, .num_kv_heads = 2, .head_dim = 24, .value_dim = 16};
  const std::int64_t length = 1300, window = 50;  // two chunks of keys
  for (const std::string& kernel : kernels_here()) {
    if (kernel == "reference") continue;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const Mechanism& mechanism : mechanisms()) {
        const bool windowed = std::string(mechanism.name) == "window and first keys";
        // These gather their rows, and are slow.
        const bool gathers = !(mechanism.spec.score == Score(ScaledDot{})) ||
                             std::holds_alternative<Sparsemax>(mechanism.spec.normalizer);
        if (gathers && dtype != DType::f32) continue;
        const Rows rows(s, length, dtype, 5), other(s, 700, dtype, 50);
        const AttentionPlan plan = plan_of(s, mechanism.spec, dtype, 3, 200, length, kernel);
        const Given given(plan, s);
        const Tensor query = as(dtype, Tensor::normal({1, s.num_query_heads, 200, s.head_dim}, 9));
        const auto rows_of_query = [&](std::int64_t begin, std::int64_t count) {
          return Tensor::copy_of(query.view().slice(2, begin, count));
        };
        for (const std::int64_t queries : {std::int64_t{1}, std::int64_t{2}, std::int64_t{200}}) {
          if (gathers && queries > 2) continue;
          const std::string what = kernel + ", " + mechanism.name + ", " + std::string(to_string(dtype)) +
                                   ", " + std::to_string(queries);
          const Tensor q = rows_of_query(200 - queries, queries);
          std::optional<Result> first;
          const auto same = [&](const Result& got, const std::string& how) {
            if (!first) {
              first = got;
              return;
            }
            ASSERT_EQ(bytes_of(got.output), bytes_of(first->output)) << what << ": " << how;
            ASSERT_EQ(bytes_of(got.log_sum_exp), bytes_of(first->log_sum_exp)) << what << ": " << how;
          };
          const auto alone = [&](const KeyValueView& view, Executor* executor) {
            const std::vector<KeyValueView> views{view};
            return run(plan, {.query = q, .arguments = given.arguments, .cache = views, .dropout_seed = 0},
                       executor);
          };
          const auto two = make_thread_pool(2), five = make_thread_pool(5);
          std::vector<CacheStore> stores{Contiguous{}, Paged{1}, Paged{16}, Paged{64}};
          if (windowed) stores.push_back(Ring{.window = window + 200, .sinks = 3, .slack = 200});
          for (const CacheStore& store : stores) {
            KvCache cache = cache_of(s, dtype, store);
            Sequence sequence = cache.start();
            for (std::int64_t n = 0; n < length; n += 150)
              add(cache, sequence, rows, n, std::min(n + 150, length));
            same(alone(cache.view(0, sequence), nullptr), "store " + std::to_string(store.index()));
            same(alone(cache.view(0, sequence), two.get()), "two threads");
            same(alone(cache.view(0, sequence), five.get()), "five threads");
            if (HasFatalFailure()) return;
            Sequence fork = cache.fork(sequence);
            cache.truncate(fork, length - 70);
            add(cache, fork, rows, length - 70, length);
            same(alone(cache.view(0, fork), nullptr), "fork");
          }
          // Beside another sequence, padded and packed. Dropout depends on the number of the entry.
          KvCache cache = cache_of(s, dtype, Paged{32});
          Sequence sequence = cache.start(), short_one = cache.start();
          add(cache, sequence, rows, 0, length);
          add(cache, short_one, other, 0, 700);
          const std::vector<KeyValueView> views{cache.view(0, sequence), cache.view(0, short_one)};
          Tensor both(dtype, {2, s.num_query_heads, queries, s.head_dim});
          for (std::int64_t b = 0; b < 2; ++b)
            std::memcpy(both.raw() + b * static_cast<std::int64_t>(q.bytes()), q.raw(), q.bytes());
          const Result padded = run(plan, {.query = both, .arguments = given.arguments, .cache = views});
          same({Tensor::copy_of(padded.output.view().slice(0, 0, 1)),
                Tensor::copy_of(padded.log_sum_exp.view().slice(0, 0, 1))},
               "padded batch");
          const std::vector<std::int64_t> starts{0, queries, queries + 1};
          Tensor side_by_side(dtype, {1, s.num_query_heads, queries + 1, s.head_dim});
          side_by_side.fill(0.5);
          const std::int64_t size = static_cast<std::int64_t>(size_of(dtype)) * s.head_dim;
          for (std::int64_t h = 0; h < s.num_query_heads; ++h)
            std::memcpy(side_by_side.raw() + h * (queries + 1) * size, q.raw() + h * queries * size,
                        static_cast<std::size_t>(queries * size));
          const Result packed = run(
              plan,
              {.query = side_by_side, .arguments = given.arguments, .query_starts = starts, .cache = views});
          same({Tensor::copy_of(packed.output.view().slice(2, 0, queries)),
                Tensor::copy_of(packed.log_sum_exp.view().slice(2, 0, queries))},
               "packed batch");
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// With pages, or few keys, several heads of keys take turns in one unit of work: four of them on one thread
// here, two on two threads, and none on five. A contiguous store of many keys gives each head a unit of its
// own.
void expect_the_same_bits_in_turns(std::int64_t length) {
  const Sizes s{.num_query_heads = 16, .num_kv_heads = 8, .head_dim = 24, .value_dim = 16};
  const auto two = make_thread_pool(2), five = make_thread_pool(5);
  for (const std::string& kernel : kernels_here()) {
    if (kernel == "reference") continue;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Rows rows(s, length, dtype, 5), other(s, length / 2, dtype, 50);
      KvCache contiguous = cache_of(s, dtype, Contiguous{}), pages = cache_of(s, dtype, Paged{16});
      const auto view_of = [&](KvCache& cache, const Rows& from, std::int64_t count) {
        Sequence sequence = cache.start();
        add(cache, sequence, from, 0, count);
        return cache.view(0, sequence);
      };
      const std::vector<KeyValueView> plain{view_of(contiguous, rows, length),
                                            view_of(contiguous, other, length / 2)},
          paged{view_of(pages, rows, length), view_of(pages, other, length / 2)};
      for (const Mechanism& mechanism : mechanisms()) {
        const AttentionPlan plan = plan_of(s, mechanism.spec, dtype, 2, 2, length, kernel);
        const Given given(plan, s);
        const Tensor query = as(dtype, Tensor::normal({2, s.num_query_heads, 2, s.head_dim}, 9));
        const auto bits = [&](const std::vector<KeyValueView>& views, Executor& executor) {
          const Result result =
              run(plan, {.query = query, .arguments = given.arguments, .cache = views}, &executor);
          return std::pair(bytes_of(result.output), bytes_of(result.log_sum_exp));
        };
        const auto expected = bits(plain, *five);
        for (Executor* executor : {&serial_executor(), two.get()}) {
          const std::string what =
              kernel + ", " + mechanism.name + ", threads: " + std::to_string(executor->thread_count());
          EXPECT_EQ(bits(plain, *executor), expected) << what;
          EXPECT_EQ(bits(paged, *executor), expected) << what << ", pages";
        }
      }
    }
  }
}
TEST(Cached, GivesTheSameBitsWhenHeadsTakeTurns) {
  expect_the_same_bits_in_turns(1300);
}
TEST(Cached, GivesTheSameBitsWhenHeadsOfFewKeysTakeTurns) {
  expect_the_same_bits_in_turns(40);
}

// A prompt of 200 rows at once, and in pieces of many rows each, gives the same bits; so do steps of one row
// and of four, which the kernel for few queries computes.
// Scores of some rows rise by more than a kernel's headroom on the way, those of their neighbours do not.
void expect_the_same_bits_in_pieces(DType dtype, std::int64_t large_piece) {
  const Sizes s{.num_query_heads = 6, .num_kv_heads = 2, .head_dim = 24, .value_dim = 16};
  const std::int64_t before = 333, length = before + 200;
  for (const std::string& kernel : kernels_here()) {
    if (kernel == "reference") continue;
    for (const Mechanism& mechanism : mechanisms()) {
      const AttentionPlan plan = plan_of(s, mechanism.spec, dtype, 1, 200, length, kernel);
      const Given given(plan, s);
      const Rows rows(s, length, dtype, 5);
      Tensor wide = Tensor::normal({1, s.num_query_heads, 200, s.head_dim}, 9);
      for (std::int64_t n = 0; n < wide.count(); ++n) wide.data<float>()[n] *= 6.0f;
      const Tensor query = as(dtype, wide);
      const auto in_pieces = [&](std::int64_t piece, std::int64_t total) {
        KvCache cache = cache_of(s, dtype, Paged{16});
        Sequence sequence = cache.start();
        add(cache, sequence, rows, 0, before);
        Tensor output(dtype, {1, s.num_query_heads, total, s.value_dim});
        for (std::int64_t n = 0; n < total; n += piece) {
          const std::int64_t count = std::min(piece, total - n);
          add(cache, sequence, rows, before + n, before + n + count);
          const std::vector<KeyValueView> views{cache.view(0, sequence)};
          attend(plan,
                 {.query = query.view().slice(2, n, count), .arguments = given.arguments, .cache = views},
                 {.output = output.view().slice(2, n, count)});
        }
        return bytes_of(output);
      };
      EXPECT_EQ(in_pieces(192, 192), in_pieces(64, 192)) << kernel << ", " << mechanism.name;
      EXPECT_EQ(in_pieces(2 * large_piece, 2 * large_piece), in_pieces(large_piece, 2 * large_piece))
          << kernel << ", " << mechanism.name;
      EXPECT_EQ(in_pieces(4, 12), in_pieces(1, 12)) << kernel << ", " << mechanism.name;
      EXPECT_EQ(in_pieces(3, 12), in_pieces(1, 12)) << kernel << ", " << mechanism.name;
    }
  }
}

TEST(Cached, GivesTheSameBitsWhenAPromptIsReadInPieces) {
  expect_the_same_bits_in_pieces(DType::f32, 48);
}
TEST(Cached, GivesTheSameBitsWhenAPromptOfBf16IsReadInPieces) {
  expect_the_same_bits_in_pieces(DType::bf16, 37);
}

TEST(Cached, RefusesWhatDoesNotFit) {
  const Sizes s;
  const AttentionPlan plan = plan_of(s, {.mask = Causal{}}, DType::f32, 2, 4, 64);
  const Rows rows(s, 40, DType::f32, 1);
  KvCache cache = cache_of(s, DType::f32, Paged{16}),
          ring = cache_of(s, DType::f32, Ring{.window = 8, .slack = 8}),
          half = cache_of(s, DType::bf16, Paged{16});
  Sequence a = cache.start(), b = ring.start(), c = half.start();
  add(cache, a, rows, 0, 40);
  for (std::int64_t n = 0; n < 40; n += 8) add(ring, b, rows, n, n + 8);
  const Rows bf16(s, 3, DType::bf16, 1);
  add(half, c, bf16, 0, 3);
  const std::vector<KeyValueView> one{cache.view(0, a)}, dropped{ring.view(0, b)}, other{half.view(0, c)};
  const Tensor query = Tensor::normal({1, s.num_query_heads, 2, s.head_dim}, 3),
               two = Tensor::normal({2, s.num_query_heads, 2, s.head_dim}, 3);
  Tensor output(DType::f32, {1, s.num_query_heads, 2, s.value_dim}),
      outputs(DType::f32, {2, s.num_query_heads, 2, s.value_dim});
  const std::vector<std::int64_t> starts{0, 2};
  expect_refused([&] { attend(plan, {.query = two, .cache = one}, {.output = outputs}); }, "cache",
                 "each of the 2 entries");
  expect_refused([&] { attend(plan, {.query = query, .key = rows.key, .cache = one}, {.output = output}); },
                 "key", "nothing beside cache");
  expect_refused(
      [&] { attend(plan, {.query = query, .key_starts = starts, .cache = one}, {.output = output}); },
      "key_starts", "none beside cache");
  expect_refused([&] { attend(plan, {.query = query, .cache = other}, {.output = output}); },
                 "cache[0].dtype", "bf16");
  expect_refused([&] { attend(plan, {.query = query, .cache = dropped}, {.output = output}); }, "cache[0]",
                 "a view without position 0, which the query at position 38 sees");
  const AttentionPlan windowed = plan_of(s, {.mask = SlidingWindow{7} & Causal{}}, DType::f32, 2, 4, 64),
                      narrow = plan_of(s, {.mask = Causal{}}, DType::f32, 1, 4, 39),
                      wide = plan_of({.num_query_heads = 4, .num_kv_heads = 4}, {.mask = Causal{}},
                                     DType::f32, 1, 4, 64);
  EXPECT_NO_THROW(attend(windowed, {.query = query, .cache = dropped}, {.output = output}));
  expect_refused([&] { attend(narrow, {.query = query, .cache = one}, {.output = output}); },
                 "cache[0].length", "39");
  expect_refused([&] { attend(wide, {.query = query, .cache = one}, {.output = output}); },
                 "cache[0].num_kv_heads", "4");
  Tensor gradient(DType::f32, query.shape());
  expect_refused(
      [&] {
        attend_backward(plan, {.query = query, .cache = one},
                        {.output = output, .log_sum_exp = output, .d_output = output}, {.query = gradient});
      },
      "cache", "gradients are those of key and value as tensors");
}

// A call for the output and the weights runs two kernels, one of which reads the rows in place if it runs
// alone.
TEST(Cached, ItsWorkspaceIsEnoughForWeightsToo) {
  const Sizes s{.num_query_heads = 32, .num_kv_heads = 1, .head_dim = 128, .value_dim = 128};
  const std::int64_t length = 600;
  const AttentionPlan plan = plan_of(s, {.mask = Causal{}}, DType::f32, 1, 1, length);
  const Rows rows(s, length, DType::f32, 5);
  KvCache cache = cache_of(s, DType::f32, Paged{16});
  Sequence sequence = cache.start();
  add(cache, sequence, rows, 0, length);
  const std::vector<KeyValueView> views{cache.view(0, sequence)};
  const Tensor query = Tensor::normal({1, s.num_query_heads, 1, s.head_dim}, 9);
  Tensor output(DType::f32, query.shape()), weights(DType::f32, {1, s.num_query_heads, 1, length});
  const std::size_t bytes = workspace_bytes(plan, 1);
  const std::size_t guard = 1 << 20;
  std::vector<std::byte> memory(bytes + guard + 64);
  auto* begin =
      reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(memory.data()) + 63) / 64 * 64);
  std::fill(begin + bytes, memory.data() + memory.size(), std::byte{0x5a});
  attend(plan, {.query = query, .cache = views}, {.output = output, .weights = weights},
         {.executor = &serial_executor(), .workspace = {begin, bytes}});
  EXPECT_TRUE(std::all_of(begin + bytes, memory.data() + memory.size(),
                          [](std::byte b) { return b == std::byte{0x5a}; }));
  const Result want = run(plan, {.query = query, .key = rows.key, .value = rows.value});
  expect_near(output, want.output, DType::f32, "output");
}

TEST(Cached, AViewThatLacksAllRowsGivesZerosWhereTheMaskHidesThem) {
  const Sizes s;
  const AttentionPlan plan = plan_of(s, {.mask = SlidingWindow{10} & Causal{}}, DType::f32, 1, 100, 64);
  KeyValueView view;
  view.length = 64;
  view.num_kv_heads = s.num_kv_heads;
  view.head_dim = view.key_row_stride = s.head_dim;
  view.value_dim = view.value_row_stride = s.value_dim;
  const Tensor query = Tensor::normal({1, s.num_query_heads, 100, s.head_dim}, 3);
  const Result got = run(plan, {.query = query, .query_offset = 1000, .cache = {&view, 1}});
  for (std::int64_t n = 0; n < got.output.count(); ++n) ASSERT_EQ(number(got.output, n), 0.0);
}

TEST(Cached, ASequenceWithoutRowsGivesZeros) {
  const Sizes s;
  const AttentionPlan plan = plan_of(s, {.mask = Causal{}}, DType::f32, 1, 4, 64);
  KvCache cache = cache_of(s, DType::f32, Paged{16});
  const Sequence empty = cache.start();
  const std::vector<KeyValueView> views{cache.view(0, empty)};
  const Tensor query = Tensor::normal({1, s.num_query_heads, 2, s.head_dim}, 3);
  const Result got = run(plan, {.query = query, .query_offset = 0, .cache = views});
  for (std::int64_t n = 0; n < got.output.count(); ++n) EXPECT_EQ(number(got.output, n), 0.0);
  EXPECT_TRUE(std::isinf(number(got.log_sum_exp, 0)));
}

}  // namespace
}  // namespace fovea
