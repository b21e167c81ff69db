// Random operations on a cache beside plain lists of rows: the lists say what the cache has to hold. Here is
// one run of them; cache/model_test.cpp compares rows and bytes, and plan/cache_model_test.cpp attention.
// FOVEA_CACHE_OPERATIONS sets the number of operations, a million for a long run; without it a hundredth of
// that is made.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "fovea/cache/kv_cache.h"
#include "fovea/core/philox.h"

namespace fovea::cache_model {

// What a row holds is a function of its stamp. Numbers below 256 are exact in every dtype.
inline float element(std::int64_t stamp, std::size_t layer, std::int64_t head, std::int64_t d, bool value) {
  return static_cast<float>(
      (stamp * 37 + static_cast<std::int64_t>(layer) * 11 + head * 5 + d * 3 + (value ? 128 : 0)) % 256);
}

struct Expected {
  std::vector<std::int64_t> stamps;  // of committed rows
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> pending;
  std::vector<std::int64_t> checkpoints;
  std::set<std::int64_t> dropped;  // positions that pages may have given back
};

/// A sequence, and what it has to hold.
struct Live {
  Sequence sequence;
  Expected expected;
};

class Driver {
 public:
  Driver(const KvCacheOptions& options, std::uint64_t seed) : cache_(options), random_(seed) {
    most_pending_ = 40;
    for (const CacheLayer& layer : cache_.options().layers) {
      if (const auto* ring = std::get_if<Ring>(&layer.store))
        most_pending_ = std::min(most_pending_, ring->slack);
      goes_back_anywhere_ = goes_back_anywhere_ && !std::holds_alternative<Ring>(layer.store);
      has_last_row_ = has_last_row_ || std::holds_alternative<LastRow>(layer.store);
      only_pages_ = only_pages_ && layer.store == cache_.options().layers.front().store &&
                    std::holds_alternative<Paged>(layer.store);
    }
  }
  const KvCache& cache() const { return cache_; }
  const std::vector<Live>& live() const { return live_; }

  void step() {
    ++steps_;
    if (live_.empty() || below(20) == 0) return start();
    const std::size_t n = below(live_.size());
    if (below(50) == 0) return save_and_load(n);
    switch (below(13)) {
      case 0:
        return fork(n);
      case 1:
        return truncate(n);
      case 2:
        return keep(n);
      case 3:
        return permute();
      case 4:
        return live_.size() > 6 ? release(n) : grow(n, true);
      case 5:
        return grow(n, false);
      case 6:
        return checkpoint(n);
      case 7:
        return drop(n);
      default:
        return grow(n, true);
    }
  }

  void check_all() {
    for (const Live& live : live_) check(live);
    check_bytes();
    const CacheBytes bytes = cache_.bytes();
    EXPECT_LE(bytes.used, cache_.options().limit_bytes);
    EXPECT_LE(bytes.prefixes, cache_.options().prefix_bytes);
  }

  void finish() {
    live_.clear();
    const CacheBytes bytes = cache_.bytes();
    EXPECT_EQ(bytes.used, bytes.prefixes);
    if (cache_.options().prefix_bytes == 0) {
      EXPECT_EQ(bytes.used, 0);
      EXPECT_EQ(bytes.mapped, 0);
    }
  }
  std::int64_t full() const { return full_; }
  std::int64_t found() const { return found_; }
  std::int64_t loaded() const { return loaded_; }

 private:
  std::size_t below(std::size_t n) { return random_.next_below(static_cast<std::uint32_t>(n)); }
  // Few different ids, so that prefixes are met again; the stamp of a row is a function of all ids up to it,
  // as a model's keys are.
  std::int64_t stamp_of(const std::vector<std::int32_t>& ids) const {
    std::uint64_t hash = 17;
    for (const std::int32_t id : ids) hash = hash * 1000003 + static_cast<std::uint64_t>(id) + 1;
    return static_cast<std::int64_t>(hash % 1000000007);
  }

  void start() {
    std::vector<std::int32_t> ids;
    for (std::size_t n = below(150); n > 0; --n)
      ids.push_back(static_cast<std::int32_t>(below(8) == 0 ? below(3) : 1));
    Live live{cache_.start(ids), {}};
    const std::int64_t known = cache_.length(live.sequence);
    ASSERT_LE(known, static_cast<std::int64_t>(ids.size()));
    found_ += known;
    for (std::int64_t n = 0; n < known; ++n) {
      live.expected.ids.push_back(ids[static_cast<std::size_t>(n)]);
      live.expected.stamps.push_back(stamp_of(live.expected.ids));
    }
    check(live);
    live_.push_back(std::move(live));
  }

