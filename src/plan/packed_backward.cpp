// attend_backward of a packed batch. If entries share an argument, their gradients are added in the order of
// the entries, on any thread. So the bits do not depend on the number of threads.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "plan/packed.h"
#include "plan/rows.h"
#include "plan/run.h"
#include "plan/small_calls.h"

namespace fovea {
namespace {

// Bytes of gradients that wait to be added. The gradients of one entry may exceed it.
constexpr std::size_t slots_budget = std::size_t{1} << 20;

// Where the gradient of an argument by one entry is written.
enum class Destination : std::uint8_t {
  nowhere,   // the gradient is not wanted
  own,       // to the entry's part of the caller's tensor
  in_place,  // added to the caller's tensor; entries take turns
  slot       // to a slot: memory of the entry, which is added to the caller's tensor later
};

bool of_mod(const AttentionPlan::Impl& plan, int argument) {
  return argument >= plan.first_weight_mod_argument ||
         (argument >= plan.first_mod_argument && argument < plan.first_normalizer_argument);
}

Destination destination_of(const AttentionPlan::Impl& plan, const Call& call, int argument,
                           std::int64_t entries) {
  const TensorView& wanted = call.gradients[argument];
  if (!wanted) return Destination::nowhere;
  if (entries == 1) return Destination::own;
  if (!of_mod(plan, argument)) return Destination::slot;
  if (wanted.size(0) > 1) return Destination::own;
  // One number for each pair of query and key: too much memory for several entries.
  const ArgumentAxis& last = plan.arguments[static_cast<std::size_t>(argument)].declaration.axes[3];
  const bool table = !last.size && last.number > 1;
  return wanted.size(2) > 1 && (table || wanted.size(3) > 1) ? Destination::in_place : Destination::slot;
}

// The gradients of arguments in one call: where each is written, and how large the slots are.
class Slots {
 public:
  Slots(const AttentionPlan::Impl& plan, const Call& call, const CallSizes& sizes)
      : plan_(plan), call_(call), longest_{.sizes = {1, sizes.query_len, sizes.key_len}} {
    for (int n = 0; n < call.gradients.count(); ++n) {
      destinations_[static_cast<std::size_t>(n)] = destination_of(plan, call, n, sizes.batch);
      offsets_[static_cast<std::size_t>(n)] = bytes_;
      in_turn_ = in_turn_ || destination(n) == Destination::in_place;
      if (destination(n) != Destination::slot) continue;
      const TensorView most = part(n, call.gradients[n], longest_);
      bytes_ += aligned(static_cast<std::size_t>(most.count()) * size_of(most.dtype()));
    }
    const auto entries = static_cast<std::size_t>(sizes.batch);
    wave_ = bytes_ == 0
                ? sizes.batch
                : static_cast<std::int64_t>(std::clamp<std::size_t>(slots_budget / bytes_, 1, entries));
  }
  /// The number of entries that run before their slots are added.
  std::int64_t wave() const { return wave_; }
  std::size_t bytes() const { return bytes_ * static_cast<std::size_t>(wave_); }
  /// Entries take turns if they add to one tensor, or if there are slots for too few entries to keep the
  /// threads busy.
  Sharing::Order order(std::int64_t entries, int threads) const {
    return in_turn_ || (wave_ < entries && wave_ < 2 * threads) ? Sharing::Order::in_turn
                                                                : Sharing::Order::any;
  }
  /// Sets `to` for the entry of that slot, one view an argument.
  void views(const Entry& entry, std::byte* slots, std::span<TensorView> to) const {
    for (int n = 0; n < call_.gradients.count(); ++n) {
      TensorView& view = *std::construct_at(&to[static_cast<std::size_t>(n)]);
      if (destination(n) == Destination::slot) {
        view = slot(n, entry, slots);
        clear_rows(view);
      } else if (destination(n) != Destination::nowhere) {
        view = part(n, call_.gradients[n], entry);
      }
    }
  }
  void add_up(const Entry& entry, std::byte* slots, Executor& executor) const {
    for (int n = 0; n < call_.gradients.count(); ++n) {
      if (destination(n) != Destination::slot) continue;
      const TensorView from = slot(n, entry, slots);
      add_rows(from, part(n, call_.gradients[n], entry),
               from.count() < 1 << 15 ? serial_executor() : executor);
    }
  }

