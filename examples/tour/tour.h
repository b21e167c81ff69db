// The header of every C++ block of the tour (docs/tour), of docs/layers.md, docs/cache.md and
// docs/recurrence.md: the public headers that the blocks use, and four short functions. A block is the body
// of a function.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "fovea/attention/masks.h"
#include "fovea/attention/streaming_sinks.h"
#include "fovea/autograd/ops.h"
#include "fovea/cache/kv_cache.h"
#include "fovea/core/philox.h"
#include "fovea/files/safetensors.h"
#include "fovea/inspect/graph.h"
#include "fovea/inspect/terminal.h"
#include "fovea/mechanisms/forget.h"
#include "fovea/models/batcher.h"
#include "fovea/models/decoding.h"
#include "fovea/models/language_model.h"
#include "fovea/models/model_folder.h"
#include "fovea/models/rnn.h"
#include "fovea/models/transformer.h"
#include "fovea/nn/optimizer.h"
#include "fovea/nn/transformer.h"
#include "fovea/plan/causal_conv.h"
#include "fovea/plan/merge.h"
#include "fovea/plan/plan.h"
#include "fovea/plan/recurrence.h"
#include "fovea/plan/recurrence_segment.h"
#include "fovea/plan/rope.h"
#include "fovea/plan/selective_scan.h"
#include "fovea/text/alignment.h"
#include "fovea/text/bleu.h"
#include "fovea/train/fit.h"

using namespace fovea;

/// Standard normal numbers; the same for the same seed.
inline Tensor normal(Shape shape, std::uint64_t seed) {
  Tensor tensor(DType::f32, shape);
  PhiloxStream random(seed);
  for (std::int64_t i = 0; i < tensor.count(); ++i) tensor.data<float>()[i] = random.next_normal();
  return tensor;
}

/// The numbers given, in that shape.
inline Tensor tensor(const std::vector<float>& values, Shape shape) {
  return Tensor::from<float>(values, shape);
}

/// A label, and the elements: a line for each row of the last axis.
inline void show(const char* label, const Tensor& x, const char* format = "%7.3f") {
  const std::int64_t columns = x.size(-1), rows = columns ? x.count() / columns : 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::printf("%-12s", row == 0 ? label : "");
    for (std::int64_t i = 0; i < columns; ++i) std::printf(format, x.data<float>()[row * columns + i]);
    std::printf("\n");
  }
}

/// The largest difference between two tensors of the same shape.
inline float largest_difference(const Tensor& a, const Tensor& b) {
  float largest = 0.0f;
  for (std::int64_t i = 0; i < a.count(); ++i)
    largest = std::max(largest, std::abs(a.data<float>()[i] - b.data<float>()[i]));
  return largest;
}
