#include "plan/together.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>
#include <vector>

#include "plan/rows.h"

namespace fovea {
namespace {

using kernels::SharedChunk;

// Lists of one call. They keep the memory of the largest call so far, so that a loop of steps allocates
// nothing.
struct Lists {
  std::vector<std::int64_t> order;    // entries; those that share a chunk stand side by side
  std::vector<SharedChunk> chunks;    // `first` counts from the beginning of `order`
  std::vector<std::uint8_t> has_run;  // by entry
  std::vector<std::int64_t> groups;   // the sizes of groups of entries: a stack, whose top belongs to the
                                      // innermost call of Division
};
Lists& lists() {
  thread_local Lists of_this_thread;
  return of_this_thread;
}

// The run that holds position `begin`, or the next one.
std::size_t run_at(const KeyValueView& view, std::int64_t begin) {
  const auto found =
      std::partition_point(view.runs.begin(), view.runs.end(),
                           [begin](const KeyValueRun& run) { return run.position + run.count <= begin; });
  return static_cast<std::size_t>(found - view.runs.begin());
}

// The end of the keys from `begin` on that are the same memory in both views, at most `limit`.
std::int64_t common_end(const KeyValueView& a, const KeyValueView& b, std::int64_t begin,
                        std::int64_t limit) {
  limit = std::min({limit, a.length, b.length});
  const auto element = static_cast<std::int64_t>(size_of(a.dtype));
  const auto place = [&](const KeyValueRun& run, std::int64_t at, bool value) {
    const std::int64_t row = value ? a.value_row_stride : a.key_row_stride;
    return reinterpret_cast<std::uintptr_t>(value ? run.value : run.key) +
           static_cast<std::uintptr_t>((at - run.position) * row * element);
  };
  std::int64_t end = begin;
  for (std::size_t i = run_at(a, begin), j = run_at(b, begin); end < limit;) {
    if (i == a.runs.size() || j == b.runs.size()) return end;
    const KeyValueRun &x = a.runs[i], &y = b.runs[j];
    const std::int64_t at = std::max(x.position, end);
    if (at != std::max(y.position, end) || x.key_head_stride != y.key_head_stride ||
        x.value_head_stride != y.value_head_stride || place(x, at, false) != place(y, at, false) ||
        (a.value_dim > 0 && place(x, at, true) != place(y, at, true)))
      return end;
    end = std::min(x.position + x.count, y.position + y.count);
    i += x.position + x.count == end;
    j += y.position + y.count == end;
  }
  return limit;
}

// Finds which entries share which chunks. The entries of a chunk are a part of those of the chunk before it.
class Division {
 public:
  Division(std::span<const KeyValueView> views, std::int64_t chunk_keys, std::int64_t tile_keys, Lists& to)
      : views_(views), keys_(chunk_keys), tile_keys_(tile_keys), to_(to) {}

  // The entries [first, first + count) of the order share everything before chunk `chunk`.
  void divide(std::int64_t first, std::int64_t count, std::int64_t chunk) {
    for (; count > 1; ++chunk) {
      const std::int64_t begin = chunk * keys_, end = begin + keys_;
      const std::int64_t ended =
          move_to_front(first, count, [&](std::int64_t entry) { return view(entry).length <= begin; });
      first += ended;
      count -= ended;
      if (count <= 1) break;
      const std::size_t base = to_.groups.size();
      const std::int64_t same = group(first, count, [&](std::int64_t a, std::int64_t b) {
        const std::int64_t last = std::min(view(a).length, end);
        return std::min(view(b).length, end) == last && common_end(view(a), view(b), begin, end) == last;
      });
      // Most often all entries share the chunk, and then the loop goes on with them.
      if (same == count && to_.groups.size() == base + 1) {
        to_.groups.resize(base);
        add(chunk, first, count, std::min(view_at(first).length, end));
        continue;
      }
      std::int64_t at = first;
      for (std::size_t n = base, groups = to_.groups.size(); n < groups; ++n) {
        const std::int64_t size = to_.groups[n];
        add(chunk, at, size, std::min(view_at(at).length, end));
        divide(at, size, chunk + 1);
        at += size;
      }
      to_.groups.resize(base);
      divide_rest(at, first + count - at, chunk);
      return;
    }
    if (count == 1) alone(first, chunk);
  }

 private:
  const KeyValueView& view(std::int64_t entry) const { return views_[static_cast<std::size_t>(entry)]; }
  std::int64_t& at(std::int64_t place) { return to_.order[static_cast<std::size_t>(place)]; }
  const KeyValueView& view_at(std::int64_t place) { return view(at(place)); }

