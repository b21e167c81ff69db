// Keys and values of sequences, kept between calls. A sequence is a value: it can be forked, rolled back,
// shared and reordered, and no operation on one changes what another one reads. Here are the cache and its
// sequences; cache/view.h has what `attend` reads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "fovea/cache/view.h"
#include "fovea/core/error.h"
#include "fovea/core/tensor.h"

namespace fovea {

/// One buffer a sequence, whose capacity doubles. Forks share it until one of them writes, and so copies it.
struct Contiguous {
  std::int64_t capacity = 64;  ///< rows of the first buffer
  friend bool operator==(const Contiguous&, const Contiguous&) = default;
};

/// Pages of `page_size` rows that sequences share until one of them writes (vLLM's PagedAttention, Kwon et
/// al. 2023, arXiv 2309.06180). A fork copies no row; the first append to a shared, partly filled page copies
/// that page. Pages that are full can be found again by their token ids.
struct Paged {
  std::int64_t page_size = 64;  ///< a power of 2, 1 to 4096
  friend bool operator==(const Paged&, const Paged&) = default;
};

/// The first `sinks` rows and the last `window`, for a sliding window (StreamingLLM, Xiao et al. 2023, arXiv
/// 2309.17453). `slack` more rows are kept: that many can be reserved at once, and be taken back.
/// Forks share the buffer until one of them writes, and so copies it.
struct Ring {
  std::int64_t window = 0, sinks = 0, slack = 64;
  friend bool operator==(const Ring&, const Ring&) = default;
};

/// The row of the last token alone, which the next one replaces: the state of a recurrence, which has read
/// all tokens before (recurrence/spec.h). Its layer has one head, no values, and replace in place of append.
/// A sequence goes back to its beginning or to a checkpoint. Forks share the row until one of them writes.
struct LastRow {
  friend bool operator==(const LastRow&, const LastRow&) = default;
};

using CacheStore = std::variant<Contiguous, Paged, Ring, LastRow>;

/// Where the values of a layer come from.
enum class CacheValues : std::uint8_t {
  own,            ///< each row has a key and a value
  first_of_keys,  ///< a value is the first value_dim elements of its key: latent attention (MLA, 2405.04434)
  none,           ///< value_dim is 0
};

/// The rows of one layer.
struct CacheLayer {
  std::int64_t num_kv_heads = 1, head_dim = 0;
  std::int64_t value_dim = -1;  ///< -1: head_dim
  DType dtype = DType::f32;     ///< of the rows as they are kept; append converts f32
  CacheValues values = CacheValues::own;
  CacheStore store = Paged{};
  friend bool operator==(const CacheLayer&, const CacheLayer&) = default;
};

struct KvCacheOptions {
  std::vector<CacheLayer> layers = {};
  /// Of all rows together, those of prefixes that are kept for find_prefix included.
  std::int64_t limit_bytes = std::numeric_limits<std::int64_t>::max();
  /// Bytes of full pages that no sequence holds any more, and that start(ids) may still find. The pages used
  /// least recently go first, and any of them goes before CacheFull is thrown.
  std::int64_t prefix_bytes = 0;
};

/// No room within limit_bytes. Committed rows are as they were; reserve may have dropped pending ones.
class CacheFull : public Error {
 public:
  CacheFull(std::int64_t needed, std::int64_t used, std::int64_t limit);
  std::int64_t needed() const noexcept { return needed_; }
  std::int64_t used() const noexcept { return used_; }
  std::int64_t limit() const noexcept { return limit_; }

 private:
  std::int64_t needed_, used_, limit_;
};

/// A sequence of a cache; its rows are given back when it is destroyed. Moving leaves an empty handle, which
/// every operation refuses. One thread at a time may use a sequence; different sequences of one cache may be
/// used by different threads.
class Sequence {
 public:
  Sequence() noexcept;
  Sequence(Sequence&&) noexcept;
  Sequence& operator=(Sequence&&) noexcept;
  ~Sequence();
  explicit operator bool() const noexcept { return state_ != nullptr; }

  struct State;

