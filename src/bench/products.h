// The time of linear layers at inference: by packed weights, by rows of weights as they are, and by oneDNN.
// The first two give a row the same bits in any batch.
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
  /// Seconds: with nn::ParameterSet::pack, autograd::Products::by_row without it, and dnnl_sgemm.
  double packed = 0.0, by_row = 0.0, onednn = 0.0;
  double int8 = 0.0;   ///< seconds with nn::ParameterSet::pack(WeightType::int8)
  double bf16 = 0.0;   ///< seconds with nn::ParameterSet::pack(WeightType::bf16)
  double limit = 0.0;  ///< seconds: the larger of arithmetic at the peak and of bytes at the rate of reading
};

/// Measures widths of small models: their projections, feed-forward layers and vocabulary. All are
/// measured in turns with the probes of the limit.
void measure_products(const ProductBench& bench, const std::function<void(const ProductRow&)>& tell);

}  // namespace fovea::bench
