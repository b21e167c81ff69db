// Checks of keys and values that come as views of a cache (AttentionInputs::cache).
#include <algorithm>
#include <string>

#include "plan/packed.h"

namespace fovea {
namespace {

[[noreturn]] void refuse(const char* function, std::size_t entry, std::string field, std::string expected,
                         std::string got) {
  throw InvalidArgument(function, "cache[" + std::to_string(entry) + "]" + std::move(field),
                        std::move(expected), std::move(got));
}

void check_view_of_cache(const char* function, const AttentionPlan::Impl& plan, const KeyValueView& view,
                         std::size_t entry) {
  const AttentionShape& s = plan.shape;
  const auto same = [&](const char* field, std::int64_t expected, std::int64_t got) {
    if (expected != got)
      refuse(function, entry, field, "the plan's " + std::to_string(expected), std::to_string(got));
  };
  same(".num_kv_heads", s.num_kv_heads, view.num_kv_heads);
  same(".head_dim", s.key_dim, view.head_dim);
  same(".value_dim", s.value_dim, view.value_dim);
  if (view.dtype != plan.dtype)
    refuse(function, entry, ".dtype", "the plan's " + std::string(to_string(plan.dtype)),
           std::string(to_string(view.dtype)));
  if (view.length < 0 || view.length > s.key_len)
    refuse(function, entry, ".length", "at most the plan's key_len of " + std::to_string(s.key_len),
           std::to_string(view.length));
  std::int64_t end = 0;
  for (const KeyValueRun& run : view.runs) {
    if (run.position < end || run.count < 1 || run.count > view.length - run.position)
      refuse(function, entry, ".runs",
             "runs of rows in ascending order, inside the length " + std::to_string(view.length),
             std::to_string(run.count) + " rows from position " + std::to_string(run.position));
    if (!run.key || (s.value_dim > 0 && !run.value))
      refuse(function, entry, ".runs", "runs with keys" + std::string(s.value_dim > 0 ? " and values" : ""),
             "a null pointer at position " + std::to_string(run.position));
    end = run.position + run.count;
  }
}

// Throws where a query of the block sees a position of `gap`, none of which the view has. What a mask says of
// several queries at once may be more than they see, so each is asked again.
void check_gap(const char* function, const AttentionPlan::Impl& plan, const QueryBlock& block,
               std::size_t entry, const KeySpan& gap) {
  for (const KeySpan& span : plan.spec.mask.node().spans(block).some) {
    const std::int64_t first = std::max(span.begin, gap.begin);
    if (first >= std::min(span.end, gap.end)) continue;
    if (block.query_end - block.query_begin > 1) {
      QueryBlock one = block;
      for (one.query_begin = block.query_begin; one.query_begin < block.query_end; ++one.query_begin) {
        one.query_end = one.query_begin + 1;
        check_gap(function, plan, one, entry, gap);
      }
      return;
    }
    refuse(function, entry, "",
           "rows at every position that the mask " + to_string(plan.spec.mask) + " lets a query see",
           "a view without position " + std::to_string(first) + ", which the query at position " +
               std::to_string(block.query_begin) + " sees");
  }
}

}  // namespace

CallSizes check_cache(const char* function, const AttentionPlan::Impl& plan, const AttentionInputs& inputs,
                      const CallSizes& given) {
  const auto count = static_cast<std::int64_t>(inputs.cache.size());
  if (plan.score().key_rows >= 0)
    throw InvalidArgument(function, "cache", "nothing: this score reads no keys",
                          std::to_string(count) + " views");
  if (!inputs.key_starts.empty())
    throw InvalidArgument(function, "key_starts", "none beside cache, whose views have their lengths",
                          std::to_string(inputs.key_starts.size()) + " starts");
  const bool packed = !inputs.query_starts.empty();
  const std::int64_t entries =
      packed ? static_cast<std::int64_t>(inputs.query_starts.size()) - 1 : given.batch;
  if (count != entries)
    throw InvalidArgument(function, "cache",
                          "one view for each of the " + std::to_string(entries) + " entries of the batch",
                          std::to_string(count));
  if (packed) check_query_starts(function, plan, inputs, given);
  for (std::size_t n = 0; n < inputs.cache.size(); ++n)
    check_view_of_cache(function, plan, inputs.cache[n], n);
  return PackedBatch(inputs).sizes();
}

void check_kept(const char* function, const AttentionPlan::Impl& plan, const AttentionInputs& inputs) {
  const PackedBatch batch(inputs);
  for (std::int64_t n = 0; n < batch.count(); ++n) {
    const auto number = static_cast<std::size_t>(n);
    const KeyValueView& view = inputs.cache[number];
    const std::int64_t queries = batch[n].sizes.query_len;
    if (queries == 0) continue;
    const std::int64_t offset = !inputs.query_offsets.empty()
                                    ? inputs.query_offsets[number]
                                    : inputs.query_offset.value_or(view.length - queries);
    const std::int64_t heads = plan.spec.mask.node().by_head() ? plan.shape.num_query_heads : 1;
    const auto check = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t h = 0; begin < end && h < heads; ++h)
        check_gap(function, plan,
                  {.batch = n,
                   .head = h,
                   .query_begin = offset,
                   .query_end = offset + queries,
                   .key_len = view.length,
                   .key_lengths = inputs.key_lengths},
                  number, {begin, end});
    };
    std::int64_t end = 0;
    for (const KeyValueRun& run : view.runs) {
      check(end, run.position);
      end = run.position + run.count;
    }
    check(end, view.length);
  }
}

}  // namespace fovea