  void add(std::int64_t chunk, std::int64_t first, std::int64_t count, std::int64_t end) {
    to_.chunks.push_back({chunk, first, count, end});
  }
  // The remaining chunks of one entry.
  void alone(std::int64_t place, std::int64_t chunk) {
    for (; chunk * keys_ < view_at(place).length; ++chunk) add(chunk, place, 1, chunk * keys_);
  }

  template <class Is>
  std::int64_t move_to_front(std::int64_t first, std::int64_t count, Is&& is) {
    std::int64_t found = 0;
    for (std::int64_t n = 0; n < count; ++n) {
      if (is(at(first + n))) std::swap(at(first + n), at(first + found++));
    }
    return found;
  }
  // Moves entries that are alike to the front, group by group of at least two. Pushes the groups' sizes and
  // returns the number of grouped entries.
  template <class Alike>
  std::int64_t group(std::int64_t first, std::int64_t count, Alike&& alike) {
    std::int64_t grouped = 0, end = count;
    while (grouped < end) {
      const std::int64_t one = at(first + grouped);
      std::int64_t next = grouped + 1;
      for (std::int64_t n = next; n < end; ++n) {
        if (alike(one, at(first + n))) std::swap(at(first + n), at(first + next++));
      }
      if (next - grouped > 1) {
        to_.groups.push_back(next - grouped);
        grouped = next;
      } else {
        std::swap(at(first + grouped), at(first + --end));  // alone: to the back
      }
    }
    return grouped;
  }

  // No two of these entries share the whole chunk. Some may share its first tiles, and none shares anything
  // after the chunk.
  void divide_rest(std::int64_t first, std::int64_t count, std::int64_t chunk) {
    const std::int64_t begin = chunk * keys_, end = begin + keys_;
    const std::size_t base = to_.groups.size();
    const std::int64_t shared = group(first, count, [&](std::int64_t a, std::int64_t b) {
      return common_end(view(a), view(b), begin, end) >= begin + tile_keys_;
    });
    std::int64_t place = first;
    for (std::size_t group = base; group < to_.groups.size(); ++group) {
      const std::int64_t size = to_.groups[group];
      std::int64_t until = end;
      for (std::int64_t n = 1; n < size; ++n)
        until = std::min(until, common_end(view_at(place), view_at(place + n), begin, end));
      add(chunk, place, size, begin + (until - begin) / tile_keys_ * tile_keys_);
      for (std::int64_t n = 0; n < size; ++n) alone(place + n, chunk + 1);
      place += size;
    }
    to_.groups.resize(base);
    for (std::int64_t n = shared; n < count; ++n) alone(first + n, chunk);
  }

