#include "plan/packed.h"

#include <algorithm>
#include <limits>
#include <memory>

#include "core/starts.h"
#include "plan/rows.h"
#include "plan/run.h"
#include "plan/small_calls.h"
#include "plan/together.h"

namespace fovea {
namespace {

void check_list(const char* function, const char* argument, std::span<const std::int64_t> starts,
                std::optional<std::int64_t> rows, std::int64_t capacity) {
  check_starts(function, argument, starts, rows);
  for (std::size_t n = 1; n < starts.size(); ++n) {
    if (starts[n] - starts[n - 1] > capacity)
      throw InvalidArgument(function, argument,
                            "entries of at most the plan's " + std::to_string(capacity) + " rows",
                            std::to_string(starts[n] - starts[n - 1]) + " in entry " + std::to_string(n - 1));
  }
}

}  // namespace

Entry PackedBatch::operator[](std::int64_t number) const {
  const auto n = static_cast<std::size_t>(number);
  Entry entry{.number = number};
  if (queries_.empty()) {
    entry.batch = number;
    entry.sizes.query_len = query_len_;
  } else {
    entry.query_begin = queries_[n];
    entry.sizes.query_len = queries_[n + 1] - queries_[n];
  }
  if (cache_.empty()) {
    entry.key_begin = keys_[n];
    entry.sizes.key_len = keys_[n + 1] - keys_[n];
  } else {
    entry.sizes.key_len = cache_[n].length;
    entry.sizes.cached = true;
  }
  return entry;
}

CallSizes PackedBatch::sizes() const {
  CallSizes sizes{count(), 0, 0, !cache_.empty()};
  for (std::int64_t n = 0; n < count(); ++n) {
    const Entry entry = (*this)[n];
    sizes.query_len = std::max(sizes.query_len, entry.sizes.query_len);
    sizes.key_len = std::max(sizes.key_len, entry.sizes.key_len);
  }
  return sizes;
}

void check_query_starts(const char* function, const AttentionPlan::Impl& plan, const AttentionInputs& inputs,
                        const CallSizes& given) {
  if (given.batch != 1)
    throw InvalidArgument(function, "query",
                          "a batch of 1, with the rows of all entries, because query_starts is given",
                          described(inputs.query));
  const auto count = static_cast<std::int64_t>(inputs.query_starts.size()) - 1;
  if (count > plan.shape.batch)
    throw InvalidArgument(function, "query_starts",
                          "at most the plan's batch of " + std::to_string(plan.shape.batch) + " entries",
                          std::to_string(count));
  check_list(function, "query_starts", inputs.query_starts, given.query_len, plan.shape.query_len);
}

CallSizes check_packed(const char* function, const AttentionPlan::Impl& plan, const AttentionInputs& inputs,
                       const CallSizes& given, bool keys_told) {
  const auto queries = inputs.query_starts, keys = inputs.key_starts;
  if (queries.empty() || keys.empty())
    throw InvalidArgument(function, queries.empty() ? "query_starts" : "key_starts",
                          "starts of both queries and keys, or of neither", "nothing");
  if (keys.size() != queries.size())
    throw InvalidArgument(function, "key_starts",
                          "as many starts as query_starts, " + std::to_string(queries.size()),
                          std::to_string(keys.size()));
  check_query_starts(function, plan, inputs, given);
  check_list(function, "key_starts", keys,
             keys_told ? std::optional<std::int64_t>(given.key_len) : std::nullopt, plan.shape.key_len);
  return PackedBatch(inputs).sizes();
}

std::int64_t longest_entry(std::span<const std::int64_t> starts) noexcept {
  std::int64_t most = 0;
  for (std::size_t n = 1; n < starts.size(); ++n) {
    // The call refuses starts that are not ascending; here they are skipped.
    if (starts[n - 1] >= 0 && starts[n] > starts[n - 1]) most = std::max(most, starts[n] - starts[n - 1]);
  }
  return most;
}

double Sharing::cost(const Entry& entry) {
  // The cost of a query's own rows is about that of four keys. Keys are read once, however few queries there
  // are.
  const auto queries = static_cast<double>(entry.sizes.query_len),
             keys = static_cast<double>(entry.sizes.key_len);
  return (queries + 4) * (keys + 4);
}

Sharing::Sharing(const AttentionPlan::Impl& plan, const PackedBatch& batch, int threads, Order order)
    : large_{0, 0, 0}, small_{0, 0, 0}, threads_(threads) {
  double all = 0;
  for (std::int64_t n = 0; n < batch.count(); ++n) all += cost(batch[n]);
  // A single entry is run by all threads, which divide its heads. For a small call the caller has already
  // chosen a serial executor.
  if (order == Order::any && batch.count() > 1) {
    // At the end of the small entries a thread idles for at most the time of one of them. The limit is an
    // eighth of a thread's share. Below some tens of microseconds a parallel loop costs more than it gains.
    const AttentionShape& s = plan.shape;
    const auto width = static_cast<double>(s.num_query_heads * (s.head_dim + s.value_dim));
    most_ = threads > 1 ? std::max(all / (8.0 * (threads - 1)), 0x1p20 / width)
                        : std::numeric_limits<double>::infinity();
  }
  for (std::int64_t n = 0; n < batch.count(); ++n) {
    const Entry entry = batch[n];
    if (entry.empty()) continue;
    CallSizes& most = is_small(entry) ? small_ : large_;
    most = {most.batch + 1, std::max(most.query_len, entry.sizes.query_len),
            std::max(most.key_len, entry.sizes.key_len), entry.sizes.cached};
  }
}

std::int64_t Sharing::lanes() const {
  return std::max<std::int64_t>(std::min<std::int64_t>(threads_, small_.batch), 1);
}

std::int64_t small_entries(const PackedBatch& batch, const Sharing& sharing, std::int64_t begin,
                           std::int64_t end, std::int64_t* order) {
  std::int64_t count = 0;
  for (std::int64_t n = begin; n < end; ++n) {
    if (sharing.is_small(batch[n])) order[count++] = n;
  }
  if (sharing.lanes() > 1) {
    std::sort(order, order + count, [&](std::int64_t a, std::int64_t b) {
      const double of_a = Sharing::cost(batch[a]), of_b = Sharing::cost(batch[b]);
      return of_a != of_b ? of_a > of_b : a < b;
    });
  }
  return count;
}

EntryCall::EntryCall(const AttentionPlan::Impl& plan, const Call& packed, const Entry& entry, Carver& carver)
    : entry_(entry.number) {
  const AttentionInputs& all = packed.inputs;
  const auto number = static_cast<std::size_t>(entry.number);
  inputs_.query = query_rows(all.query, entry);
  inputs_.key = key_rows(all.key, entry);
  inputs_.value = key_rows(all.value, entry);
  if (!all.cache.empty()) inputs_.cache = all.cache.subspan(number, 1);
  inputs_.key_lengths = all.key_lengths;
  inputs_.query_offset =
      all.query_offsets.empty() ? all.query_offset : std::optional(all.query_offsets[number]);
  inputs_.dropout_seed = all.dropout_seed;
  inputs_.sample_seed = all.sample_seed;
  auto* views = carver.take<ConstTensorView>(packed.arguments.count());
  arguments_ = {views, static_cast<std::size_t>(packed.arguments.count())};
  for (int n = 0; n < packed.arguments.count(); ++n)
    std::construct_at(views + n, part_of(plan.arguments[static_cast<std::size_t>(n)].declaration,
                                         packed.arguments[n], entry));
}

Call EntryCall::call(std::span<const TensorView> gradients) const {
  return {.inputs = inputs_,
          .arguments = Resolved<ConstTensorView>(arguments_),
          .gradients = Resolved<TensorView>(gradients),
          .backward = !gradients.empty(),
          .entry = entry_};
}

std::size_t EntryCall::bytes(const AttentionPlan::Impl& plan) {
  return aligned(plan.arguments.size() * sizeof(ConstTensorView)) + workspace_alignment;
}

namespace {

std::size_t entry_bytes(const AttentionPlan::Impl& plan, const CallSizes& most, int threads,
                        const AttentionOutputs* outputs) {
  const auto sums =
      static_cast<std::size_t>(plan.shape.num_query_heads * most.query_len) * size_of(plan.compute_dtype());
  return EntryCall::bytes(plan) + aligned(sums) + 2 * workspace_alignment +
         most_forward_bytes(plan, {1, most.query_len, most.key_len, most.cached}, threads, outputs);
}

// Copies [1, heads, rows] into rows that lie side by side in each head.
void copy_heads(const ConstTensorView& from, const TensorView& to) {
  const auto size = static_cast<std::int64_t>(size_of(from.dtype()));
  for (std::int64_t h = 0; h < from.size(1); ++h)
    std::copy_n(from.raw() + h * from.stride(1) * size, from.size(2) * size,
                to.raw() + h * to.stride(1) * size);
}

void run_entry(const AttentionPlan::Impl& plan, const Call& packed, const AttentionOutputs& outputs,
               const Entry& entry, Executor& executor, std::span<std::byte> memory) {
  const std::int64_t queries = entry.sizes.query_len, keys = entry.sizes.key_len;
  if (queries == 0) return;
  AttentionOutputs own{.output = query_rows(outputs.output, entry), .weight_heads = outputs.weight_heads};
  const TensorView sums = query_rows(outputs.log_sum_exp, entry);
  if (outputs.weights) {
    const TensorView rows = query_rows(outputs.weights, entry);
    clear_rows(rows.slice(3, keys, rows.size(3) - keys));
    own.weights = rows.slice(3, 0, keys);
  }
  if (keys == 0) return write_fully_masked(plan, {.output = own.output, .log_sum_exp = sums});
  Carver carver(memory);
  const EntryCall call(plan, packed, entry, carver);
  if (sums)
    own.log_sum_exp =
        TensorView(carver.take<std::byte>(sums.count() * static_cast<std::int64_t>(size_of(sums.dtype()))),
                   sums.dtype(), sums.shape());
  run_forward(plan, call.call(), own, entry.sizes, executor, carver.rest());
  if (sums) copy_heads(own.log_sum_exp, sums);
}

}  // namespace

void attend_packed(const AttentionPlan::Impl& plan, const Call& call, const AttentionOutputs& outputs,
                   const CallResources& resources) {
  const PackedBatch batch(call.inputs);
  Executor& executor = executor_of(resources, multiply_adds(plan, batch));
  const int threads = executor.thread_count();
  JointEntries joint(plan, call, outputs, batch);
  const std::size_t list =
      aligned(static_cast<std::size_t>(batch.count()) * sizeof(std::int64_t)) + workspace_alignment;
  const std::size_t given = resources.workspace.size(),
                    room = given > list + workspace_alignment ? given - list - workspace_alignment : 0;
  const std::size_t together = joint.bytes(
      threads, resources.workspace.data() ? std::min(room, most_together_bytes) : most_together_bytes);
  if (together > 0 && joint.count() == batch.count())
    return joint.run(executor, workspace_of("attend", resources.workspace, together));
  const Sharing sharing(plan, batch, threads);
  const EntryMemory parts(
      sharing, threads, [&](const CallSizes& most, int of) { return entry_bytes(plan, most, of, &outputs); });
  Carver carver(workspace_of("attend", resources.workspace, list + std::max(parts.bytes(), together)));
  auto* order = carver.take<std::int64_t>(batch.count());
  if (together > 0) joint.run(executor, carver.rest());
  const EntryLoop loop{batch, sharing, parts, executor, carver.rest(), order};
  loop(0, batch.count(), [&](const Entry& entry, Executor& with, std::span<std::byte> memory) {
    if (!joint.has_run(entry.number)) run_entry(plan, call, outputs, entry, with, memory);
  });
}

std::size_t packed_bytes(const AttentionPlan::Impl& plan, int threads, bool cached) {
  const AttentionShape& s = plan.shape;
  const CallSizes most{1, s.query_len, s.key_len, cached};
  const auto lanes = static_cast<std::size_t>(std::min<std::int64_t>(threads, s.batch));
  return aligned(static_cast<std::size_t>(s.batch) * sizeof(std::int64_t)) + workspace_alignment +
         std::max({aligned(entry_bytes(plan, most, threads, nullptr)),
                   lanes * aligned(entry_bytes(plan, most, 1, nullptr)),
                   cached ? aligned(together_bytes(plan, threads)) : 0});
}

}  // namespace fovea
