// Several linear layers at once, and whole feed-forward parts, at inference with packed weights.
#include <algorithm>
#include <array>
#include <vector>

#include "autograd/activation_rows.h"
#include "autograd/bf16_products.h"
#include "autograd/linear_shapes.h"
#include "autograd/packed_products.h"
#include "autograd/product_rows.h"
#include "autograd/record.h"
#include "fovea/autograd/ops.h"
#include "fovea/core/kept_vector.h"
#include "fovea/core/profile.h"

namespace fovea::autograd {
namespace {

// A matrix that was read packed has no value.
bool has_gate(const FeedForwardWeights& weights) {
  return weights.gate.weight.packed() || !weights.gate.weight.empty();
}

// Whether all layers are packed in one type, and nothing is recorded.
bool packed_alike(const Var& x, std::span<const LinearWeights> layers) {
  return !x.recorded() && std::all_of(layers.begin(), layers.end(), [&](const LinearWeights& layer) {
    return layer.weight.packed() && !layer.weight.recorded() && !layer.bias.recorded() &&
           layer.weight.packed()->type() == layers.front().weight.packed()->type();
  });
}

PackedProducts product_of(const Var& x, const LinearWeights& layer, float* y) {
  const std::int64_t in = layer.weight.size(1);
  return {.weight = layer.weight.packed(),
          .bias = layer.bias.empty() ? nullptr : layer.bias.value().data<float>(),
          .y = y,
          .rows = in > 0 ? x.value().count() / in : 0};
}

// Memory of the calling thread for so many numbers, until the next call.
float* scratch(std::int64_t count) {
  thread_local std::vector<float> memory;
  if (std::ssize(memory) < count) memory.resize(static_cast<std::size_t>(count));
  return memory.data();
}

// What lies between the two products of a feed-forward part: rows of the inner size, as the second reads
// them.
class InnerRows {
 public:
  InnerRows(WeightType type, std::int64_t rows, std::int64_t inner)
      : inner_(inner), stride_(bf16_row_stride((inner + 1) / 2)) {
    if (type == WeightType::bf16)
      rounded_.emplace(rows, stride_);
    else
      rows_ = Tensor(DType::f32, {rows, inner});
  }
  void put(const float* from, const ProductBlockAt& at) {
    const std::int64_t width = at.last - at.column;
    if (rounded_)
      return bf16_round_rows(from, width, at.end - at.row, width,
                             rounded_->pairs() + at.row * stride_ + at.column / 2, stride_);
    for (std::int64_t r = at.row; r < at.end; ++r, from += width)
      std::copy_n(from, width, rows_.data<float>() + r * inner_ + at.column);
  }
  void multiply(PackedProducts second, Executor& executor) {
    if (!rounded_) {
      second.x = rows_.data<float>();
      return packed_products(second, executor);
    }
    packed_products(second, *rounded_, executor);
  }

