// `fovea bench model`: a folder of weights at work, by the type of the weights and the number of threads. How
// long it reads a batch of full sequences and writes one token, each beside the machine's limit.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "fovea/autograd/packed.h"

namespace fovea::bench {

struct ModelBench {
  std::string folder;
  std::vector<int> threads{1, 2};
  std::vector<autograd::WeightType> weights{autograd::WeightType::f32};
  std::int64_t batch = 8, length = 128;  ///< sequences that are read together, and the ids of each
  std::int64_t shortest = 0;  ///< ids of the shortest sequence, others lie between; 0: all have `length`
  std::int64_t prompt = 16;   ///< ids that the text begins with, or of the source of a translation
  std::int64_t tokens = 32;   ///< that are timed behind the first one
  std::int64_t rounds = 3;
};

struct ModelRow {
  autograd::WeightType weights = autograd::WeightType::f32;
  int threads = 1;
  double reading = 0.0;  ///< seconds of the batch: hidden states; of a translator those of its encoder, and
                         ///< the keys and values of its decoder's memory
  double reading_least = 0.0;     ///< seconds of all its multiply-adds at the measured peaks (Peaks)
  double peak = 0.0;              ///< multiply-adds a second of operands of the weights' type
  double writing = 0.0;           ///< seconds of a token at batch 1; 0: none is written, or noise is larger
  double writing_bytes = 0.0;     ///< that products of a token read and write
  double read_rate = 0.0;         ///< bytes a second out of 512 MiB
  std::vector<std::int32_t> ids;  ///< that were written
  using Parts = std::vector<std::pair<std::string, double>>;
  Parts reading_parts, writing_parts;  ///< of the time of all threads, the largest first
};

/// The ids of each sequence of the batch, the longest first.
std::vector<std::int64_t> lengths_of(const ModelBench& bench);

/// Id `n` of sequence `sequence`, as bench/models.py has them: not 0 to 3, which may be special, and below
/// 1,000.
std::int32_t bench_id(std::int64_t sequence, std::int64_t n);

/// Throws FileError or InvalidArgument for a folder that does not run.
void measure_model(const ModelBench& bench, const std::function<void(const ModelRow&)>& tell);

}  // namespace fovea::bench
