// Gathers rows of tensors: beam search does it to every tensor of a decoder's state.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/pieces.h"
#include "fovea/core/tensor.h"

namespace fovea::models {

/// Entries index[i] of the first axis.
inline Tensor gather_entries(const Tensor& tensor, std::span<const std::int64_t> index) {
  if (!tensor) return tensor;
  std::int64_t sizes[max_rank];
  std::copy(tensor.shape().sizes().begin(), tensor.shape().sizes().end(), sizes);
  const std::int64_t block = tensor.size(0) > 0 ? tensor.count() / tensor.size(0) : 0;
  sizes[0] = static_cast<std::int64_t>(index.size());
  Tensor result(tensor.dtype(),
                Shape(std::span<const std::int64_t>(sizes, static_cast<std::size_t>(tensor.rank()))));
  for_pieces_of_rows(std::ssize(index), block, [&](std::int64_t i, std::int64_t begin, std::int64_t end) {
    std::copy(tensor.data<float>() + index[static_cast<std::size_t>(i)] * block + begin,
              tensor.data<float>() + index[static_cast<std::size_t>(i)] * block + end,
              result.data<float>() + i * block + begin);
  });
  return result;
}

inline void check_index(std::span<const std::int64_t> index, std::int64_t rows) {
  for (const std::int64_t i : index) {
    if (i < 0 || i >= rows) {
      throw InvalidArgument("DecoderState::reorder", "index", "rows in [0, " + std::to_string(rows) + ")",
                            std::to_string(i));
    }
  }
}

/// True if `index` is 0, 1, ..., rows - 1: nothing has to move.
inline bool is_identity(std::span<const std::int64_t> index, std::int64_t rows) {
  if (static_cast<std::int64_t>(index.size()) != rows) return false;
  for (std::int64_t i = 0; i < rows; ++i) {
    if (index[static_cast<std::size_t>(i)] != i) return false;
  }
  return true;
}

}  // namespace fovea::models
