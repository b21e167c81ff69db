// Saved states in a caller's memory: a stamp of 64 bytes, and behind it what the kernel saves.
#pragma once

#include <cstdint>
#include <string>

#include "plan/recurrence/prepare.h"

namespace fovea {

/// The elements of the stamp, so that what is behind it lies at a multiple of 64 bytes too.
template <class T>
inline constexpr std::int64_t stamp_size = 64 / static_cast<std::int64_t>(sizeof(T));

/// Of RecurrenceOutputs::saved_states in a call of these sizes; 0 if the kernel saves none.
std::int64_t saved_states_size(const RecurrencePlan::Impl& plan, const RecurrenceSizes& sizes);

/// Of the kernel and the text of the spec. A plan keeps it, because making the text for each call takes
/// memory.
std::uint64_t hash_of(const RecurrencePlan::Impl& plan);
/// A number below 2^24, which a float holds, of the kernel, the spec and the sizes.
std::int64_t stamp_of(const RecurrencePlan::Impl& plan, const RecurrenceSizes& sizes);

/// Refuses a view that is not saved states of this plan and these sizes by its shape, dtype or place.
void check_saved_states(const char* function, const RecurrencePlan::Impl& plan, const ConstTensorView& saved,
                        const RecurrenceSizes& sizes);
/// Refuses saved states of another plan or other sizes.
void check_stamp(const char* function, const RecurrencePlan::Impl& plan, const ConstTensorView& saved,
                 const RecurrenceSizes& sizes);

}  // namespace fovea
