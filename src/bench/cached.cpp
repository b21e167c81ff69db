#include "bench/cached.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "bench/timing.h"
#include "fovea/cache/kv_cache.h"
#include "fovea/core/executor.h"
#include "fovea/plan/plan.h"

namespace fovea::bench {
namespace {

Tensor operand(DType dtype, const Shape& shape, std::uint64_t seed) {
  return rounded_to(dtype, random_operand(shape, seed));
}

// Sequences of one cache, and their views.
struct Cached {
  KvCache cache;
  std::vector<Sequence> sequences;
  std::vector<KeyValueView> views;

  Cached(const CachedBench& o, DType dtype, const CacheStore& store)
      : cache({.layers = {
                   {.num_kv_heads = o.kv_heads, .head_dim = o.head_dim, .dtype = dtype, .store = store}}}) {}

  // Appends the first `count` rows of key and value.
  void append(Sequence& sequence, const ConstTensorView& key, const ConstTensorView& value,
              std::int64_t count) {
    cache.reserve(sequence, count);
    cache.append(0, sequence, key.slice(2, 0, count), value.slice(2, 0, count));
    cache.commit(sequence);
  }
  // `rows` rows, which are those of key and value again and again.
  void append_again(Sequence& sequence, const Tensor& key, const Tensor& value, std::int64_t rows) {
    for (std::int64_t n = 0, count = 0; n < rows; n += count) {
      count = std::min(key.shape()[2], rows - n);
      append(sequence, key.view(), value.view(), count);
    }
  }
  // Several sequences of `rows` rows. They grow a page at a time and in turns, as texts do that are written
  // together, so that pages have the places in memory that they have then.
  void grow(const Tensor& key, const Tensor& value, std::int64_t count, std::int64_t rows) {
    std::vector<Sequence> all;
    for (std::int64_t n = 0; n < count; ++n) all.push_back(cache.start());
    constexpr std::int64_t page = 64;
    for (std::int64_t n = 0; n < rows; n += page) {
      for (Sequence& sequence : all) append(sequence, key.view(), value.view(), std::min(page, rows - n));
    }
    for (Sequence& sequence : all) keep(std::move(sequence));
  }
  void keep(Sequence sequence) {
    views.push_back(cache.view(0, sequence));
    sequences.push_back(std::move(sequence));
  }
};

AttentionPlan plan_of(const CachedBench& o, DType dtype, std::int64_t batch, std::int64_t queries,
                      std::int64_t keys) {
  return make_plan({.mask = Causal{}},
                   {.batch = batch,
                    .num_query_heads = o.heads,
                    .num_kv_heads = o.kv_heads,
                    .query_len = queries,
                    .key_len = keys,
                    .head_dim = o.head_dim,
                    .value_dim = o.head_dim},
                   {.dtype = dtype, .kernel = o.kernel});
}

struct Pair {
  double first = 0.0, second = 0.0;  // medians of seconds
  double ratio = 0.0;                // the median of first / second over the turns
};
// A call of a short text is repeated within its turn until this many seconds have passed: reading the clock
// takes a part of a few microseconds.
constexpr double shortest_turn = 1e-4;
// In turns, since the speed of memory on a shared machine changes by a third from one second to the next. The
// ratio is taken within each turn: a quotient of the two best runs compared two such states.
// A turn calls first, second, second, first. So each of them runs once behind itself and once behind the
// other, and finds the caches as these leave them. With one call of each, in an order that changed from turn
// to turn, ratios of 4,096 keys of bf16 came in two groups, about 0.93 and 1.03. Their median lay anywhere
// between these.
Pair in_turns(std::int64_t turns, int threads, const std::function<void()>& first,
              const std::function<void()>& second) {
  const Clock clock = threads == 1 ? Clock::cpu : Clock::wall;
  const auto calls = static_cast<std::int64_t>(
      std::ceil(std::clamp(shortest_turn / std::max(best_seconds(3, first), 1e-9), 1.0, 1000.0)));
  const auto seconds_of = [&](const std::function<void()>& call) {
    const auto all = [&] {
      for (std::int64_t n = 0; n < calls; ++n) call();
    };
    return best_seconds(1, all, clock) / static_cast<double>(calls);
  };
  std::vector<double> firsts, seconds, ratios;
  for (std::int64_t turn = 0; turn <= turns; ++turn) {
    double one = seconds_of(first);
    const double other = (seconds_of(second) + seconds_of(second)) / 2.0;
    one = (one + seconds_of(first)) / 2.0;
    if (turn == 0) continue;
    firsts.push_back(one);
    seconds.push_back(other);
    ratios.push_back(one / other);
  }
  return {median(std::move(firsts)), median(std::move(seconds)), median(std::move(ratios))};
}

struct Sizes {
  std::int64_t batch = 1, queries = 1, keys = 0;
};

CachedRow measure_stores(const CachedBench& o, const std::string& name, DType dtype, const Sizes& s,
                         Executor& executor) {
  const Tensor query = operand(dtype, {s.batch, o.heads, s.queries, o.head_dim}, 1);
  const AttentionPlan plan = plan_of(o, dtype, s.batch, s.queries, s.keys);
  Tensor output(dtype, query.shape());
  CachedRow row{.name = name, .dtype = dtype, .threads = executor.thread_count()};
  const auto over = [&](const Cached& cached) {
    return [&] {
      attend(plan, {.query = query, .cache = cached.views}, {.output = output}, {.executor = &executor});
    };
  };
  // Two copies of the keys at a time: all of them together may be more than the machine holds. Values do not
  // change the time, so the stores hold the same rows again and again.
  Cached contiguous(o, dtype, Contiguous{.capacity = s.keys});
  const std::int64_t page = std::min<std::int64_t>(64, s.keys);
  const Tensor some_keys = operand(dtype, {1, o.kv_heads, page, o.head_dim}, 2),
               some_values = operand(dtype, {1, o.kv_heads, page, o.head_dim}, 3);
  contiguous.grow(some_keys, some_values, s.batch, s.keys);
  {
    const Tensor key = operand(dtype, {s.batch, o.kv_heads, s.keys, o.head_dim}, 2),
                 value = operand(dtype, {s.batch, o.kv_heads, s.keys, o.head_dim}, 3);
    const Pair pair = in_turns(
        o.repeat, executor.thread_count(),
        [&] {
          attend(plan, {.query = query, .key = key, .value = value}, {.output = output},
                 {.executor = &executor});
        },
        over(contiguous));
    row.tensors = pair.first;
    row.price = 1.0 / pair.ratio;
  }
  const auto beside = [&](const Paged& store, double& seconds, double& speed) {
    Cached pages(o, dtype, store);
    pages.grow(some_keys, some_values, s.batch, s.keys);
    const Pair pair = in_turns(o.repeat, executor.thread_count(), over(contiguous), over(pages));
    row.contiguous = pair.first;
    seconds = pair.second;
    speed = pair.ratio;
  };
  beside(Paged{64}, row.pages_64, row.speed_64);
  beside(Paged{16}, row.pages_16, row.speed_16);
  return row;
}

constexpr std::string_view mixed_name = "512 queries and 15 steps at 4096";

CachedRow measure_mixed(const CachedBench& o, DType dtype, Executor& executor) {
  constexpr std::int64_t prompt = 512, steps = 15, keys = 4096;
  const Tensor key = operand(dtype, {1, o.kv_heads, 64, o.head_dim}, 2),
               value = operand(dtype, {1, o.kv_heads, 64, o.head_dim}, 3),
               query = operand(dtype, {1, o.heads, prompt + steps, o.head_dim}, 1);
  Cached cached(o, dtype, Paged{64});
  std::vector<std::int64_t> starts{0, prompt};
  Sequence first_text = cached.cache.start();
  cached.append_again(first_text, key, value, prompt);
  cached.keep(std::move(first_text));
  cached.grow(key, value, steps, keys);
  for (std::int64_t n = 0; n < steps; ++n) starts.push_back(starts.back() + 1);
  Tensor output(dtype, query.shape());
  const AttentionPlan together = plan_of(o, dtype, 1 + steps, prompt, keys),
                      first = plan_of(o, dtype, 1, prompt, prompt), step = plan_of(o, dtype, 1, 1, keys);
  const Pair pair = in_turns(
      o.repeat, executor.thread_count(),
      [&] {
        attend(together, {.query = query, .query_starts = starts, .cache = cached.views}, {.output = output},
               {.executor = &executor});
      },
      [&] {
        for (std::size_t n = 0; n < cached.views.size(); ++n) {
          const std::int64_t begin = starts[n], rows = starts[n + 1] - starts[n];
          attend(n == 0 ? first : step,
                 {.query = query.view().slice(2, begin, rows), .cache = {&cached.views[n], 1}},
                 {.output = output.view().slice(2, begin, rows)}, {.executor = &executor});
        }
      });
  return {.name = std::string(mixed_name),
          .dtype = dtype,
          .threads = executor.thread_count(),
          .tensors = pair.second,
          .pages_64 = pair.first,
          .price = pair.ratio};
}

}  // namespace

void measure_cached(const CachedBench& bench, const std::function<void(const CachedRow&)>& tell) {
  const auto executor = make_thread_pool(bench.threads);
  const auto wanted = [&](std::string_view name) { return name.find(bench.only) != name.npos; };
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t batch : bench.batches) {
      for (const std::int64_t keys : bench.lengths) {
        const std::string name = fmt::format("decode, batch {}, {} keys", batch, keys);
        const std::int64_t bytes = 2 * 2 * batch * bench.kv_heads * keys * bench.head_dim *
                                   static_cast<std::int64_t>(size_of(dtype));
        if (bytes > bench.most_megabytes * 1000000 || !wanted(name)) continue;
        tell(measure_stores(bench, name, dtype, {.batch = batch, .keys = keys}, *executor));
      }
    }
    const std::int64_t keys = bench.lengths.front(), queries = std::min<std::int64_t>(512, keys);
    if (const std::string name = fmt::format("512 queries behind {} keys", keys - queries); wanted(name))
      tell(measure_stores(bench, name, dtype, {.queries = queries, .keys = keys}, *executor));
    if (wanted(mixed_name)) tell(measure_mixed(bench, dtype, *executor));
  }
}

