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
  int threads = 1;          ///< of the limit and of oneDNN; our products run on the default executor
};

struct ProductRow {
  std::int64_t rows = 0, in = 0, out = 0;
  /// Seconds: with nn::ParameterSet::pack, autograd::Products::by_row without it, and dnnl_sgemm, which is
  /// infinite where the system has no oneDNN.
  double packed = 0.0, by_row = 0.0, onednn = 0.0;
  double int8 = 0.0;   ///< seconds with nn::ParameterSet::pack(WeightType::int8)
  double bf16 = 0.0;   ///< seconds with nn::ParameterSet::pack(WeightType::bf16)
  double limit = 0.0;  ///< seconds: the larger of arithmetic at the peak and of bytes at the rate of reading
};

/// A product of a training: c[rows, columns] = a[rows, depth]·b[depth, columns].
struct TrainingProduct {
  const char* what;
  std::int64_t rows, columns, depth;
  bool transposed = false;  ///< a is stored as [depth, rows], as in the gradient of a weight
};

/// Seconds of one product, in f32.
struct TrainingProductRow {
  TrainingProduct product;
  double gemm = 0.0;      ///< autograd::gemm, cut by its own rule
  double halves = 0.0;    ///< cut into blocks of half as many rows and columns
  double smallest = 0.0;  ///< cut into blocks of 64 x 64
  double onednn = 0.0;    ///< dnnl_sgemm, whole, on OpenMP's team of as many threads; infinite without oneDNN
  double limit = 0.0;     ///< seconds at the peak of arithmetic
};

/// The products of an update of `fovea train`'s models, in turns with the probe of the limit.
void measure_training_products(const ProductBench& bench,
                               const std::function<void(const TrainingProductRow&)>& tell);

/// Measures widths of small models: their projections, feed-forward layers and vocabulary. All are
/// measured in turns with the probes of the limit.
void measure_products(const ProductBench& bench, const std::function<void(const ProductRow&)>& tell);

}  // namespace fovea::bench