  void grow(std::size_t n, bool commits) {
    Live& live = live_[n];
    const auto rows = static_cast<std::int64_t>(below(static_cast<std::size_t>(most_pending_) + 1));
    try {
      cache_.reserve(live.sequence, rows);
      live.expected.pending.clear();
    } catch (const CacheFull&) {
      ++full_;
      check(live);
      return release(below(live_.size()));
    }
    std::vector<std::int32_t> ids = live.expected.ids, added;
    std::vector<std::int64_t> stamps;
    for (std::int64_t r = 0; r < rows; ++r) {
      added.push_back(static_cast<std::int32_t>(below(8) == 0 ? below(3) : 1));
      ids.push_back(added.back());
      stamps.push_back(stamp_of(ids));
    }
    append(live, stamps);
    live.expected.pending = stamps;
    check(live);
    if (!commits) return;  // stays pending; the next reserve drops it
    cache_.commit(live.sequence, added);
    live.expected.stamps.insert(live.expected.stamps.end(), stamps.begin(), stamps.end());
    live.expected.ids = ids;
    live.expected.pending.clear();
    check(live);
  }

  void append(Live& live, const std::vector<std::int64_t>& stamps) {
    const auto& layers = cache_.options().layers;
    for (std::size_t l = 0; l < layers.size(); ++l) {
      const CacheLayer& spec = layers[l];
      if (std::holds_alternative<LastRow>(spec.store)) {
        if (stamps.empty()) continue;
        Tensor row(spec.dtype, {spec.head_dim});
        for (std::int64_t d = 0; d < spec.head_dim; ++d)
          row.view().at<float>({d}) = element(stamps.back(), l, 0, d, false);
        cache_.replace(static_cast<std::int64_t>(l), live.sequence, row);
        continue;
      }
      // In pieces, so that a page is crossed in the middle of a call and between two.
      for (std::size_t begin = 0; begin < stamps.size();) {
        const std::size_t count = std::min(stamps.size() - begin, 1 + below(17));
        const auto rows = static_cast<std::int64_t>(count);
        Tensor key(DType::f32, {1, spec.num_kv_heads, rows, spec.head_dim});
        Tensor value(DType::f32, {1, spec.num_kv_heads, rows, std::max<std::int64_t>(spec.value_dim, 1)});
        for (std::int64_t h = 0; h < spec.num_kv_heads; ++h) {
          for (std::int64_t r = 0; r < rows; ++r) {
            const std::int64_t stamp = stamps[begin + static_cast<std::size_t>(r)];
            for (std::int64_t d = 0; d < spec.head_dim; ++d)
              key.view().at<float>({0, h, r, d}) = element(stamp, l, h, d, false);
            for (std::int64_t d = 0; d < spec.value_dim; ++d)
              value.view().at<float>({0, h, r, d}) = element(stamp, l, h, d, true);
          }
        }
        cache_.append(static_cast<std::int64_t>(l), live.sequence, key,
                      spec.values == CacheValues::own ? ConstTensorView(value) : ConstTensorView());
        begin += count;
      }
    }
  }

  void fork(std::size_t n) {
    if (live_.size() > 12) return;
    Live copy{cache_.fork(live_[n].sequence), live_[n].expected};
    copy.expected.pending.clear();
    check(copy);
    live_.push_back(std::move(copy));
  }

