// Products of the maps of states (fovea/plan/recurrence_segment.h), by the best instructions of this CPU.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fovea::kernels {

/// Bytes that a product with that many rows and columns needs, aligned to 64.
std::size_t map_states_bytes(std::int64_t dim, std::int64_t columns);
/// to = m·x + add, with m [dim, dim] and the others [dim, columns], all contiguous. `add` is null for zeros.
void map_states(const float* m, const float* x, const float* add, std::int64_t dim, std::int64_t columns,
                float* to, std::byte* memory);
void map_states(const double* m, const double* x, const double* add, std::int64_t dim, std::int64_t columns,
                double* to, std::byte* memory);

}  // namespace fovea::kernels