 private:
  Destination destination(int n) const { return destinations_[static_cast<std::size_t>(n)]; }
  TensorView part(int n, const TensorView& view, const Entry& entry) const {
    return part_of(plan_.arguments[static_cast<std::size_t>(n)].declaration, view, entry);
  }
  TensorView slot(int n, const Entry& entry, std::byte* slots) const {
    const TensorView& like = call_.gradients[n];
    std::byte* at = slots + static_cast<std::size_t>(entry.number % wave_) * bytes_ +
                    offsets_[static_cast<std::size_t>(n)];
    return part(n, TensorView(at, like.dtype(), part(n, like, longest_).shape()), entry);
  }

  const AttentionPlan::Impl& plan_;
  const Call& call_;
  Entry longest_;
  std::array<Destination, most_arguments> destinations_;  // valid up to the count, uninitialised beyond
  std::array<std::size_t, most_arguments> offsets_;
  std::size_t bytes_ = 0;
  std::int64_t wave_ = 0;
  bool in_turn_ = false;
};

// At least as many bytes as the slots of any call take.
std::size_t most_slots(const AttentionPlan::Impl& plan) {
  const AttentionShape& s = plan.shape;
  const ArgumentSizes sizes = argument_sizes(plan, {1, s.query_len, s.key_len});
  std::size_t one = 0;
  for (int n = 0; n < static_cast<int>(plan.arguments.size()); ++n) {
    const ArgumentDeclaration& declaration = plan.arguments[static_cast<std::size_t>(n)].declaration;
    if (!declaration.learned) continue;
    std::int64_t count = declaration.by_head ? s.num_query_heads : 1;
    if (of_mod(plan, n)) {
      count = s.num_query_heads * std::max(declaration.axes[2].of(sizes), declaration.axes[3].of(sizes));
    } else {
      for (const ArgumentAxis& axis : declaration.axes) count *= axis.of(sizes);
    }
    one += aligned(static_cast<std::size_t>(count) * size_of(plan.compute_dtype()));
  }
  return std::min(one * static_cast<std::size_t>(s.batch), std::max(one, slots_budget));
}

std::size_t entry_bytes(const AttentionPlan::Impl& plan, const CallSizes& most, int threads, LossOf loss_of) {
  const auto rows =
      static_cast<std::size_t>(plan.shape.num_query_heads * most.query_len) * size_of(plan.compute_dtype());
  return 2 * EntryCall::bytes(plan) + 2 * aligned(rows) + 3 * workspace_alignment +
         most_backward_bytes(plan, {1, most.query_len, most.key_len}, threads, loss_of);
}

struct Packed {
  const AttentionPlan::Impl& plan;
  const Call& call;
  const AttentionLoss& loss;
  const AttentionGradients& gradients;
  const Slots& slots;
};

// Copies [1, heads, rows] of an entry into rows that lie side by side.
ConstTensorView gathered(const ConstTensorView& all, const Entry& entry, Carver& carver) {
  if (!all) return {};
  const ConstTensorView rows = query_rows(all, entry);
  const auto size = static_cast<std::int64_t>(size_of(rows.dtype())), width = rows.size(2) * size;
  std::byte* to = carver.take<std::byte>(rows.size(1) * width);
  for (std::int64_t h = 0; h < rows.size(1); ++h)
    std::memcpy(to + h * width, rows.raw() + h * rows.stride(1) * size, static_cast<std::size_t>(width));
  return {to, rows.dtype(), rows.shape()};
}

void run_entry(const Packed& all, const Entry& entry, std::byte* slots, Executor& executor,
               std::span<std::byte> memory) {
  const auto queries = [&entry](const auto& view) { return query_rows(view, entry); };
  const auto keys = [&entry](const auto& view) { return key_rows(view, entry); };
  const AttentionGradients own{queries(all.gradients.query), keys(all.gradients.key),
                               keys(all.gradients.value)};
  if (entry.empty()) {
    for (const TensorView* view : {&own.query, &own.key, &own.value}) clear_rows(*view);
    return;
  }
  Carver carver(memory);
  const EntryCall call(all.plan, all.call, entry, carver);
  const auto count = static_cast<std::size_t>(all.call.gradients.count());
  const std::span<TensorView> d_arguments(carver.take<TensorView>(static_cast<std::int64_t>(count)), count);
  all.slots.views(entry, slots, d_arguments);
  AttentionLoss loss{.output = queries(all.loss.output),
                     .log_sum_exp = gathered(all.loss.log_sum_exp, entry, carver),
                     .d_output = queries(all.loss.d_output),
                     .weight_heads = all.loss.weight_heads,
                     .advantage = gathered(all.loss.advantage, entry, carver)};
  if (all.loss.d_weights) loss.d_weights = queries(all.loss.d_weights).slice(3, 0, entry.sizes.key_len);
  run_backward(all.plan, call.call(d_arguments), loss, own, entry.sizes, executor, carver.rest());
}

}  // namespace

void attend_packed_backward(const AttentionPlan::Impl& plan, const Call& call, const AttentionLoss& loss,
                            const AttentionGradients& gradients, const CallResources& resources) {
  const PackedBatch batch(call.inputs);
  Executor& executor = executor_of(resources, 2.5 * multiply_adds(plan, batch));
  const int threads = executor.thread_count();
  const Slots slots(plan, call, batch.sizes());
  const Sharing sharing(plan, batch, threads, slots.order(batch.count(), threads));
  const EntryMemory parts(sharing, threads, [&](const CallSizes& most, int of) {
    return entry_bytes(plan, most, of, loss_of(loss));
  });
  const auto list = aligned(static_cast<std::size_t>(batch.count()) * sizeof(std::int64_t));
  Carver carver(workspace_of("attend_backward", resources.workspace,
                             list + aligned(slots.bytes()) + 2 * workspace_alignment + parts.bytes()));
  auto* order = carver.take<std::int64_t>(batch.count());
  auto* memory = carver.take<std::byte>(static_cast<std::int64_t>(slots.bytes()));
  const EntryLoop loop{batch, sharing, parts, executor, carver.rest(), order};
  const Packed all{plan, call, loss, gradients, slots};
  for (const NamedArgument<TensorView>& gradient : gradients.arguments.all()) clear_rows(gradient.view);
  for (std::int64_t begin = 0; begin < batch.count(); begin += slots.wave()) {
    const std::int64_t end = std::min(begin + slots.wave(), batch.count());
    loop(begin, end, [&](const Entry& entry, Executor& with, std::span<std::byte> part) {
      run_entry(all, entry, memory, with, part);
    });
    for (std::int64_t n = begin; n < end; ++n) {
      if (const Entry entry = batch[n]; !entry.empty()) slots.add_up(entry, memory, executor);
    }
  }
}

std::size_t packed_backward_bytes(const AttentionPlan::Impl& plan, int threads, LossOf loss_of) {
  const AttentionShape& s = plan.shape;
  const CallSizes most{1, s.query_len, s.key_len};
  const auto lanes = static_cast<std::size_t>(std::min<std::int64_t>(threads, s.batch));
  return aligned(static_cast<std::size_t>(s.batch) * sizeof(std::int64_t)) + aligned(most_slots(plan)) +
         2 * workspace_alignment +
         std::max(aligned(entry_bytes(plan, most, threads, loss_of)),
                  lanes * aligned(entry_bytes(plan, most, 1, loss_of)));
}

}  // namespace fovea
