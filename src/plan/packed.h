// Packed batches (AttentionInputs::query_starts). They run as a list of calls, one for each entry that is not
// among the JointEntries (plan/together.h). Each entry runs on the candidate that the plan's rule picks for
// its own count of queries. Entries that are small beside the others are given to one thread each; the large
// ones run one after the other with all threads. Kernels give the same bits for every number of threads, so
// this distribution changes no result.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fovea/core/cancellation.h"
#include "plan/call.h"
#include "plan/workspace.h"

namespace fovea {

/// One sequence of a packed batch: where its rows begin, and its sizes as a separate call.
struct Entry {
  std::int64_t number = 0, query_begin = 0, key_begin = 0;
  CallSizes sizes{1, 0, 0};
  std::int64_t batch = 0;  // the entry of the operands' batch that has the rows: 0 of packed rows
  bool empty() const { return sizes.query_len == 0 || sizes.key_len == 0; }
};

class PackedBatch {
 public:
  explicit PackedBatch(const AttentionInputs& inputs)
      : queries_(inputs.query_starts),
        keys_(inputs.key_starts),
        cache_(inputs.cache),
        query_len_(inputs.query.rank() == 4 ? inputs.query.size(2) : 0) {}
  explicit operator bool() const { return !queries_.empty() || !keys_.empty() || !cache_.empty(); }
  std::int64_t count() const {
    return static_cast<std::int64_t>(queries_.empty() ? cache_.size() : queries_.size() - 1);
  }
  Entry operator[](std::int64_t number) const;
  /// The number of entries, and the largest number of rows of an entry.
  CallSizes sizes() const;

 private:
  std::span<const std::int64_t> queries_, keys_;  // of as many numbers, ascending from 0, once checked
  std::span<const KeyValueView> cache_;  // in the place of keys_; without queries_ the batch is padded
  std::int64_t query_len_ = 0;
};

/// Throws InvalidArgument where the views of a cache do not fit the plan and the queries of a call; returns
/// PackedBatch::sizes. `given` has the sizes of the queries.
CallSizes check_cache(const char* function, const AttentionPlan::Impl& plan, const AttentionInputs& inputs,
                      const CallSizes& given);
/// Throws InvalidArgument where the mask lets a query see a position that a view lacks. The rest is checked.
void check_kept(const char* function, const AttentionPlan::Impl& plan, const AttentionInputs& inputs);

/// Throws InvalidArgument where query_starts does not describe rows of `given`.
void check_query_starts(const char* function, const AttentionPlan::Impl& plan, const AttentionInputs& inputs,
                        const CallSizes& given);
/// Throws InvalidArgument if the starts do not describe the rows of `given`, the sizes of the views. Returns
/// PackedBatch::sizes. If `keys_told` is false, there is no key view that tells how many keys there are.
CallSizes check_packed(const char* function, const AttentionPlan::Impl& plan, const AttentionInputs& inputs,
                       const CallSizes& given, bool keys_told);

/// How the entries of a call are distributed over threads.
class Sharing {
 public:
  /// in_turn: every entry runs with all threads, in the order of the entries.
  enum class Order : std::uint8_t { any, in_turn };
  Sharing(const AttentionPlan::Impl& plan, const PackedBatch& batch, int threads, Order order = Order::any);
  bool is_small(const Entry& entry) const { return cost(entry) <= most_; }
  /// The sizes of the large entries, each of which all threads run together, and of the small entries: how
  /// many there are, and the largest number of rows.
  const CallSizes& large() const { return large_; }
  const CallSizes& small() const { return small_; }
  /// The number of small entries that run at once. Each of them runs in a lane, which has its own memory.
  std::int64_t lanes() const;
  /// A rough cost, comparable between entries.
  static double cost(const Entry& entry);

 private:
  double most_ = -1;
  CallSizes large_, small_;
  int threads_ = 1;
};

/// Divides the memory of a call among its entries. A large entry gets all of it. Small entries run in lanes,
/// and each lane gets a part of its own.
class EntryMemory {
 public:
  /// `one(sizes, threads)` returns the bytes for an entry of at most these sizes.
  template <class Bytes>
  EntryMemory(const Sharing& sharing, int threads, Bytes&& one) {
    if (sharing.large().batch > 0) large_ = aligned(one(sharing.large(), threads));
    if (sharing.small().batch > 0) lane_ = aligned(one(sharing.small(), 1));
    bytes_ = std::max(large_, lane_ * static_cast<std::size_t>(sharing.lanes()));
  }
  std::size_t bytes() const { return bytes_; }
  std::span<std::byte> whole(std::span<std::byte> memory) const { return memory.first(large_); }
  std::span<std::byte> lane(std::span<std::byte> memory, std::int64_t lane) const {
    return memory.subspan(lane_ * static_cast<std::size_t>(lane), lane_);
  }

