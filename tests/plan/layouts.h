// Memory layouts of the operands of a case.
#pragma once

#include <cstring>
#include <stdexcept>
#include <vector>

#include "fovea/core/tensor.h"

namespace fovea::testing {

enum class Layout {
  contiguous,    ///< [B, H, L, D]
  heads_inside,  ///< [B, L, H, D], as a projection leaves them
  packed,        ///< tensors of equal length in one buffer, [B, L, 3, H, D] if heads and sizes are equal too
  reversed       ///< entries, heads and rows from the last to the first, and a gap behind each row
};

/// Copies of tensors [B, H, L, D] in another layout.
class Placement {
 public:
  Placement(Layout layout, std::vector<Tensor> tensors) : tensors_(std::move(tensors)) {
    // A query whose length differs from its keys' is stored separately.
    const bool together = tensors_.front().size(2) == tensors_.back().size(2);
    const std::size_t count = tensors_.size(), alone = together ? 0 : 1;
    switch (layout) {
      case Layout::contiguous:
        for (const Tensor& tensor : tensors_) views_.push_back(tensor.view());
        return;
      case Layout::heads_inside:
        for (std::size_t n = 0; n < count; ++n) interleave(n, n + 1);
        break;
      case Layout::packed:
        interleave(0, alone);
        interleave(alone, count);
        break;
      case Layout::reversed:
        for (const Tensor& tensor : tensors_) reverse(tensor);
        break;
    }
    for (std::size_t n = 0; n < count; ++n) copy(n, Direction::in);
  }

  const TensorView& view(std::size_t n) const { return views_[n]; }

  /// Copies the views' elements to the given tensors. Throws if something was written between the rows.
  void read_back() const {
    for (std::size_t n = 0; n < tensors_.size() && !memory_.empty(); ++n) copy(n, Direction::out);
    for (const Tensor& memory : gapped_) {
      const auto width = static_cast<std::size_t>(memory.size(3)) * size_of(memory.dtype()),
                 used = width - gap * size_of(memory.dtype());
      for (std::size_t at = 0; at < memory.bytes(); ++at) {
        if (at % width >= used && memory.raw()[at] != nan_byte)
          throw std::logic_error("a call wrote between the rows of a view");
      }
    }
  }

 private:
  enum class Direction { in, out };
  static constexpr std::int64_t gap = 3;
  static constexpr std::byte nan_byte{0xff};  // a NaN of every dtype consists of this byte

  Tensor new_memory(DType dtype, const Shape& shape) {
    memory_.emplace_back(dtype, shape);
    std::memset(memory_.back().raw(), 0xff, memory_.back().bytes());
    return memory_.back();
  }

  // Tensors [begin, end) side by side in the rows of one buffer.
  void interleave(std::size_t begin, std::size_t end) {
    if (begin == end) return;
    const Tensor& first = tensors_[begin];
    std::int64_t width = 0, column = 0;
    for (std::size_t n = begin; n < end; ++n) width += tensors_[n].size(1) * tensors_[n].size(3);
    const Tensor memory = new_memory(first.dtype(), {first.size(0), first.size(2), width});
    for (std::size_t n = begin; n < end; ++n) {
      const Tensor& t = tensors_[n];
      const std::int64_t strides[] = {t.size(2) * width, t.size(3), width, 1};
      views_.emplace_back(memory.raw() + column * static_cast<std::int64_t>(size_of(t.dtype())), t.dtype(),
                          t.shape(), strides);
      column += t.size(1) * t.size(3);
    }
  }

  void reverse(const Tensor& t) {
    const std::int64_t width = t.size(3) + gap, rows = t.size(0) * t.size(1) * t.size(2);
    const Tensor memory = new_memory(t.dtype(), {t.size(0), t.size(1), t.size(2), width});
    gapped_.push_back(memory);
    const std::int64_t strides[] = {-t.size(1) * t.size(2) * width, -t.size(2) * width, -width, 1};
    const std::int64_t last = std::max<std::int64_t>(rows - 1, 0) * width;
    views_.emplace_back(memory.raw() + last * static_cast<std::int64_t>(size_of(t.dtype())), t.dtype(),
                        t.shape(), strides);
  }

  void copy(std::size_t n, Direction direction) const {
    const TensorView& view = views_[n];
    const auto size = static_cast<std::int64_t>(size_of(view.dtype())), row = view.size(3) * size;
    std::byte* flat = tensors_[n].raw();
    for (std::int64_t b = 0; b < view.size(0); ++b) {
      for (std::int64_t h = 0; h < view.size(1); ++h) {
        for (std::int64_t r = 0; r < view.size(2); ++r, flat += row) {
          std::byte* at = view.raw() + (b * view.stride(0) + h * view.stride(1) + r * view.stride(2)) * size;
          std::memcpy(direction == Direction::in ? at : flat, direction == Direction::in ? flat : at,
                      static_cast<std::size_t>(row));
        }
      }
    }
  }

  std::vector<Tensor> tensors_, memory_, gapped_;
  std::vector<TensorView> views_;
};

}  // namespace fovea::testing
