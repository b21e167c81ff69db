// The rows of a layer's input as products with packed matrices read them.
#pragma once

#include <string>

#include "autograd/packed_products.h"
#include "autograd/record.h"
#include "fovea/autograd/var.h"
#include "fovea/core/error.h"
#include "fovea/core/executor.h"

namespace fovea::autograd {

/// The rows of x for products with `weight`. Keeps the memory of x, not x. Throws InvalidArgument, by
/// `function`, for rows of bf16 beside weights of another type.
inline ProductRows product_rows(const char* function, const Var& x, const PackedMatrix& weight) {
  expect_elements(function, "x", x.value());
  const std::int64_t rows = weight.in() > 0 ? x.value().count() / weight.in() : 0;
  if (x.value().dtype() != DType::bf16)
    return {{.x = x.value().data<float>(), .weight = &weight, .rows = rows}, default_executor()};
  if (weight.type() != WeightType::bf16)
    throw InvalidArgument(
        function, "x", "f32 rows beside weights of " + std::string(to_string(weight.type())), "rows of bf16");
  return {x.value().data<bfloat16>(), rows, weight.in(), default_executor()};
}

}  // namespace fovea::autograd
