// Products with packed matrices in each way in which their blocks can be computed.
#pragma once

#include <cstdint>
#include <utility>

#include "autograd/packed_products.h"
#include "fovea/core/executor.h"
#include "fovea/core/tensor.h"

namespace fovea::autograd {

/// x weight^T + bias. `prepare` makes the rows of the product that it is given, and `multiply` a block of it.
template <class Prepare, class Multiply>
Tensor product_by_blocks(const Tensor& x, const PackedMatrix& weight, const Tensor& bias, Prepare&& prepare,
                         Multiply&& multiply) {
  Tensor y(DType::f32, {x.size(0), weight.out()});
  const PackedProducts p{.x = x.data<float>(),
                         .weight = &weight,
                         .bias = bias.data<float>(),
                         .y = y.data<float>(),
                         .rows = x.size(0),
                         .x_stride = x.size(1)};
  const auto rows = prepare(p);
  for_blocks({&p, 1}, default_executor(),
             [&](std::size_t, const ProductBlockAt& at) { multiply(p, rows, at); });
  return y;
}

/// Inner and outer sizes around those of pairs, words of four columns, vectors, panels, tiles, blocks and
/// threads.
inline constexpr std::pair<std::int64_t, std::int64_t> product_sizes[] = {
    {1, 1}, {3, 5}, {4, 31}, {7, 33}, {16, 32}, {19, 64}, {130, 70}, {515, 200}, {64, 300}};

}  // namespace fovea::autograd