 private:
  std::size_t large_ = 0, lane_ = 0, bytes_ = 0;
};

/// Writes the numbers of the small entries in [begin, end) to `order`, the most work first. Returns how many
/// there are.
std::int64_t small_entries(const PackedBatch& batch, const Sharing& sharing, std::int64_t begin,
                           std::int64_t end, std::int64_t* order);

/// Runs the entries of a call.
struct EntryLoop {
  const PackedBatch& batch;
  const Sharing& sharing;
  const EntryMemory& parts;
  Executor& executor;
  std::span<std::byte> memory;    // at least parts.bytes()
  std::int64_t* order = nullptr;  // room for one number for each entry

  /// Calls run(entry, executor, memory) for the entries [begin, end).
  template <class Run>
  void operator()(std::int64_t begin, std::int64_t end, Run&& run) const {
    for (std::int64_t n = begin; n < end; ++n) {
      if (const Entry entry = batch[n]; !sharing.is_small(entry)) run(entry, executor, parts.whole(memory));
    }
    const std::int64_t count = small_entries(batch, sharing, begin, end, order);
    std::atomic<std::int64_t> next{0};
    // A unit is a lane and not an entry: an executor may distribute units in advance.
    executor.parallel_for(std::min(count, sharing.lanes()), [&](std::int64_t lane, int) {
      for (std::int64_t n; (n = next.fetch_add(1, std::memory_order_relaxed)) < count;) {
        throw_if_cancelled();
        run(batch[order[n]], serial_executor(), parts.lane(memory, lane));
      }
    });
  }
};

/// The part of an argument (or of its gradient) that belongs to an entry: its slice of a batch axis, and no
/// more rows than the entry has.
template <class View>
View part_of(const ArgumentDeclaration& declaration, const View& view, const Entry& entry) {
  if (!is_given(view)) return view;
  const int first = view.rank() - static_cast<int>(declaration.axes.size());
  View part = view;
  for (int axis = first; axis < view.rank(); ++axis) {
    const auto of = declaration.axes[static_cast<std::size_t>(axis - first)].size;
    const auto cut = [&](std::int64_t most) { return part.slice(axis, 0, std::min(part.size(axis), most)); };
    if (of == &ArgumentSizes::batch && part.size(axis) > 1) part = part.slice(axis, entry.number, 1);
    if (of == &ArgumentSizes::query_len) part = cut(entry.sizes.query_len);
    if (of == &ArgumentSizes::key_len) part = cut(entry.sizes.key_len);
  }
  return part;
}

/// The rows of an entry; an empty view stays empty.
template <class View>
View rows_of_entry(const View& view, std::int64_t batch, std::int64_t begin, std::int64_t count) {
  return is_given(view) ? view.slice(0, batch, 1).slice(2, begin, count) : view;
}
template <class View>
View query_rows(const View& view, const Entry& entry) {
  return rows_of_entry(view, entry.batch, entry.query_begin, entry.sizes.query_len);
}
template <class View>
View key_rows(const View& view, const Entry& entry) {
  return rows_of_entry(view, 0, entry.key_begin, entry.sizes.key_len);
}

/// One entry as a call. The views of its arguments lie in memory from `carver`.
class EntryCall {
 public:
  EntryCall(const AttentionPlan::Impl& plan, const Call& packed, const Entry& entry, Carver& carver);
  /// `gradients` has one view for each argument.
  Call call(std::span<const TensorView> gradients = {}) const;
  /// At least as many bytes as the constructor takes.
  static std::size_t bytes(const AttentionPlan::Impl& plan);

 private:
  AttentionInputs inputs_;
  std::span<ConstTensorView> arguments_;
  std::int64_t entry_;
};

/// Continues a packed call of attend, or of attend_backward, that has been checked.
void attend_packed(const AttentionPlan::Impl& plan, const Call& call, const AttentionOutputs& outputs,
                   const CallResources& resources);
void attend_packed_backward(const AttentionPlan::Impl& plan, const Call& call, const AttentionLoss& loss,
                            const AttentionGradients& gradients, const CallResources& resources);

/// Bytes that are enough for every packed call of the plan.
std::size_t packed_bytes(const AttentionPlan::Impl& plan, int threads, bool cached);
std::size_t packed_backward_bytes(const AttentionPlan::Impl& plan, int threads, LossOf loss_of);

}  // namespace fovea