void measure_shared(const CachedBench& bench, const std::function<void(const SharedRow&)>& tell) {
  const auto executor = make_thread_pool(bench.threads);
  for (const std::int64_t kv_heads : {8, 32}) {
    CachedBench o = bench;
    o.heads = 32;
    o.kv_heads = kv_heads;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const std::int64_t bytes =
          2 * (o.texts + 1) * kv_heads * o.prefix * o.head_dim * static_cast<std::int64_t>(size_of(dtype));
      if (bytes > o.most_megabytes * 1000000) continue;
      // The same rows again and again: values do not change the time, and drawing all of them would take
      // long.
      const std::int64_t piece = std::min<std::int64_t>(512, o.prefix);
      const Tensor key = operand(dtype, {1, kv_heads, piece, o.head_dim}, 2),
                   value = operand(dtype, {1, kv_heads, piece, o.head_dim}, 3),
                   query = operand(dtype, {o.texts, o.heads, 1, o.head_dim}, 1);
      Cached apart(o, dtype, Paged{64}), together(o, dtype, Paged{64});
      Sequence prefix = together.cache.start();
      together.append_again(prefix, key, value, o.prefix);
      for (std::int64_t n = 0; n < o.texts; ++n) {
        Sequence own = apart.cache.start(), fork = together.cache.fork(prefix);
        apart.append_again(own, key, value, o.prefix);
        apart.append_again(own, key, value, 1);
        together.append_again(fork, key, value, 1);
        apart.keep(std::move(own));
        together.keep(std::move(fork));
      }
      const AttentionPlan plan = plan_of(o, dtype, o.texts, 1, o.prefix + 1);
      Tensor output(dtype, query.shape());
      const auto step = [&](const Cached& cached) {
        return [&] {
          attend(plan, {.query = query, .cache = cached.views}, {.output = output},
                 {.executor = executor.get()});
        };
      };
      const Pair pair = in_turns(o.repeat, executor->thread_count(), step(apart), step(together));
      tell({.heads = o.heads,
            .kv_heads = kv_heads,
            .dtype = dtype,
            .apart = pair.first,
            .together = pair.second,
            .gain = pair.ratio});
    }
  }
}

