// How one vector is made of the hidden states of a text.
#pragma once

#include <cstdint>
#include <span>

#include "fovea/core/tensor.h"

namespace fovea::models {

/// The rows of one text: `count` of them from `begin` on.
struct RowRange {
  std::int64_t begin = 0, count = 0;
};

/// How the rows of a text become one.
struct SentencePooling {
  enum class Kind : std::uint8_t {
    first,          ///< that of the first id, such as [CLS]
    last,           ///< that of the last id
    mean,           ///< the mean of all rows
    mean_sqrt_len,  ///< their sum, divided by the square root of their number
    max             ///< the largest element of each column
  };
  Kind kind = Kind::mean;
  bool normalize = false;  ///< to length 1

  /// The vector [dim] of f32 rows [rows, dim]. Throws InvalidArgument for no rows.
  Tensor apply(const Tensor& rows) const;
  /// The vectors [texts, dim] of several texts, whose f32 rows are in one tensor [..., dim], on the default
  /// executor. Throws InvalidArgument for a text without rows, and for rows outside the tensor.
  Tensor apply(const Tensor& rows, std::span<const RowRange> texts) const;
};

}  // namespace fovea::models
