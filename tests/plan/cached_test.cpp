// Calls whose keys and values are in a cache (AttentionInputs::cache): the numbers of the same rows gathered,
// and the same bits whatever the store, the size of pages, the other entries and the number of threads.
#include <functional>
#include <numeric>

#include "fovea/attention/mask_definition.h"
#include "plan/cached_rows.h"

namespace fovea {
namespace {

using namespace cached;  // NOLINT(google-build-using-namespace): helpers of this test alone

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

// Many sentences of few keys in one call, of which some have several queries: every entry has the bits that
// it has alone, in pages of one row, and in front of keys that the mask hides. Heads of few keys and whole
// vectors have loops of their own on most processors, and the hidden keys make the heads too long for these.
void expect_the_same_bits_of_short_entries(const Sizes& s, const AttentionSpec& spec, float query_scale,
                                           const std::string& kernel, const std::string& what) {
  const std::int64_t count = 40, most = 64, most_queries = 4, hidden = 300;
  KvCache contiguous = cache_of(s, DType::f32, Contiguous{.capacity = most}),
          pages = cache_of(s, DType::f32, Paged{1}), longer = cache_of(s, DType::f32, Paged{64});
  AttentionSpec hiding = spec;
  hiding.mask = spec.mask & KeyLengths{};
  const AttentionPlan plan = plan_of(s, spec, DType::f32, count, most_queries, most, kernel),
                      hiding_plan = plan_of(s, hiding, DType::f32, 1, most_queries, hidden, kernel);
  const Given given(plan, s);
  const Rows rest(s, hidden, DType::f32, 1);
  std::vector<KeyValueView> views, paged, before_hidden;
  std::vector<std::int64_t> starts{0};
  for (std::int64_t n = 0; n < count; ++n) {
    const std::int64_t length = 1 + n * (most - 1) / (count - 1);
    const Rows rows(s, length, DType::f32, static_cast<std::uint64_t>(10 + 2 * n));
    for (auto [cache, list] :
         {std::pair(&contiguous, &views), std::pair(&pages, &paged), std::pair(&longer, &before_hidden)}) {
      Sequence sequence = cache->start();
      add(*cache, sequence, rows, 0, length);
      if (cache == &longer) add(*cache, sequence, rest, length, hidden);
      list->push_back(cache->view(0, sequence));
    }
    starts.push_back(starts.back() + (n % 3 == 0 ? std::min(length, most_queries) : 1));
  }
  Tensor query = Tensor::normal({1, s.num_query_heads, starts.back(), s.head_dim}, 9);
  for (std::int64_t n = 0; n < query.count(); ++n) query.data<float>()[n] *= query_scale;
  const auto two = make_thread_pool(2);
  for (Executor* executor : {&serial_executor(), two.get()}) {
    const Result together =
        run(plan, {.query = query, .arguments = given.arguments, .query_starts = starts, .cache = views},
            executor);
    for (std::size_t n = 0; n < views.size(); ++n) {
      const std::int64_t queries = starts[n + 1] - starts[n], length = views[n].length;
      const auto rows = [&](const Tensor& all) {
        return Tensor::copy_of(all.view().slice(2, starts[n], queries));
      };
      const Tensor own = rows(query);
      const auto same = [&](const Result& alone, const char* where) {
        ASSERT_EQ(bytes_of(rows(together.output)), bytes_of(alone.output))
            << what << ", entry " << n << where;
        ASSERT_EQ(bytes_of(rows(together.log_sum_exp)), bytes_of(alone.log_sum_exp))
            << what << ", entry " << n << where;
      };
      AttentionInputs inputs{.query = own, .arguments = given.arguments, .cache = {&views[n], 1}};
      ASSERT_NO_FATAL_FAILURE(same(run(plan, inputs, executor), ", alone"));
      inputs.cache = {&paged[n], 1};
      ASSERT_NO_FATAL_FAILURE(same(run(plan, inputs, executor), ", pages"));
      inputs.cache = {&before_hidden[n], 1};
      inputs.key_lengths = {&length, 1};
      inputs.query_offset = length - queries;
      ASSERT_NO_FATAL_FAILURE(same(run(hiding_plan, inputs, executor), ", before hidden keys"));
    }
  }
}
TEST(Cached, GivesTheSameBitsForManyShortEntries) {
  for (const Sizes& s :
       {Sizes{4, 4, 32, 32}, Sizes{8, 2, 64, 32}, Sizes{6, 3, 32, 64}, Sizes{4, 4, 24, 40}}) {
    for (const AttentionSpec& spec :
         {AttentionSpec{}, AttentionSpec{.mask = Causal{}},
          AttentionSpec{.mask = SlidingWindow{20} & Causal{}}, AttentionSpec{.mods = {SoftCap{5.0}}}}) {
      for (const std::string& kernel : kernels_here()) {
        if (kernel == "reference") continue;
        // Products that are 30 times as large give weights of 0 beside others.
        for (const float scale : {1.0f, 30.0f})
          ASSERT_NO_FATAL_FAILURE(expect_the_same_bits_of_short_entries(
              s, spec, scale, kernel,
              kernel + ", " + to_string(spec.mask) + ", dim " + std::to_string(s.head_dim) + ", scale " +
                  std::to_string(scale)));
      }
    }
  }
}

// Causal, by a caller who does not end the spans where the keys end.
struct Unclipped {
  bool allows(const Site& site) const { return site.key <= site.query; }
  BlockSpans spans(const QueryBlock& block) const {
    return {{{0, block.query_end}}, {{0, block.query_begin + 1}}};
  }
  std::string print() const { return "unclipped"; }
  void validate() const {}
};
TEST(Cached, TakesSpansThatEndBehindTheKeys) {
  const Sizes s{4, 4, 32, 32};
  const std::int64_t length = 8, queries = 4;
  KvCache cache = cache_of(s, DType::f32, Paged{4});
  Sequence sequence = cache.start();
  add(cache, sequence, Rows(s, length, DType::f32, 5), 0, length);
  const KeyValueView view = cache.view(0, sequence);
  const Tensor query = Tensor::normal({1, s.num_query_heads, queries, s.head_dim}, 9);
  const AttentionInputs inputs{.query = query, .query_offset = length - 2, .cache = {&view, 1}};
  for (const std::string& kernel : kernels_here()) {
    const auto under = [&](const Mask& mask) {
      return bytes_of(run(plan_of(s, {.mask = mask}, DType::f32, 1, queries, length, kernel), inputs).output);
    };
    EXPECT_EQ(under(to_mask(Unclipped())), under(Causal{})) << kernel;
  }
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

}  // namespace
}  // namespace fovea
