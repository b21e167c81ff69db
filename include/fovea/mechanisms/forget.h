// The arguments of the forgetting gate (attention/mod.h, ForgetGate): running sums of log f, and their
// derivative.
#pragma once

#include <cstdint>
#include <span>

#include "fovea/core/tensor.h"

namespace fovea {

/// [batch, heads, key_len] of log f (f32 or f64, contiguous) → running sums F_l = Σ_{m <= l} log f_m, [batch,
/// heads, 1, key_len]: the argument "key". Throws InvalidArgument for another rank or dtype.
Tensor forget_sums(ConstTensorView log_forget);

/// The argument "query" out of the sums: those at the queries' positions, [batch, heads, query_len, 1], a
/// view. Throws InvalidArgument where a position is none of a key.
ConstTensorView forget_queries(const Tensor& sums, std::int64_t query_len, std::int64_t query_offset);
/// The same where each batch entry has a query offset of its own: a copy.
Tensor forget_queries(const Tensor& sums, std::int64_t query_len,
                      std::span<const std::int64_t> query_offsets);

/// The derivative by log f, [batch, heads, key_len], from those by the two arguments.
Tensor forget_gradient(ConstTensorView d_query, ConstTensorView d_key, std::int64_t query_offset);
Tensor forget_gradient(ConstTensorView d_query, ConstTensorView d_key,
                       std::span<const std::int64_t> query_offsets);

}  // namespace fovea
