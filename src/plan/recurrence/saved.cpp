#include "plan/recurrence/saved.h"

#include <cstdint>

#include "core/fnv1a.h"

namespace fovea {

std::int64_t saved_states_size(const RecurrencePlan::Impl& plan, const RecurrenceSizes& sizes) {
  return with_wide_type(plan.dtype, [&](auto t) -> std::int64_t {
    using T = decltype(t);
    const auto count = plan.candidate->code<T>().saved_count;
    if (!count) return 0;
    Carver counting;
    make_sequences({}, sizes, counting);
    return stamp_size<T> +
           count(prepare_recurrence<T>(plan, {}, sizes, all_rows(sizes), {}, counting, nullptr));
  });
}

std::uint64_t hash_of(const RecurrencePlan::Impl& plan) {
  Fnv1a hash;
  hash.mix(plan.candidate->name + to_string(plan.spec));
  return hash.value();
}

std::int64_t stamp_of(const RecurrencePlan::Impl& plan, const RecurrenceSizes& sizes) {
  const RecurrenceShape& s = plan.shape;
  Fnv1a mixed;
  mixed.mix(plan.hash);
  for (const std::int64_t size : {s.num_query_heads, s.num_key_heads, s.num_heads, s.key_dim, s.value_dim,
                                  sizes.entries, sizes.len, sizes.sequences})
    mixed.mix(static_cast<std::uint64_t>(size));
  const std::uint64_t hash = mixed.value();
  return static_cast<std::int64_t>((hash ^ hash >> 24 ^ hash >> 48) & 0xffffff);
}

void check_saved_states(const char* function, const RecurrencePlan::Impl& plan, const ConstTensorView& saved,
                        const RecurrenceSizes& sizes) {
  const std::int64_t size = saved_states_size(plan, sizes);
  if (size == 0)
    throw InvalidArgument(function, "saved_states",
                          "nothing, because " + plan.candidate->name + " saves none", described(saved));
  check_contiguous(function, "saved_states", saved, plan.compute_dtype(), {size});
  if (reinterpret_cast<std::uintptr_t>(saved.raw()) % 64 != 0)
    throw InvalidArgument(function, "saved_states", "memory at a multiple of 64 bytes", "another address");
}

void check_stamp(const char* function, const RecurrencePlan::Impl& plan, const ConstTensorView& saved,
                 const RecurrenceSizes& sizes) {
  with_wide_type(plan.dtype, [&](auto t) {
    using T = decltype(t);
    if (*saved.template data<T>() != static_cast<T>(stamp_of(plan, sizes)))
      throw InvalidArgument(function, "saved_states", "what recur saved for these inputs",
                            "states of another plan or call");
  });
}

}  // namespace fovea
