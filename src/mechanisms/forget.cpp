#include "fovea/mechanisms/forget.h"

#include <algorithm>
#include <string>
#include <vector>

#include "fovea/core/error.h"
#include "plan/rows.h"

namespace fovea {
namespace {

void check(const char* function, const char* argument, const ConstTensorView& view, int rank) {
  if (view.rank() != rank || (view.dtype() != DType::f32 && view.dtype() != DType::f64) ||
      !view.contiguous()) {
    throw InvalidArgument(function, argument,
                          "a contiguous f32 or f64 tensor of " + std::to_string(rank) + " axes",
                          std::string(to_string(view.dtype())) + " " + to_string(view.shape()));
  }
}

// Sums in double, because a thousand gates of one sign add up.
template <class T>
void running_sums(const T* from, std::int64_t rows, std::int64_t length, T* to) {
  for (std::int64_t row = 0; row < rows; ++row) {
    double sum = 0.0;
    for (std::int64_t l = 0; l < length; ++l)
      to[row * length + l] = static_cast<T>(sum += static_cast<double>(from[row * length + l]));
  }
}

template <class T>
void gradient(const T* d_query, const T* d_key, std::int64_t rows, std::int64_t queries, std::int64_t keys,
              std::span<const std::int64_t> offsets, T* to) {
  const std::int64_t heads = rows / static_cast<std::int64_t>(offsets.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t offset = offsets[static_cast<std::size_t>(row / heads)];
    double sum = 0.0;
    for (std::int64_t l = keys - 1; l >= 0; --l) {
      const std::int64_t query = l - offset;
      if (query >= 0 && query < queries) sum += static_cast<double>(d_query[row * queries + query]);
      to[row * keys + l] = static_cast<T>(sum += static_cast<double>(d_key[row * keys + l]));
    }
  }
}

void check_offset(const Tensor& sums, std::int64_t query_len, std::int64_t query_offset) {
  const std::int64_t keys = sums.size(3);
  if (sums.size(2) != 1 || query_len < 0 || query_offset < 0 || query_len > keys ||
      query_offset > keys - query_len) {
    throw InvalidArgument("forget_queries", "query_len, query_offset",
                          "positions in [0, key_len " + std::to_string(keys) + ")",
                          std::to_string(query_len) + " from " + std::to_string(query_offset));
  }
}

void check_count(const char* function, std::span<const std::int64_t> offsets, std::int64_t batch) {
  const auto count = static_cast<std::int64_t>(offsets.size());
  if (count != batch) {
    throw InvalidArgument(function, "query_offsets",
                          "as many offsets as batch entries, " + std::to_string(batch),
                          std::to_string(count));
  }
}

Tensor gradient(ConstTensorView d_query, ConstTensorView d_key, std::span<const std::int64_t> offsets) {
  const std::int64_t rows = d_key.size(0) * d_key.size(1), queries = d_query.size(2), keys = d_key.size(3);
  Tensor result(d_key.dtype(), {d_key.size(0), d_key.size(1), keys});
  if (rows == 0) return result;
  with_wide_type(d_key.dtype(), [&](auto t) {
    using T = decltype(t);
    gradient(d_query.data<T>(), d_key.data<T>(), rows, queries, keys, offsets, result.data<T>());
  });
  return result;
}

void check_gradients(ConstTensorView d_query, ConstTensorView d_key) {
  check("forget_gradient", "d_query", d_query, 4);
  check("forget_gradient", "d_key", d_key, 4);
  if (d_query.dtype() != d_key.dtype() || d_query.size(0) != d_key.size(0) ||
      d_query.size(1) != d_key.size(1) || d_query.size(3) != 1 || d_key.size(2) != 1) {
    throw InvalidArgument("forget_gradient", "d_query, d_key",
                          "[batch, heads, query_len, 1] and [batch, heads, 1, key_len]",
                          to_string(d_query.shape()) + " and " + to_string(d_key.shape()));
  }
}

}  // namespace

Tensor forget_sums(ConstTensorView log_forget) {
  check("forget_sums", "log_forget", log_forget, 3);
  const std::int64_t rows = log_forget.size(0) * log_forget.size(1), length = log_forget.size(2);
  Tensor sums(log_forget.dtype(), {log_forget.size(0), log_forget.size(1), 1, length});
  with_wide_type(log_forget.dtype(), [&](auto t) {
    using T = decltype(t);
    running_sums(log_forget.data<T>(), rows, length, sums.data<T>());
  });
  return sums;
}

ConstTensorView forget_queries(const Tensor& sums, std::int64_t query_len, std::int64_t query_offset) {
  check("forget_queries", "sums", sums, 4);
  check_offset(sums, query_len, query_offset);
  const std::int64_t keys = sums.size(3), strides[] = {sums.size(1) * keys, keys, 1, 1};
  return {sums.raw() + query_offset * static_cast<std::int64_t>(size_of(sums.dtype())), sums.dtype(),
          Shape{sums.size(0), sums.size(1), query_len, 1}, strides};
}

Tensor forget_queries(const Tensor& sums, std::int64_t query_len,
                      std::span<const std::int64_t> query_offsets) {
  check("forget_queries", "sums", sums, 4);
  check_count("forget_queries", query_offsets, sums.size(0));
  for (const std::int64_t offset : query_offsets) check_offset(sums, query_len, offset);
  const Tensor result(sums.dtype(), {sums.size(0), sums.size(1), query_len, 1});
  const std::int64_t heads = sums.size(1), keys = sums.size(3),
                     bytes = static_cast<std::int64_t>(size_of(sums.dtype()));
  for (std::int64_t row = 0; row < sums.size(0) * heads; ++row) {
    const std::int64_t offset = query_offsets[static_cast<std::size_t>(row / heads)];
    std::copy_n(sums.raw() + (row * keys + offset) * bytes, query_len * bytes,
                result.raw() + row * query_len * bytes);
  }
  return result;
}

Tensor forget_gradient(ConstTensorView d_query, ConstTensorView d_key, std::int64_t query_offset) {
  check_gradients(d_query, d_key);
  const std::vector<std::int64_t> offsets(static_cast<std::size_t>(d_key.size(0)), query_offset);
  return gradient(d_query, d_key, offsets);
}

Tensor forget_gradient(ConstTensorView d_query, ConstTensorView d_key,
                       std::span<const std::int64_t> query_offsets) {
  check_gradients(d_query, d_key);
  check_count("forget_gradient", query_offsets, d_key.size(0));
  return gradient(d_query, d_key, query_offsets);
}

}  // namespace fovea