  void truncate(std::size_t n) {
    Live& live = live_[n];
    const std::int64_t length = cache_.length(live.sequence);
    const auto to =
        below(3) == 0 ? static_cast<std::int64_t>(below(static_cast<std::size_t>(length) + 1))
                      : length - static_cast<std::int64_t>(
                                     below(static_cast<std::size_t>(std::min<std::int64_t>(length, 12)) + 1));
    try {
      cache_.truncate(live.sequence, to);
    } catch (const InvalidArgument&) {
      // Pages may refuse what was dropped, a Ring what is neither in its slack nor a checkpoint, and a
      // LastRow everything but the beginning and checkpoints.
      ASSERT_GT(length - to, 0);
      const bool dropped = live.expected.dropped.lower_bound(to) != live.expected.dropped.end();
      ASSERT_TRUE(dropped || !goes_back_anywhere_ || has_last_row_);
      if (!dropped) ASSERT_FALSE(is_checkpoint(live, to));
      if (!dropped && goes_back_anywhere_) ASSERT_GT(to, 0);
      return check(live);
    }
    if (has_last_row_) ASSERT_TRUE(to == length || to == 0 || is_checkpoint(live, to)) << "step " << steps_;
    live.expected.pending.clear();
    live.expected.stamps.resize(static_cast<std::size_t>(to));
    live.expected.ids.resize(static_cast<std::size_t>(to));
    std::erase_if(live.expected.checkpoints, [&](std::int64_t kept) { return kept > to; });
    std::erase_if(live.expected.dropped, [&](std::int64_t position) { return position >= to; });
    check(live);
  }

  static bool is_checkpoint(const Live& live, std::int64_t length) {
    const auto& kept = live.expected.checkpoints;
    return std::find(kept.begin(), kept.end(), length) != kept.end();
  }

  void checkpoint(std::size_t n) {
    cache_.checkpoint(live_[n].sequence);
    live_[n].expected.checkpoints.push_back(cache_.length(live_[n].sequence));
  }

  void drop(std::size_t n) {
    Live& live = live_[n];
    const auto length = static_cast<std::size_t>(cache_.length(live.sequence));
    const std::size_t begin = below(length + 1), end = begin + below(length - begin + 1);
    const PositionRange range{static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end)};
    const std::int64_t used = cache_.bytes(live.sequence).used;
    cache_.drop(live.sequence, std::span(&range, 1));
    EXPECT_LE(cache_.bytes(live.sequence).used, used);
    for (std::size_t p = begin; p < end; ++p) live.expected.dropped.insert(static_cast<std::int64_t>(p));
    check(live);
  }

  bool lacks_pages(const Live& live) const {
    for (std::size_t l = 0; l < cache_.options().layers.size(); ++l) {
      if (!std::holds_alternative<Paged>(cache_.options().layers[l].store)) continue;
      std::int64_t end = 0;
      for (const KeyValueRun& run : cache_.view(static_cast<std::int64_t>(l), live.sequence).runs) {
        if (run.position != end) return true;
        end = run.position + run.count;
      }
      if (end < cache_.length(live.sequence)) return true;
    }
    return false;
  }

  // The sequence goes on as what was loaded.
  void save_and_load(std::size_t n) {
    Live& live = live_[n];
    if (lacks_pages(live)) {
      EXPECT_THROW(cache_.save(live.sequence, "nowhere"), InvalidArgument);
      return;
    }
    const std::string file =
        (std::filesystem::temp_directory_path() / ("fovea-cache-model-" + std::to_string(::getpid())))
            .string();
    cache_.save(live.sequence, file);
    try {
      Live loaded{cache_.load(file, {.memory = below(2) == 0 ? CacheMemory::copied : CacheMemory::mapped}),
                  live.expected};
      loaded.expected.pending.clear();
      check(loaded);
      live = std::move(loaded);
      ++loaded_;
    } catch (const CacheFull&) {
      ++full_;
      check(live);
    }
    std::filesystem::remove(file);
  }

  void keep(std::size_t n) {
    Live& live = live_[n];
    std::vector<std::int64_t> path, stamps;
    for (std::size_t r = 0; r < live.expected.pending.size(); ++r) {
      if (below(2) == 0) continue;
      path.push_back(static_cast<std::int64_t>(r));
      stamps.push_back(live.expected.pending[r]);
    }
    if (has_last_row_ && path.size() < live.expected.pending.size()) {
      EXPECT_THROW(cache_.keep(live.sequence, path), InvalidArgument);
      return check(live);
    }
    try {
      cache_.keep(live.sequence, path);
      live.expected.pending = stamps;
    } catch (const CacheFull&) {  // a fork or a view holds the pages, and there is no room for copies
      live.expected.pending.clear();
    }
    check(live);
  }

  void permute() {
    const std::size_t count = 1 + below(live_.size());
    std::vector<Sequence> sequences;
    std::vector<std::int64_t> from;
    std::vector<Expected> expected;
    for (std::size_t n = 0; n < count; ++n) {
      sequences.push_back(std::move(live_[n].sequence));
      from.push_back(static_cast<std::int64_t>(below(count)));
    }
    for (const std::int64_t n : from) {
      expected.push_back(live_[static_cast<std::size_t>(n)].expected);
      expected.back().pending.clear();
    }
    cache_.permute(sequences, from);
    for (std::size_t n = 0; n < count; ++n) {
      live_[n] = {std::move(sequences[n]), expected[n]};
      check(live_[n]);
    }
  }

