// Where the elements of a tensor come from.
#pragma once

#include <cstddef>
#include <memory>

#include "fovea/core/kept_vector.h"

namespace fovea {

/// Memory in 64-byte alignment, not initialised. Throws std::bad_alloc.
std::shared_ptr<std::byte[]> allocate_elements(std::size_t bytes);

/// The same from operator new, whatever the size, and without a wish for huge pages: of memory that may stay
/// almost empty.
std::shared_ptr<std::byte[]> allocate_on_small_pages(std::size_t bytes);

/// Large tensors that are made next, up to so many bytes in all, lie in one region. Regions end on whole huge
/// pages, and each has an end that no further tensor fits. Only what they touch is memory. Does nothing if
/// the memory cannot be had.
void reserve_elements(std::size_t bytes) noexcept;

/// Tensors of fewer bytes come from operator new, which itself keeps such memory for the next caller.
inline constexpr std::size_t large_tensor = std::size_t{1} << 16;

}  // namespace fovea
