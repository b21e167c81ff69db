// What a cache and its sequences consist of, for the files that implement them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/options.h"
#include "cache/rows.h"
#include "fovea/cache/kv_cache.h"

namespace fovea {

struct KvCache::Impl {
  struct Group {
    CacheStore store;
    std::shared_ptr<const cache::BlockLayout> layout;
  };
  // Where a layer's rows are.
  struct Place {
    std::size_t group = 0, index = 0;
  };

  explicit Impl(KvCacheOptions given);
  ~Impl() { pool->drop_prefixes(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  bool finds_prefixes() const {
    return groups.size() == 1 && std::holds_alternative<Paged>(groups.front().store);
  }

  KvCacheOptions options;
  std::vector<Group> groups;
  std::vector<Place> places;
  std::shared_ptr<cache::Pool> pool;
  std::int64_t bytes_per_row = 0, most_pending = cache::most_rows;
};

struct Sequence::State {
  std::shared_ptr<KvCache::Impl> cache;
  std::vector<std::unique_ptr<cache::Rows>> groups;
  std::vector<std::int64_t> pending;  // by layer
  std::int64_t length = 0, reserved = 0;
  cache::SharedVector<std::int32_t, 1024> ids;
  std::uint64_t root = 0;  // of the chain of known pages

  void drop_pending() noexcept {
    std::fill(pending.begin(), pending.end(), 0);
    reserved = 0;
  }
  /// The pending rows of every layer. Throws InvalidArgument where the layers differ.
  std::int64_t pending_rows(const char* function) const;
  /// Pages that became full when the sequence grew from `from` to `to` rows, all of which have ids, can be
  /// found from now on.
  void make_pages_known(std::int64_t from, std::int64_t to);
  /// The part of a commit of `rows` rows that may run out of memory. Changes nothing that a caller sees.
  void prepare_commit(std::int64_t rows, std::span<const std::int32_t> new_ids);
  /// Takes it back.
  void abandon_commit() noexcept;
  /// The rest.
  void finish_commit(std::int64_t rows);
};

}  // namespace fovea