 private:
  friend class KvCache;
  explicit Sequence(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

/// Bytes of the rows of a cache.
struct CacheBytes {
  std::int64_t used = 0;      ///< held by a sequence or a view, or kept for find_prefix
  std::int64_t prefixes = 0;  ///< of those, in pages that are only kept for find_prefix
  std::int64_t mapped = 0;    ///< of those used, in pages that lie in a file (CacheMemory::mapped)
  std::int64_t free = 0;      ///< in pages that are kept for the next reserve
};

/// Positions [begin, end) of a sequence.
struct PositionRange {
  std::int64_t begin = 0, end = 0;
};

/// Where the rows of a sequence lie that was loaded from a file.
enum class CacheMemory : std::uint8_t {
  copied,  ///< in memory of the cache
  /// Full pages of Paged lie in the file, mapped read-only: processes that load the same file share their
  /// memory. The first row that is written to such a page copies it. The file may be replaced by another one
  /// or removed, as `save` does; a process that reads it ends (SIGBUS) if the file is cut in place meanwhile.
  mapped,
};

struct CacheLoadOptions {
  std::string_view note = {};  ///< that `save` was given; any other one is refused
  std::uint64_t salt = 0;      ///< as in start(ids, salt)
  CacheMemory memory = CacheMemory::copied;
};

/// The keys and values of any number of sequences in every layer of a model.
///
///   KvCache cache({.layers = std::vector<CacheLayer>(n, {.num_kv_heads = 8, .head_dim = 128})});
///   Sequence s = cache.start();
///   cache.reserve(s, ids.size());                 // all memory, or CacheFull
///   for (int l = 0; l < n; ++l) {
///     cache.append(l, s, key, value);             // the rows of these ids
///     const KeyValueView view = cache.view(l, s);
///     attend(plan, {.query = q, .cache = {&view, 1}}, {.output = o});
///   }
///   cache.commit(s, ids);                         // each layer has the same number of new rows
///
/// Rows that are appended and not committed are pending. rollback drops them, and so does the next reserve,
/// so that nothing has to be undone after an exception. Every function throws InvalidArgument for a sequence
/// that is empty or belongs to another cache, and then changes nothing. If memory runs out in the middle of
/// reserve or keep, pending rows are dropped; committed rows never are.
class KvCache {
 public:
  /// Throws InvalidArgument for sizes that are not positive, and for a page size that is not a power of 2.
  /// The window and the slack of a Ring must be at least 1, and values that are part of keys no wider than
  /// these.
  explicit KvCache(KvCacheOptions options);

  const KvCacheOptions& options() const noexcept;
  std::int64_t layer_count() const noexcept;

  /// An empty sequence.
  Sequence start();
  /// A sequence that shares the pages of the longest prefix of `ids` that the cache knows; length(s) says how
  /// many rows that is. It is a multiple of the page size, and less than ids.size(), so that at least one id
  /// remains to be computed. Needs a store of Paged in every layer with one page size, else it is empty.
  /// Only sequences that were started with the same `salt` share pages: one number a user keeps users apart.
  Sequence start(std::span<const std::int32_t> ids, std::uint64_t salt = 0);
  /// A copy of the committed rows of `from`, without its pending ones. Costs one reference a store; who of
  /// the two writes first copies what both hold: of Paged the last page, if it is not full, else the buffer.
  Sequence fork(const Sequence& from);
  /// Gives the rows back now, as the destructor does; the handle is empty then.
  void release(Sequence& sequence);

  /// Committed rows: the position of the next row.
  std::int64_t length(const Sequence& sequence) const;
  /// Rows of `layer` that are appended and not committed.
  std::int64_t pending(std::int64_t layer, const Sequence& sequence) const;
  /// The ids that were committed, one a row, up to the first row that was committed without.
  std::vector<std::int32_t> ids(const Sequence& sequence) const;

  /// Makes room for `rows` rows behind the committed ones, in every layer, and drops pending rows. Throws
  /// CacheFull, and InvalidArgument where `rows` is above the slack of a Ring.
  void reserve(Sequence& sequence, std::int64_t rows);
  /// Writes rows behind those that `layer` has: key [1, num_kv_heads, rows, head_dim], value [1,
  /// num_kv_heads, rows, value_dim], of any strides with contiguous rows, in the dtype of the layer or in
  /// f32. `value` is empty where the layer has none of its own. Throws InvalidArgument for other shapes and
  /// dtypes, and for more rows than were reserved. Rows of a Ring take the place of older ones. Those that a
  /// fork, a view or a checkpoint made since `reserve` holds are copied before; CacheFull is thrown where
  /// that copy has no room.
  void append(std::int64_t layer, Sequence& sequence, ConstTensorView key, ConstTensorView value);
  /// The same for a batch: key [sequences, num_kv_heads, rows, head_dim], value likewise. Each sequence
  /// stands there once. Nothing is written unless all of it can be.
  void append(std::int64_t layer, std::span<Sequence* const> sequences, ConstTensorView key,
              ConstTensorView value);
  /// LastRow alone: the row behind all rows that are reserved, [head_dim] in the dtype of the layer, in place
  /// of the one before. All reserved rows of the layer are then pending. Throws InvalidArgument for another
  /// store, shape or dtype, or where nothing is reserved.
  void replace(std::int64_t layer, Sequence& sequence, ConstTensorView row);
  /// The same for several sequences: rows [sequences, head_dim], contiguous. Nothing is written unless all of
  /// them can be.
  void replace(std::int64_t layer, std::span<Sequence* const> sequences, ConstTensorView rows);
  /// LastRow alone: the committed row, [head_dim], or an empty view before the first. It is valid until the
  /// next commit. Throws InvalidArgument for another store.
  ConstTensorView last_row(std::int64_t layer, const Sequence& sequence) const;
  /// The memory of the row that replaces the last one, [head_dim], for the caller to fill before commit: what
  /// replace copies, without a copy. It may hold anything. Valid until the sequence changes. Errors are those
  /// of replace.
  TensorView next_row(std::int64_t layer, Sequence& sequence);
  /// Committed and pending rows of `layer`. Throws InvalidArgument for a LastRow.
  KeyValueView view(std::int64_t layer, const Sequence& sequence) const;
  /// Makes the pending rows part of the sequence. `ids` has one id a row, or is empty; rows without ids end
  /// what find_prefix can find. Throws InvalidArgument where layers have different numbers of pending rows.
  void commit(Sequence& sequence, std::span<const std::int32_t> ids = {});
  /// The same for several sequences, each of which stands there once: all of them or, if memory runs out,
  /// none. `ids` has a list for each, or none.
  void commit(std::span<Sequence* const> sequences, std::span<const std::span<const std::int32_t>> ids);
  /// Drops pending rows.
  void rollback(Sequence& sequence);

  /// Drops the rows from position `length` on, and pending rows. Throws InvalidArgument for more than
  /// length(sequence), and where a Ring no longer has a whole window before `length`: it goes back at most
  /// `slack` rows, or to a checkpoint. The same where rows from `length` on were dropped.
  void truncate(Sequence& sequence, std::int64_t length);
  /// Gives back the memory of committed rows that no later query sees. `ranges` are in ascending order and do
  /// not overlap. Of Paged, the pages that lie inside a range are dropped; the other rows stay, and those of
  /// the other stores too. Afterwards truncate goes back to the end of the last dropped page at most. Throws
  /// InvalidArgument for ranges that are not inside the sequence.
  void drop(Sequence& sequence, std::span<const PositionRange> ranges);
  /// Makes truncate to the present length possible from any later length. Costs a copy of each Ring and
  /// LastRow once rows are written; the other stores can always go back. A checkpoint is dropped by a
  /// truncate below it.
  void checkpoint(Sequence& sequence);
  /// Speculative decoding with a tree of drafts: of the pending rows keeps those at `path`, ascending indices
  /// from 0, and moves them together. The others are dropped. Copies pages that a fork or a view holds too,
  /// and throws CacheFull if there is no room for the copies; all pending rows are then dropped. Throws
  /// InvalidArgument for a part of the rows beside a LastRow, which has read all of them.
  void keep(Sequence& sequence, std::span<const std::int64_t> path);
  /// Beam search: sequence i becomes a fork of what sequence indices[i] was. A sequence that one beam alone
  /// continues moves, and is not copied. Pending rows are dropped. An index may stand in `indices` many
  /// times.
  void permute(std::span<Sequence> sequences, std::span<const std::int64_t> indices);
  /// The same where the number of sequences may change: afterwards there are indices.size() of them.
  void permute(std::vector<Sequence>& sequences, std::span<const std::int64_t> indices);

  /// How many of `ids` start(ids) would share.
  std::int64_t find_prefix(std::span<const std::int32_t> ids, std::uint64_t salt = 0) const;
  /// Writes the committed rows and ids of `sequence` into a file, beside which it is written and then
  /// renamed: a crash leaves the old file or the new one. Checkpoints are part of it, pending rows are not.
  /// Throws InvalidArgument where pages were dropped, because a file has all rows.
  /// `note` is at most 64 KiB, such as a fingerprint of the model, without which `load` refuses the file.
  /// Throws FileError.
  void save(const Sequence& sequence, const std::filesystem::path& path, std::string_view note = {}) const;
  /// A sequence with the rows of a file, which gives the bits that the saved one gives. The layers must be
  /// those of the cache that saved it, stores included. Full pages with ids can be found by start(ids) with
  /// the same salt, so a file of unknown origin needs a salt of its own. Every byte is checked (CRC32C), but
  /// not whether a model made the rows. Throws FileError, naming the file and the place, and CacheFull. The
  /// cache has not changed then, but for prefixes that made room.
  Sequence load(const std::filesystem::path& path, const CacheLoadOptions& options = {});
  /// The note of a file that `save` wrote. Throws FileError.
  static std::string note_of(const std::filesystem::path& path);
  CacheBytes bytes() const;
  /// Bytes of the blocks that hold the rows of `sequence`, and of those the ones that others hold too.
  struct SequenceBytes {
    std::int64_t used = 0, shared = 0;
  };
  SequenceBytes bytes(const Sequence& sequence) const;
  /// Bytes that a new sequence takes for so many rows, if it shares none.
  std::int64_t bytes_for(std::int64_t rows) const;
  /// Bytes of one row in all layers but those of a LastRow, where rows are not shared.
  std::int64_t bytes_per_row() const noexcept;

  struct Impl;

 private:
  Sequence::State& state_of(const char* function, const Sequence& sequence) const;
  std::vector<Sequence::State*> states_of(const char* function, std::span<Sequence* const> sequences) const;
  void append_rows(std::int64_t layer, std::span<Sequence::State* const> states, ConstTensorView key,
                   ConstTensorView value);
  void replace_rows(std::int64_t layer, std::span<Sequence::State* const> states, ConstTensorView rows);
  std::byte* place_of_next_row(std::size_t layer, Sequence::State& state);
  std::vector<Sequence> permuted(std::span<Sequence> sequences, std::span<const std::int64_t> indices);
  std::shared_ptr<Impl> impl_;
};

}  // namespace fovea
