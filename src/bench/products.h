// The time of linear layers at inference: products whose rows have the same bits in any batch, and oneDNN's.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace fovea::bench {

struct ProductBench {
  std::vector<std::int64_t> rows{1, 2, 5, 16, 64, 320};
  std::int64_t repeat = 9;  ///< turns, of which the best counts
  int threads = 1;          ///< for the limit; the products run on the default executor and on OpenMP
};

struct ProductRow {
  std::int64_t rows = 0, in = 0, out = 0;
  double by_row = 0.0, onednn = 0.0;  ///< seconds: autograd::Products::by_row, and dnnl_sgemm
  double limit = 0.0;  ///< seconds: the larger of arithmetic at the peak and of bytes at the rate of reading
};

/// Measures widths of small models: their projections, feed-forward layers and vocabulary. The two are
/// measured in turns with the probes of the limit.
void measure_products(const ProductBench& bench, const std::function<void(const ProductRow&)>& tell);

}  // namespace fovea::bench
