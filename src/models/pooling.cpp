#include "fovea/models/pooling.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/clones.h"
#include "fovea/core/error.h"
#include "fovea/core/executor.h"
#include "fovea/core/kept_vector.h"

namespace fovea::models {
namespace {

FOVEA_CLONES void add_into(const float* row, std::int64_t n, double* sum) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) sum[i] += row[i];
}

FOVEA_CLONES void keep_larger(const float* row, std::int64_t n, double* largest) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const double next = row[i];
    largest[i] = largest[i] < next ? next : largest[i];
  }
}

// The vector of `count` rows x.
void pool(const SentencePooling& pooling, const float* x, std::int64_t count, std::int64_t dim, float* to) {
  using Kind = SentencePooling::Kind;
  const float* first = x + (pooling.kind == Kind::last ? count - 1 : 0) * dim;
  KeptVector<double> values(first, first + dim);
  for (std::int64_t row = 1; row < count && pooling.kind >= Kind::mean; ++row)
    (pooling.kind == Kind::max ? keep_larger : add_into)(x + row * dim, dim, values.data());
  const double divisor = pooling.kind == Kind::mean            ? static_cast<double>(count)
                         : pooling.kind == Kind::mean_sqrt_len ? std::sqrt(static_cast<double>(count))
                                                               : 1.0;
  double squares = 0.0;
  for (std::int64_t d = 0; d < dim; ++d) {
    const double value = values[d] / divisor;
    to[d] = static_cast<float>(value);
    squares += value * value;
  }
  // The least length is that of torch.nn.functional.normalize.
  const double length = std::max(std::sqrt(squares), 1e-12);
  for (std::int64_t d = 0; pooling.normalize && d < dim; ++d) to[d] = static_cast<float>(to[d] / length);
}

}  // namespace

Tensor SentencePooling::apply(const Tensor& rows) const {
  const std::int64_t dim = rows.shape()[-1], count = dim > 0 ? rows.count() / dim : 0;
  const RowRange all[] = {{0, count}};
  return apply(rows, all).reshape({dim});
}

Tensor SentencePooling::apply(const Tensor& rows, std::span<const RowRange> texts) const {
  const std::int64_t dim = rows.shape()[-1], total = dim > 0 ? rows.count() / dim : 0;
  for (const RowRange& text : texts) {
    if (text.count < 1)
      throw InvalidArgument("SentencePooling::apply", "rows", "at least one row of each text", "none");
    if (text.begin < 0 || text.begin > total || text.count > total - text.begin)
      throw InvalidArgument("SentencePooling::apply", "texts", "rows in [0, " + std::to_string(total) + ")",
                            std::to_string(text.count) + " rows from " + std::to_string(text.begin) + " on");
  }
  Tensor vectors(DType::f32, {std::ssize(texts), dim});
  default_executor().parallel_for(std::ssize(texts), [&](std::int64_t n, int) {
    const RowRange& text = texts[static_cast<std::size_t>(n)];
    pool(*this, rows.data<float>() + text.begin * dim, text.count, dim, vectors.data<float>() + n * dim);
  });
  return vectors;
}

}  // namespace fovea::models
