#include "bench/cached.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <optional>

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

  // The rows of batch entry `entry` of key and value.
  void add(const Tensor& key, const Tensor& value, std::int64_t entry, std::int64_t rows) {
    Sequence sequence = cache.start();
    // In pieces, as prompts are read: pages are then not all neighbours in memory.
    constexpr std::int64_t piece = 512;
    for (std::int64_t n = 0; n < rows; n += piece) {
      const std::int64_t count = std::min(piece, rows - n);
      cache.reserve(sequence, count);
      cache.append(0, sequence, key.view().slice(0, entry, 1).slice(2, n, count),
                   value.view().slice(0, entry, 1).slice(2, n, count));
      cache.commit(sequence);
    }
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

// In turns, so that other work of the machine slows all of them alike.
std::vector<double> in_turns(std::int64_t turns, int threads,
                             const std::vector<std::function<void()>>& calls) {
  const Clock clock = threads == 1 ? Clock::cpu : Clock::wall;
  std::vector<double> best(calls.size(), std::numeric_limits<double>::infinity());
  for (std::int64_t turn = 0; turn <= turns; ++turn) {
    for (std::size_t n = 0; n < calls.size(); ++n) {
      const double now = best_seconds(1, calls[n], clock);
      if (turn > 0) best[n] = std::min(best[n], now);
    }
  }
  return best;
}

struct Sizes {
  std::int64_t batch = 1, queries = 1, keys = 0;
};

CachedRow measure_stores(const CachedBench& o, const std::string& name, DType dtype, const Sizes& s,
                         Executor& executor) {
  const Tensor query = operand(dtype, {s.batch, o.heads, s.queries, o.head_dim}, 1),
               key = operand(dtype, {s.batch, o.kv_heads, s.keys, o.head_dim}, 2),
               value = operand(dtype, {s.batch, o.kv_heads, s.keys, o.head_dim}, 3);
  const AttentionPlan plan = plan_of(o, dtype, s.batch, s.queries, s.keys);
  Tensor output(dtype, query.shape());
  CachedRow row{.name = name, .dtype = dtype, .threads = executor.thread_count()};
  const auto as_tensors = [&] {
    attend(plan, {.query = query, .key = key, .value = value}, {.output = output}, {.executor = &executor});
  };
  // One store at a time beside the tensors: all of them together may be more than the machine holds.
  const auto with = [&](const CacheStore& store, double& seconds) {
    Cached cached(o, dtype, store);
    for (std::int64_t b = 0; b < s.batch; ++b) cached.add(key, value, b, s.keys);
    const auto times =
        in_turns(o.repeat, executor.thread_count(), {as_tensors, [&] {
                                                       attend(plan, {.query = query, .cache = cached.views},
                                                              {.output = output}, {.executor = &executor});
                                                     }});
    row.tensors = row.tensors == 0.0 ? times[0] : std::min(row.tensors, times[0]);
    seconds = times[1];
  };
  with(Contiguous{.capacity = s.keys}, row.contiguous);
  with(Paged{64}, row.pages_64);
  with(Paged{16}, row.pages_16);
  return row;
}

CachedRow measure_mixed(const CachedBench& o, DType dtype, Executor& executor) {
  constexpr std::int64_t prompt = 512, steps = 15, keys = 4096;
  const Tensor key = operand(dtype, {1, o.kv_heads, keys, o.head_dim}, 2),
               value = operand(dtype, {1, o.kv_heads, keys, o.head_dim}, 3),
               query = operand(dtype, {1, o.heads, prompt + steps, o.head_dim}, 1);
  Cached cached(o, dtype, Paged{64});
  std::vector<std::int64_t> starts{0, prompt};
  cached.add(key, value, 0, prompt);
  for (std::int64_t n = 0; n < steps; ++n) {
    cached.add(key, value, 0, keys);
    starts.push_back(starts.back() + 1);
  }
  Tensor output(dtype, query.shape());
  const AttentionPlan together = plan_of(o, dtype, 1 + steps, prompt, keys),
                      first = plan_of(o, dtype, 1, prompt, prompt), step = plan_of(o, dtype, 1, 1, keys);
  const auto times =
      in_turns(o.repeat, executor.thread_count(),
               {[&] {
                  attend(together, {.query = query, .query_starts = starts, .cache = cached.views},
                         {.output = output}, {.executor = &executor});
                },
                [&] {
                  for (std::size_t n = 0; n < cached.views.size(); ++n) {
                    const std::int64_t begin = starts[n], rows = starts[n + 1] - starts[n];
                    attend(n == 0 ? first : step,
                           {.query = query.view().slice(2, begin, rows), .cache = {&cached.views[n], 1}},
                           {.output = output.view().slice(2, begin, rows)}, {.executor = &executor});
                  }
                }});
  return {.name = "512 queries and 15 steps at 4096",
          .dtype = dtype,
          .threads = executor.thread_count(),
          .tensors = times[1],
          .pages_64 = times[0]};
}

}  // namespace

void measure_cached(const CachedBench& bench, const std::function<void(const CachedRow&)>& tell) {
  const auto executor = make_thread_pool(bench.threads);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t batch : bench.batches) {
      for (const std::int64_t keys : bench.lengths) {
        const std::int64_t bytes = 2 * 2 * batch * bench.kv_heads * keys * bench.head_dim *
                                   static_cast<std::int64_t>(size_of(dtype));
        if (bytes > bench.most_megabytes * 1000000) continue;
        tell(measure_stores(bench, fmt::format("decode, batch {}, {} keys", batch, keys), dtype,
                            {.batch = batch, .keys = keys}, *executor));
      }
    }
    const std::int64_t keys = bench.lengths.front();
    tell(measure_stores(bench,
                        fmt::format("512 queries behind {} keys", keys - std::min<std::int64_t>(512, keys)),
                        dtype, {.queries = std::min<std::int64_t>(512, keys), .keys = keys}, *executor));
    tell(measure_mixed(bench, dtype, *executor));
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
      const auto add = [&](Cached& cached, Sequence& sequence, std::int64_t rows) {
        for (std::int64_t n = 0; n < rows; n += piece) {
          const std::int64_t count = std::min(piece, rows - n);
          cached.cache.reserve(sequence, count);
          cached.cache.append(0, sequence, key.view().slice(2, 0, count), value.view().slice(2, 0, count));
          cached.cache.commit(sequence);
        }
      };
      Sequence prefix = together.cache.start();
      add(together, prefix, o.prefix);
      for (std::int64_t n = 0; n < o.texts; ++n) {
        Sequence own = apart.cache.start(), fork = together.cache.fork(prefix);
        add(apart, own, o.prefix);
        add(apart, own, 1);
        add(together, fork, 1);
        apart.views.push_back(apart.cache.view(0, own));
        together.views.push_back(together.cache.view(0, fork));
        apart.sequences.push_back(std::move(own));
        together.sequences.push_back(std::move(fork));
      }
      const AttentionPlan plan = plan_of(o, dtype, o.texts, 1, o.prefix + 1);
      Tensor output(dtype, query.shape());
      const auto step = [&](const Cached& cached) {
        return [&] {
          attend(plan, {.query = query, .cache = cached.views}, {.output = output},
                 {.executor = executor.get()});
        };
      };
      const auto times = in_turns(o.repeat, executor->thread_count(), {step(apart), step(together)});
      tell({.heads = o.heads, .kv_heads = kv_heads, .dtype = dtype, .apart = times[0], .together = times[1]});
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
