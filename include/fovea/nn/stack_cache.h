// What a stack of blocks keeps of the rows that it has read, for inference row by row. These are the keys and
// values of its self-attention, and those of the memory that its cross-attention reads. TransformerStack
// makes one (nn/transformer.h); the rows are in a KvCache (cache/kv_cache.h).
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "fovea/cache/kv_cache.h"

namespace fovea::nn {

struct StackCacheOptions {
  /// Of the rows of self-attention. Pages of 16 rows: a beam that forks copies at most 15 of them, and a
  /// sentence of 14 words takes one page. Reading long texts from pages of 64 takes up to a seventh less
  /// time.
  CacheStore store = Paged{16};
  std::int64_t limit_bytes = std::numeric_limits<std::int64_t>::max();  ///< KvCacheOptions::limit_bytes
};

/// The sequences of a batch, one for each entry. All blocks have read the same rows of a sequence. Entries
/// are sequences of one KvCache, so a fork or another order copies no rows; whoever writes first copies a
/// page.
class StackCache {
 public:
  StackCache() = default;  ///< belongs to no stack: TransformerStack::extend refuses it

  /// 0 before the first rows are read, because a batch says how many entries there are.
  std::int64_t entries() const noexcept { return static_cast<std::int64_t>(sequences_.size()); }
  /// The rows that an entry has read; 0 before the first.
  std::int64_t length(std::int64_t entry = 0) const;
  /// Of those, the rows whose keys and values are kept: not given back (TransformerStack::forget), and 0
  /// where all blocks have recurrences, which keep a state.
  std::int64_t rows_kept(std::int64_t entry = 0) const;
  /// Bytes of the rows of all sequences in the two caches, what forks share counted once.
  std::int64_t bytes() const;

  /// The same entries, which from here on are read apart from these.
  StackCache fork() const;
  /// Entry i becomes a fork of what entry from[i] was, as a beam search orders its hypotheses. The result may
  /// have more entries, or fewer. Throws InvalidArgument for an index that is no entry.
  void reorder(std::span<const std::int64_t> from);
  /// Makes every entry forget the rows from `length` on: KvCache::truncate. Beside a recurrence `length` is 0
  /// or that of a checkpoint.
  void truncate(std::int64_t length);

  /// The cache of self-attention and the sequence of an entry, for what is not here: files, checkpoints,
  /// drafts. Throws InvalidArgument where there is none.
  KvCache& rows();
  Sequence& sequence(std::int64_t entry = 0);

 private:
  friend class TransformerStack;
  std::size_t checked(const char* function, const char* argument, std::int64_t entry) const;
  // What belongs to a memory is read only after start, so that copies of it can be shared.
  struct Memory;

  std::size_t blocks_ = 0;
  std::optional<KvCache> rows_;  // none of a stack without blocks
  std::vector<Sequence> sequences_;
  std::shared_ptr<const Memory> memory_;  // none without cross-attention
  std::vector<std::size_t> reads_;        // the entry of the memory that an entry reads
};

}  // namespace fovea::nn