  void release(std::size_t n) {
    cache_.release(live_[n].sequence);
    EXPECT_FALSE(live_[n].sequence);
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(n));
  }

  void check(const Live& live) {
    const Expected& expected = live.expected;
    ASSERT_EQ(cache_.length(live.sequence), static_cast<std::int64_t>(expected.stamps.size()))
        << "step " << steps_;
    ASSERT_EQ(cache_.ids(live.sequence), expected.ids) << "step " << steps_;
    std::vector<std::int64_t> stamps = expected.stamps;
    stamps.insert(stamps.end(), expected.pending.begin(), expected.pending.end());
    for (std::size_t l = 0; l < cache_.options().layers.size(); ++l) {
      const CacheLayer& spec = cache_.options().layers[l];
      if (std::holds_alternative<LastRow>(spec.store)) {
        check_last_row(l, live);
        continue;
      }
      const KeyValueView view = cache_.view(static_cast<std::int64_t>(l), live.sequence);
      ASSERT_EQ(view.length, static_cast<std::int64_t>(stamps.size()));
      std::vector<bool> seen(stamps.size());
      std::int64_t end = 0;
      for (const KeyValueRun& run : view.runs) {
        ASSERT_GE(run.position, end);
        ASSERT_GT(run.count, 0);
        end = run.position + run.count;
        ASSERT_LE(end, view.length);
        for (std::int64_t r = 0; r < run.count; ++r) {
          seen[static_cast<std::size_t>(run.position + r)] = true;
          check_row(spec, l, view, run, r, stamps[static_cast<std::size_t>(run.position + r)]);
        }
      }
      const auto* ring = std::get_if<Ring>(&spec.store);
      for (std::size_t p = 0; p < seen.size(); ++p) {
        const auto at = static_cast<std::int64_t>(p);
        // The window of the next query, and of every pending one.
        const auto committed = static_cast<std::int64_t>(expected.stamps.size());
        const auto* paged = std::get_if<Paged>(&spec.store);
        if (paged && expected.dropped.count(at) > 0) {
          // The memory of a page goes when all its rows were dropped in one call, and not before.
          if (paged->page_size == 1) ASSERT_FALSE(seen[p]) << "position " << p << ", step " << steps_;
          continue;
        }
        if (!ring || at < ring->sinks || at >= committed - ring->window)
          ASSERT_TRUE(seen[p]) << "position " << p << " of " << seen.size() << ", step " << steps_;
      }
    }
  }

  void check_last_row(std::size_t layer, const Live& live) {
    const ConstTensorView row = cache_.last_row(static_cast<std::int64_t>(layer), live.sequence);
    const auto& stamps = live.expected.stamps;
    ASSERT_EQ(bool(row), !stamps.empty()) << "step " << steps_;
    for (std::int64_t d = 0; row && d < row.size(0); ++d)
      ASSERT_EQ(row.at<float>({d}), element(stamps.back(), layer, 0, d, false)) << "step " << steps_;
  }

  // What is written and not committed is dropped first, so that only committed rows take memory.
  void check_bytes() {
    std::int64_t own = 0, all = 0;
    std::map<const std::byte*, std::int64_t> holders;  // of each page
    for (Live& live : live_) {
      cache_.reserve(live.sequence, 0);
      live.expected.pending.clear();
      const KvCache::SequenceBytes bytes = cache_.bytes(live.sequence);
      ASSERT_LE(bytes.shared, bytes.used);
      own += bytes.used - bytes.shared;
      all += bytes.used;
      if (only_pages_) {
        for (const KeyValueRun& run : cache_.view(0, live.sequence).runs) ++holders[run.key];
      }
    }
    const CacheBytes bytes = cache_.bytes();
    ASSERT_LE(own, bytes.used - bytes.prefixes) << "step " << steps_;
    ASSERT_GE(all, bytes.used - bytes.prefixes) << "step " << steps_;
    if (!only_pages_) return;
    const std::int64_t page = cache_.bytes_for(1);
    ASSERT_EQ(bytes.used - bytes.prefixes, std::ssize(holders) * page) << "step " << steps_;
    for (const Live& live : live_) {
      std::int64_t used = 0, shared = 0;
      for (const KeyValueRun& run : cache_.view(0, live.sequence).runs) {
        used += page;
        if (holders.at(run.key) > 1) shared += page;
      }
      ASSERT_EQ(cache_.bytes(live.sequence).used, used) << "step " << steps_;
      ASSERT_EQ(cache_.bytes(live.sequence).shared, shared) << "step " << steps_;
    }
  }

  static float read(DType dtype, const std::byte* at, std::int64_t index) {
    if (dtype == DType::f32) return reinterpret_cast<const float*>(at)[index];
    if (dtype == DType::bf16) return static_cast<float>(reinterpret_cast<const bfloat16*>(at)[index]);
    return static_cast<float>(reinterpret_cast<const float16*>(at)[index]);
  }

  void check_row(const CacheLayer& spec, std::size_t layer, const KeyValueView& view, const KeyValueRun& run,
                 std::int64_t r, std::int64_t stamp) {
    for (std::int64_t h = 0; h < spec.num_kv_heads; ++h) {
      for (std::int64_t d = 0; d < spec.head_dim; ++d)
        ASSERT_EQ(read(spec.dtype, run.key, h * run.key_head_stride + r * view.key_row_stride + d),
                  element(stamp, layer, h, d, false))
            << "step " << steps_;
      for (std::int64_t d = 0; d < spec.value_dim; ++d)
        ASSERT_EQ(read(spec.dtype, run.value, h * run.value_head_stride + r * view.value_row_stride + d),
                  element(stamp, layer, h, d, spec.values == CacheValues::own))
            << "step " << steps_;
    }
  }

  KvCache cache_;
  PhiloxStream random_;
  std::vector<Live> live_;
  bool goes_back_anywhere_ = true, has_last_row_ = false, only_pages_ = true;
  std::int64_t most_pending_ = 0, steps_ = 0, full_ = 0, found_ = 0, loaded_ = 0;
};

