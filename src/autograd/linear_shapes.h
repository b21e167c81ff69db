// Shapes of linear layers and of their rows.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "fovea/autograd/ops.h"

namespace fovea::autograd {

/// The same shape with another last size.
inline Shape with_last(const Shape& shape, std::int64_t size) {
  std::array<std::int64_t, max_rank> sizes{};
  std::copy(shape.sizes().begin(), shape.sizes().end(), sizes.begin());
  sizes[static_cast<std::size_t>(shape.rank() - 1)] = size;
  return Shape(std::span(sizes).first(static_cast<std::size_t>(shape.rank())));
}

/// Throws InvalidArgument where a layer does not fit rows of this shape.
inline void check_linear(const char* function, const Shape& x, const LinearWeights& layer) {
  const auto& [weight, bias] = layer;
  if (weight.shape().rank() != 2 || x.rank() < 1 || x[x.rank() - 1] != weight.size(1)) {
    throw InvalidArgument(function, "weight", "[out, in] with in the last size of x " + to_string(x),
                          to_string(weight.shape()));
  }
  if (!bias.empty() && bias.value().count() != weight.size(0)) {
    throw InvalidArgument(function, "bias", "[" + std::to_string(weight.size(0)) + "]",
                          to_string(bias.shape()));
  }
}

}  // namespace fovea::autograd