  std::span<const KeyValueView> views_;
  std::int64_t keys_, tile_keys_;
  Lists& to_;
};

}  // namespace

bool runs_together(const AttentionPlan::Impl& plan, const Step& step) {
  const kernels::Candidate& candidate = *step.candidate;
  if (!candidate.reads_cache || plan.key_mapped()) return false;
  if (plan.compute_dtype() == DType::f64) return candidate.f64.forward_together != nullptr;
  return candidate.f32.forward_together != nullptr &&
         (step.stored == kernels::In16Bits::keys_and_values || plan.dtype == DType::f32);
}

namespace {

template <class T>
std::size_t bytes_as(const AttentionPlan::Impl& plan, const Step& step, const CallSizes& largest,
                     std::int64_t count, int threads) {
  constexpr std::size_t pieces = 8;  // at most, of an entry and of the call, each aligned
  Carver counting;
  const auto prepared = prepare<T>(plan, {.inputs = {}}, largest, counting, nullptr, step.stored, nullptr,
                                   CacheReading::in_place);
  const std::int64_t rows = plan.shape.num_query_heads * largest.query_len;
  counting.take<T>(rows * plan.shape.value_dim);
  counting.take<T>(rows);
  const std::size_t own = counting.used() + EntryCall::bytes(plan) + sizeof(kernels::Problem<T>) +
                          sizeof(kernels::ForwardOutputs<T>) + sizeof(void*) + pieces * workspace_alignment;
  return aligned(static_cast<std::size_t>(count) * own) + pieces * workspace_alignment +
         step.candidate->code<T>().together_bytes(prepared.problem, count, threads);
}

}  // namespace

JointEntries::JointEntries(const AttentionPlan::Impl& plan, const Call& call, const AttentionOutputs& outputs,
                           const PackedBatch& batch)
    : plan_(plan), call_(call), outputs_(outputs), batch_(batch) {
  const std::span<const KeyValueView> views = call.inputs.cache;
  if (views.size() < 2 || !outputs.output || outputs.weights) return;
  Lists& own = lists();
  own.order.clear();
  own.chunks.clear();
  own.groups.clear();  // an exception may have left some
  own.has_run.assign(views.size(), 0);
  has_run_ = own.has_run;
  const kernels::Duty duty = kernels::Duty::forward_cached;
  for (std::int64_t n = 0; n < batch.count(); ++n) {
    const Entry entry = batch[n];
    const KeyValueView& view = views[static_cast<std::size_t>(n)];
    if (entry.empty() || view.runs.empty()) continue;
    const Step& step = plan.choice.rule(duty).of(entry.sizes.query_len, entry.sizes.key_len);
    if (!runs_together(plan, step) || (step_ && step_ != &step)) continue;
    step_ = &step;
    own.order.push_back(n);
  }
  const auto first_key = [&](std::int64_t n) { return views[static_cast<std::size_t>(n)].runs.front().key; };
  std::sort(own.order.begin(), own.order.end(), [&](std::int64_t a, std::int64_t b) {
    return first_key(a) != first_key(b) ? std::less<>()(first_key(a), first_key(b)) : a < b;
  });
  // Of entries whose first key has the same address, keep those that share a whole tile with the first of
  // them, and those with few keys.
  std::size_t kept = 0;
  for (std::size_t begin = 0, end = 0; begin < own.order.size(); begin = end) {
    const KeyValueView& one = views[static_cast<std::size_t>(own.order[begin])];
    const std::size_t from = kept;
    for (end = begin; end < own.order.size() && first_key(own.order[end]) == first_key(own.order[begin]);
         ++end) {
      const KeyValueView& other = views[static_cast<std::size_t>(own.order[end])];
      if (one.key_row_stride != other.key_row_stride || one.value_row_stride != other.value_row_stride)
        continue;
      if (end == begin || is_short(own.order[end]) ||
          common_end(one, other, 0, step_->candidate->tile_keys) >= step_->candidate->tile_keys)
        own.order[kept++] = own.order[end];
    }
    if (kept - from == 1 && !is_short(own.order[from])) kept = from;
  }
  own.order.resize(kept);
  count_ = static_cast<std::int64_t>(kept);
  for (const std::int64_t n : own.order) {
    const CallSizes sizes = batch[n].sizes;
    largest_ = {1, std::max(largest_.query_len, sizes.query_len), std::max(largest_.key_len, sizes.key_len),
                true};
  }
}

bool JointEntries::is_short(std::int64_t entry) const {
  return batch_[entry].sizes.key_len <= step_->candidate->tile_keys;
}

// Whether the problem of one entry becomes that of another by other rows and sizes (move_rows): no argument
// has a part for each entry, and no row is mapped or widened.
bool JointEntries::differ_by_rows_alone() const {
  if (plan_.dtype != plan_.compute_dtype() || plan_.query_mapped() || counts_keys(plan_.spec.normalizer))
    return false;
  for (int n = 0; n < call_.arguments.count(); ++n) {
    if (is_given(call_.arguments[n])) return false;
  }
  return true;
}

std::size_t JointEntries::bytes_of(std::int64_t count, int threads) const {
  return with_wide_type(
      plan_.dtype, [&](auto t) { return bytes_as<decltype(t)>(plan_, *step_, largest_, count, threads); });
}

std::size_t JointEntries::bytes(int threads, std::size_t most) const {
  for (std::int64_t count = count_; count > 1; count = (count + 1) / 2) {
    if (const std::size_t bytes = bytes_of(count, threads); bytes <= most) return bytes;
    if (count == 2) break;
  }
  return 0;
}

void JointEntries::run(Executor& executor, std::span<std::byte> memory) {
  // As many at a time as the memory holds. Those of one prefix stand side by side.
  std::int64_t most = count_;
  while (most > 1 && bytes_of(most, executor.thread_count()) > memory.size())
    most = most == 2 ? 0 : (most + 1) / 2;
  for (std::int64_t first = 0; most > 1 && first < count_; first += most)
    run_group(first, std::min(most, count_ - first), executor, memory);
}

void JointEntries::run_group(std::int64_t first, std::int64_t count, Executor& executor,
                             std::span<std::byte> memory) {
  Lists& own = lists();
  own.chunks.clear();
  const auto front = [&](std::int64_t place) {
    const auto entry = static_cast<std::size_t>(own.order[static_cast<std::size_t>(place)]);
    return call_.inputs.cache[entry].runs.front().key;
  };
  for (std::int64_t begin = first, end = first; begin < first + count; begin = end) {
    while (end < first + count && front(end) == front(begin)) ++end;
    const kernels::Candidate& candidate = *step_->candidate;
    Division(call_.inputs.cache, candidate.cached_chunk_keys(plan_.shape.num_kv_heads), candidate.tile_keys,
             own)
        .divide(begin, end - begin, 0);
  }
  for (SharedChunk& chunk : own.chunks) chunk.first -= first;
  // Chunks with the most entries come first, because they take longest. A stable sort would allocate.
  std::sort(own.chunks.begin(), own.chunks.end(), [](const SharedChunk& a, const SharedChunk& b) {
    return std::tuple(-a.count, a.chunk, a.first) < std::tuple(-b.count, b.chunk, b.first);
  });
  with_wide_type(plan_.dtype, [&](auto t) { run_as<decltype(t)>(first, count, executor, memory); });
}

template <class T>
void JointEntries::run_as(std::int64_t first, std::int64_t count, Executor& executor,
                          std::span<std::byte> memory) {
  static_assert(std::is_trivially_destructible_v<kernels::Problem<T>>);
  Lists& own = lists();
  Carver carver(memory);
  auto* problems = carver.take<kernels::Problem<T>>(count);
  auto* addresses = carver.take<const kernels::Problem<T>*>(count);
  auto* results = carver.take<kernels::ForwardOutputs<T>>(count);
  const bool narrowed = plan_.dtype != plan_.compute_dtype(), by_rows = differ_by_rows_alone();
  const std::span<const std::int64_t> order = own.order;
  const auto entry_at = [&](std::int64_t n) { return batch_[order[static_cast<std::size_t>(first + n)]]; };
  const auto output_of = [&](const Entry& entry) { return query_rows(outputs_.output, entry); };
  for (std::int64_t n = 0; n < count; ++n) {
    const Entry entry = entry_at(n);
    if (n > 0 && by_rows) {
      std::construct_at(problems + n, problems[0]);
      move_rows(call_.inputs, entry, problems[n]);
    } else {
      const EntryCall call(plan_, call_, entry, carver);
      std::construct_at(problems + n, prepare<T>(plan_, call.call(), entry.sizes, carver, &serial_executor(),
                                                 step_->stored, nullptr, CacheReading::in_place)
                                          .problem);
    }
    addresses[n] = problems + n;
    std::construct_at(results + n);
    if (narrowed) {
      const std::int64_t heads = plan_.shape.num_query_heads, rows = entry.sizes.query_len,
                         dim = plan_.shape.value_dim;
      results[n].output = contiguous_operand<T*>(carver.take<T>(heads * rows * dim), heads, rows, dim);
    } else {
      results[n].output = operand_of<T>(outputs_.output);
      results[n].output.data = results[n].output.row(entry.batch, 0, entry.query_begin);
    }
    if (outputs_.log_sum_exp)
      results[n].log_sum_exp = carver.take<T>(plan_.shape.num_query_heads * entry.sizes.query_len);
    has_run_[static_cast<std::size_t>(entry.number)] = 1;
  }
  const kernels::Together<T> together{addresses, results, count, own.chunks.data(), std::ssize(own.chunks)};
  step_->candidate->template code<T>().forward_together(together, executor, carver.rest().data());
  if (!narrowed && !outputs_.log_sum_exp) return;
  executor.parallel_for(count, [&](std::int64_t n, int) {
    const Entry entry = entry_at(n);
    if (narrowed)
      copy_rows(view_of(results[n].output, output_of(entry).shape()), output_of(entry), serial_executor());
    const TensorView sums = query_rows(outputs_.log_sum_exp, entry);
    for (std::int64_t h = 0; sums && h < sums.size(1); ++h)
      std::copy_n(results[n].log_sum_exp + h * sums.size(2), sums.size(2),
                  sums.data<T>() + h * sums.stride(1));
  });
}

std::size_t together_bytes(const AttentionPlan::Impl& plan, int threads) {
  const AttentionShape& s = plan.shape;
  std::size_t most = 0;
  if (s.batch < 2 || s.value_dim == 0) return 0;
  for (const Step& step : plan.choice.rule(kernels::Duty::forward_cached).steps()) {
    if (runs_together(plan, step)) {
      const CallSizes largest{1, std::min(step.last, s.query_len), s.key_len, true};
      for (std::int64_t count = s.batch; count > 1; count = count == 2 ? 0 : (count + 1) / 2) {
        const std::size_t bytes = with_wide_type(
            plan.dtype, [&](auto t) { return bytes_as<decltype(t)>(plan, step, largest, count, threads); });
        if (bytes > most_together_bytes) continue;
        most = std::max(most, bytes);
        break;
      }
    }
    if (step.last >= s.query_len && step.most_keys == 0) break;
  }
  return most;
}

}  // namespace fovea
