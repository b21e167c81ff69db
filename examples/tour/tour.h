// The header of every C++ block of the tour (docs/tour), of docs/layers.md, docs/cache.md and
// docs/recurrence.md: the public headers that the blocks use, and a few short functions. A block is the body
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
#include "fovea/plan/recurrence_tree.h"
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

/// The weights of attention, [batch, heads, queries, keys].
inline Tensor weights_of(const Tensor& query, const Tensor& key, const AttentionSpec& spec,
                         const Arguments& arguments = {}) {
  const AttentionShape shape{.batch = query.size(0),
                             .num_query_heads = query.size(1),
                             .num_kv_heads = key.size(1),
                             .query_len = query.size(2),
                             .key_len = key.size(2),
                             .head_dim = query.size(3),
                             .value_dim = 0};
  Tensor weights(DType::f32, {shape.batch, shape.num_query_heads, shape.query_len, shape.key_len});
  attend(make_plan(spec, shape), {.query = query, .key = key, .value = {}, .arguments = arguments},
         {.output = {}, .weights = weights});
  return weights;
}

/// Lists of three letters, 4 to 13, drawn at random; the same for the same seed.
inline std::vector<std::vector<std::int32_t>> random_words(std::int64_t count, std::int64_t seed) {
  PhiloxStream random(static_cast<std::uint64_t>(seed));
  std::vector<std::vector<std::int32_t>> words(static_cast<std::size_t>(count), {0, 0, 0});
  for (auto& word : words) {
    for (auto& letter : word) letter = 4 + static_cast<std::int32_t>(random.next_below(10));
  }
  return words;
}

/// A Transformer of one layer for texts of 16 letters, each one of eight and drawn at random.
struct LetterModel {
  nn::ParameterSet parameters{1};
  nn::Embedding embed{parameters, "letters", 8, 32};
  nn::TransformerStack stack{parameters, "stack", one_layer()};

  static nn::StackSpec one_layer() {
    nn::StackSpec layers = nn::stack_of({.layers = 1, .dim = 32, .feed_forward = 64, .heads = 2});
    nn::add_rotary(layers, 16);
    return layers;
  }

  /// The mean bits of a letter of 16 texts, which `seed` draws. A letter is predicted from those before it,
  /// and from the later ones that the mask lets its place see.
  nn::Var bits(nn::Context& context, std::int64_t seed, const Mask& mask) const {
    PhiloxStream random(static_cast<std::uint64_t>(seed));
    std::vector<std::int32_t> next(16 * 16), read(next.size(), 0);
    for (std::size_t i = 0; i < next.size(); ++i) {
      next[i] = static_cast<std::int32_t>(random.next_below(8));
      if ((i + 1) % 16) read[i + 1] = next[i];
    }
    const nn::Var rows = stack(context, reshape(embed(context, read), {16, 16, 32}), {.mask = mask});
    return linear_cross_entropy(reshape(rows, {16 * 16, 32}), context.use(*embed.table), {}, next, 0.0f,
                                {.scale = 1.0f / (std::log(2.0f) * 16 * 16)});
  }

  /// The same as a number, without training.
  float bits(std::int64_t seed, const Mask& mask) const {
    nn::Context context;
    return bits(context, seed, mask).value().data<float>()[0];
  }
};
