// How one vector is made of the hidden states of a text.
#pragma once

#include <cstdint>

#include "fovea/core/tensor.h"

namespace fovea::models {

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
};

}  // namespace fovea::models