 private:
  std::int64_t inner_, stride_;
  std::optional<ProductRows> rounded_;
  Tensor rows_;
};

Var packed_feed_forward(const Var& x, const FeedForwardWeights& weights, Activation activation) {
  const bool gated = has_gate(weights);
  std::vector<PackedProducts> inner{product_of(x, gated ? weights.gate : weights.first, nullptr)};
  if (gated) inner.push_back(product_of(x, weights.first, nullptr));
  const std::int64_t rows = inner.front().rows, size = weights.first.weight.size(0);
  Executor& executor = default_executor();
  const WeightType type = inner.front().weight->type();
  // Products of bf16 round what they multiply.
  const ActivationFunction activate =
      type == WeightType::bf16 ? short_value_of(activation) : value_of(activation);
  InnerRows between(type, rows, size);
  const ProductRows prepared = product_rows("feed_forward", x, *inner.front().weight);
  // With more rows, the two blocks of f32 would not stay in the second-level cache beside the rows of x.
  constexpr std::int64_t most_rows = 192;
  for_blocks_of_all(
      inner, executor,
      [&](const ProductBlockAt& at) {
        // With a gate, the tiles of two products would take turns, and two panels do not stay in the
        // first-level cache.
        if (!gated) {
          prepared.multiply_in_pieces(inner[0], at, [&](float* piece, const ProductBlockAt& place) {
            activate(piece, (place.end - place.row) * (place.last - place.column), piece);
            between.put(piece, place);
          });
          return;
        }
        const std::int64_t count = (at.end - at.row) * (at.last - at.column);
        float* memory = scratch(2 * count);
        float* y = memory;
        for (const PackedProducts& p : inner) {
          prepared.multiply_into(p, at, y);
          y += count;
        }
        activate(memory, count, memory);
        multiply_by(memory + count, count, memory);
        between.put(memory, at);
      },
      most_rows);
  Tensor y(DType::f32, with_last(x.shape(), weights.second.weight.size(0)));
  PackedProducts second = product_of(x, weights.second, y.data<float>());
  second.rows = rows;
  between.multiply(second, executor);
  return y;
}

}  // namespace

KeptVector<Var> linears(const Var& x, std::span<const LinearWeights> layers, Products products) {
  static constexpr ProfileLabel label{"linears", ProfilePart::elementwise};
  const ProfileSpan span(label);
  KeptVector<Var> result;
  if (layers.empty()) return result;
  result.reserve(layers.size());
  if (!packed_alike(x, layers)) {
    for (const auto& [weight, bias] : layers) result.push_back(linear(x, weight, bias, products));
    return result;
  }
  std::vector<PackedProducts> each;
  for (const LinearWeights& layer : layers) {
    check_linear("linears", x.shape(), layer);
    result.emplace_back(Tensor(DType::f32, with_last(x.shape(), layer.weight.size(0))));
    each.push_back(product_of(x, layer, result.back().value().data<float>()));
  }
  const ProductRows rows = product_rows("linears", x, *each.front().weight);
  for_blocks(each, default_executor(),
             [&](std::size_t n, const ProductBlockAt& at) { rows.multiply(each[n], at); });
  return result;
}

KeptVector<Var> linears_in_bf16(const Var& x, std::span<const LinearWeights> layers) {
  static constexpr ProfileLabel label{"linears in bf16", ProfilePart::elementwise};
  const ProfileSpan span(label);
  if (!packed_alike(x, layers))
    throw InvalidArgument("linears_in_bf16", "layers", "weights packed in one type, and nothing recorded",
                          "others");
  KeptVector<Var> result;
  std::vector<PackedProducts> each;
  for (const LinearWeights& layer : layers) {
    check_linear("linears_in_bf16", x.shape(), layer);
    result.emplace_back(Tensor(DType::bf16, with_last(x.shape(), layer.weight.size(0))));
    each.push_back(product_of(x, layer, nullptr));
  }
  if (each.empty()) return result;
  const ProductRows rows = product_rows("linears_in_bf16", x, *each.front().weight);
  for_blocks(each, default_executor(), [&](std::size_t n, const ProductBlockAt& at) {
    const std::int64_t width = at.last - at.column, out = each[n].weight->out();
    float* from = scratch((at.end - at.row) * width);
    rows.multiply_into(each[n], at, from);
    bf16_narrow_rows(from, width, at.end - at.row, width,
                     result[n].value().data<bfloat16>() + at.row * out + at.column, out);
  });
  return result;
}

Var feed_forward(const Var& x, const FeedForwardWeights& weights, Activation activation, Products products) {
  static constexpr ProfileLabel label{"feed forward", ProfilePart::elementwise};
  const ProfileSpan span(label);
  const bool with_gate = has_gate(weights);
  const LinearWeights layers[] = {weights.first, weights.second, weights.gate};
  if (!packed_alike(x, std::span(layers).first(with_gate ? 3 : 2))) {
    const auto apply = [&](const Var& rows, const LinearWeights& layer) {
      return linear(rows, layer.weight, layer.bias, products);
    };
    const Var inner = apply(x, weights.first);
    return apply(with_gate ? gated(activation, apply(x, weights.gate), inner) : activate(activation, inner),
                 weights.second);
  }
  check_linear("feed_forward", x.shape(), weights.first);
  if (with_gate) {
    check_linear("feed_forward", x.shape(), weights.gate);
    if (weights.gate.weight.size(0) != weights.first.weight.size(0))
      throw InvalidArgument("feed_forward", "weights.gate", to_string(weights.first.weight.shape()),
                            to_string(weights.gate.weight.shape()));
  }
  check_linear("feed_forward", with_last(x.shape(), weights.first.weight.size(0)), weights.second);
  return packed_feed_forward(x, weights, activation);
}

}  // namespace fovea::autograd
