// Running sums of log f, which are the arguments of the forgetting gate (ForgetGate in attention/mod.h), and
// their derivative.
#pragma once

#include <cstdint>
#include <span>

#include "fovea/core/tensor.h"

namespace fovea {

/// Maps log f, [batch, heads, key_len] (f32 or f64, contiguous), to the running sums F_l = Σ_{m <= l} log
/// f_m, [batch, heads, 1, key_len]. These are the argument "key". Throws InvalidArgument for another rank or
/// dtype.
Tensor forget_sums(ConstTensorView log_forget);

/// The argument "query": the sums at the queries' positions, [batch, heads, query_len, 1], as a view. Throws
/// InvalidArgument if a query's position is not the position of a key.
ConstTensorView forget_queries(const Tensor& sums, std::int64_t query_len, std::int64_t query_offset);
/// The same with one query offset a batch entry. The result is a copy.
Tensor forget_queries(const Tensor& sums, std::int64_t query_len,
                      std::span<const std::int64_t> query_offsets);

/// The derivative by log f, [batch, heads, key_len], from the derivatives by the two arguments.
Tensor forget_gradient(ConstTensorView d_query, ConstTensorView d_key, std::int64_t query_offset);
Tensor forget_gradient(ConstTensorView d_query, ConstTensorView d_key,
                       std::span<const std::int64_t> query_offsets);

}  // namespace fovea
