#include "bench/products.h"

#include <algorithm>
#include <limits>

#include "autograd/gemm.h"
#include "autograd/packed_products.h"
#include "autograd/row_products.h"
#include "bench/onednn.h"
#include "bench/probes.h"
#include "bench/timing.h"
#include "fovea/core/executor.h"

namespace fovea::bench {
namespace {

// Seconds of one product, from as many as take about a millisecond.
double seconds_of(double flops, const std::function<void()>& product) {
  const auto count = std::max<std::int64_t>(1, static_cast<std::int64_t>(3e7 / flops));
  return best_seconds(1,
                      [&] {
                        for (std::int64_t n = 0; n < count; ++n) product();
                      }) /
         static_cast<double>(count);
}

ProductRow measure_row(const ProductBench& bench, OneDnnProduct onednn, std::int64_t rows, std::int64_t in,
                       std::int64_t out) {
  const Tensor x = random_operand({rows, in}, 1), weight = random_operand({out, in}, 2);
  const autograd::PackedMatrix packed(weight), int8(weight, autograd::WeightType::int8),
      bf16(weight, autograd::WeightType::bf16);
  Tensor y(DType::f32, {rows, out});
  const auto size = [](std::int64_t a, std::int64_t b) { return static_cast<double>(a * b); };
  const double flops = 2.0 * size(rows, in) * static_cast<double>(out),
               bytes = 4.0 * (size(rows, in) + size(in, out) + size(rows, out));
  const ProbeOptions options{.threads = bench.threads, .seconds = 0.005};
  ProductRow row{.rows = rows, .in = in, .out = out};
  row.packed = row.int8 = row.bf16 = row.by_row = row.onednn = row.limit =
      std::numeric_limits<double>::infinity();
  const auto by = [&](const autograd::PackedMatrix& matrix) {
    return seconds_of(flops, [&] {
      autograd::packed_products({.x = x.data<float>(), .weight = &matrix, .y = y.data<float>(), .rows = rows},
                                default_executor());
    });
  };
  for (std::int64_t turn = 0; turn < bench.repeat; ++turn) {
    row.packed = std::min(row.packed, by(packed));
    row.int8 = std::min(row.int8, by(int8));
    row.bf16 = std::min(row.bf16, by(bf16));
    row.by_row = std::min(row.by_row, seconds_of(flops, [&] {
                            autograd::row_products({.x = x.data<float>(),
                                                    .weight = weight.data<float>(),
                                                    .y = y.data<float>(),
                                                    .rows = rows,
                                                    .in = in,
                                                    .out = out},
                                                   default_executor());
                          }));
    if (onednn)
      row.onednn = std::min(row.onednn, seconds_of(flops, [&] {
                              onednn('N', 'T', rows, out, in, 1.0f, x.data<float>(), in, weight.data<float>(),
                                     in, 0.0f, y.data<float>(), out);
                            }));
    row.limit = std::min(
        row.limit, std::max(flops / measure(Probe::fma_f32, options), bytes / measure(Probe::read, options)));
  }
  return row;
}

TrainingProductRow measure_row(const ProductBench& bench, OneDnnProduct onednn,
                               const TrainingProduct& product) {
  const auto [what, rows, columns, depth, transposed] = product;
  const Tensor a = random_operand({rows, depth}, 1), b = random_operand({depth, columns}, 2);
  Tensor c(DType::f32, {rows, columns});
  const auto left = transposed ? autograd::Matrix{a.data<float>(), rows, autograd::Transpose::yes}
                               : autograd::Matrix{a.data<float>(), depth, autograd::Transpose::no};
  const autograd::Matrix right{b.data<float>(), columns, autograd::Transpose::no};
  const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(columns * depth);
  const autograd::GemmBlock block = autograd::gemm_block(rows, columns, depth, bench.threads),
                            half{std::max<std::int64_t>(1, block.rows / 2),
                                 std::max<std::int64_t>(1, block.columns / 2)};
  const auto in_blocks = [&](autograd::GemmBlock size) {
    return seconds_of(flops, [&] {
      autograd::gemm_in_blocks(size, rows, columns, depth, left, right, c.data<float>(), columns);
    });
  };
  const ProbeOptions options{.threads = bench.threads, .seconds = 0.005};
  TrainingProductRow row{.product = product};
  row.gemm = row.halves = row.smallest = row.onednn = row.limit = std::numeric_limits<double>::infinity();
  for (std::int64_t turn = 0; turn < bench.repeat; ++turn) {
    row.gemm = std::min(row.gemm, in_blocks(block));
    row.halves = std::min(row.halves, in_blocks(half));
    row.smallest = std::min(row.smallest, in_blocks({64, 64}));
    if (onednn)
      row.onednn = std::min(row.onednn, seconds_of(flops, [&] {
                              onednn(transposed ? 'T' : 'N', 'N', rows, columns, depth, 1.0f, left.data,
                                     left.leading, right.data, right.leading, 0.0f, c.data<float>(), columns);
                            }));
    row.limit = std::min(row.limit, flops / measure(Probe::fma_f32, options));
  }
  return row;
}

}  // namespace

void measure_training_products(const ProductBench& bench,
                               const std::function<void(const TrainingProductRow&)>& tell) {
  const OneDnnProduct onednn = onednn_product(bench.threads);
  for (const TrainingProduct& product : {
           TrainingProduct{"projection", 2048, 128, 128},
           {"feed-forward", 2048, 512, 128},
           {"vocabulary", 400, 9712, 128},
           {"gradient of a weight", 128, 128, 2048, true},
           {"gradient of the vocabulary", 128, 9712, 400, true},
           {"a base model's projection", 1500, 512, 512},
           {"a base model's feed-forward", 1500, 2048, 512},
           {"gates of a GRU", 140, 768, 256},
       })
    tell(measure_row(bench, onednn, product));
}

void measure_products(const ProductBench& bench, const std::function<void(const ProductRow&)>& tell) {
  const OneDnnProduct onednn = onednn_product(bench.threads);
  struct Widths {
    std::int64_t in, out;
  };
  for (const auto& [in, out] :
       {Widths{128, 128}, {128, 512}, {512, 128}, {512, 2048}, {128, 9712}, {768, 3072}, {3072, 768}}) {
    for (const std::int64_t rows : bench.rows) tell(measure_row(bench, onednn, rows, in, out));
  }
}

}  // namespace fovea::bench