/// The caches of the random test, each with its name.
struct Case {
  const char* name;
  KvCacheOptions options;
};

inline constexpr int cases = 9;
/// Of each case.
inline std::int64_t operations() {
  const char* given = std::getenv("FOVEA_CACHE_OPERATIONS");
  return (given ? std::atoll(given) : 10000) / cases;
}

inline Case case_of(int number) {
  const CacheLayer plain{.num_kv_heads = 2, .head_dim = 4};
  const auto with = [&](CacheStore store, DType dtype = DType::f32) {
    CacheLayer layer = plain;
    layer.store = store;
    layer.dtype = dtype;
    return layer;
  };
  const auto state = [](std::int64_t size) {
    return CacheLayer{.head_dim = size, .values = CacheValues::none, .store = LastRow{}};
  };
  switch (number) {
    case 0:
      return {"contiguous", {.layers = {with(Contiguous{.capacity = 3}), with(Contiguous{.capacity = 3})}}};
    case 1:
      return {"pages of 1", {.layers = {with(Paged{1})}}};
    case 2:
      return {"pages of 16, prefixes",
              {.layers = {with(Paged{16}, DType::bf16), with(Paged{16})}, .prefix_bytes = 1 << 16}};
    case 3:
      return {"ring", {.layers = {with(Ring{.window = 9, .sinks = 2, .slack = 5})}}};
    case 4:
      return {"mixed",
              {.layers = {with(Ring{.window = 16, .sinks = 0, .slack = 11}), with(Paged{8}, DType::f16),
                          with(Contiguous{}), with(Ring{.window = 7, .sinks = 3, .slack = 13})}}};
    case 5:
      return {"latent and keys alone",
              {.layers = {
                   {.num_kv_heads = 1, .head_dim = 6, .value_dim = 4, .values = CacheValues::first_of_keys},
                   {.num_kv_heads = 1, .head_dim = 3, .values = CacheValues::none}}}};
    case 7:
      return {"states beside pages",
              {.layers = {with(Paged{4}), state(5), with(Paged{8}, DType::bf16), state(17)}}};
    case 8:
      return {"states alone", {.layers = {state(3), state(3)}}};
    default:
      return {"pages of 4, a limit",
              {.layers = {with(Paged{4})}, .limit_bytes = 300 * 64, .prefix_bytes = 4096}};
  }
}

}  // namespace fovea::cache_model