void measure_operations(const std::function<void(const OperationRow&)>& tell) {
  for (const std::int64_t rows : {std::int64_t{1000}, std::int64_t{32000}, std::int64_t{1000000}}) {
    KvCache cache({.layers = {{.num_kv_heads = 1, .head_dim = 16}}});
    Sequence sequence = cache.start();
    const Tensor many = random_operand({1, 1, 1000, 16}, 1), one = random_operand({1, 1, 1, 16}, 2);
    std::vector<std::int32_t> ids(1000, 7);
    for (std::int64_t n = 0; n < rows; n += 1000) {
      cache.reserve(sequence, 1000);
      cache.append(0, sequence, many, many);
      cache.commit(sequence, ids);
    }
    const std::int32_t id = 7;
    const auto append = [&](Sequence& to) {
      cache.reserve(to, 1);
      cache.append(0, to, one, one);
      cache.commit(to, {&id, 1});
    };
    constexpr int count = 200;
    const auto each = [&](const std::function<void()>& body) {
      return best_seconds(
                 20,
                 [&] {
                   for (int n = 0; n < count; ++n) body();
                 },
                 Clock::cpu) /
             count;
    };
    OperationRow row{.rows = rows};
    row.fork = each([&] { static_cast<void>(cache.fork(sequence)); });
    row.fork_and_append = each([&] {
      Sequence copy = cache.fork(sequence);
      append(copy);
    });
    row.truncate = each([&] {
      cache.truncate(sequence, rows - 1);
      append(sequence);
    });
    row.step = each([&] { append(sequence); });
    tell(row);
  }
}

}  // namespace fovea::bench
