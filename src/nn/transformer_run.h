// The order of the parts of a block. A whole call and a call that reads row by row differ in what the two
// attentions do, and in that only whole calls merge rows.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "fovea/autograd/residual.h"
#include "fovea/nn/transformer.h"

namespace fovea::nn {

// The rows between the parts of blocks. What the last part added is only summed when the next one says how
// the sum is normalised, because residual, dropout and norm are one sweep (autograd::residual_norm).
class TransformerStack::Stream {
 public:
  explicit Stream(Var x) : x_(std::move(x)) {}

  /// Adds what a part has computed, with dropout.
  void add(Context& context, const Var& y, float dropout) {
    x_ = rows();
    y_ = y;
    dropout_ = context.next_dropout(dropout);
  }
  const Var& rows() {
    if (y_.empty()) return x_;
    x_ = autograd::residual(x_, y_, dropout_);
    y_ = Var();
    return x_;
  }
  /// The normalised rows, for a part behind a norm.
  Var normed(Context& context, const Norm& norm) {
    if (y_.empty()) return norm(context, x_);
    const auto [sum, normed] = norm.of_residual(context, x_, y_, dropout_);
    x_ = sum;
    y_ = Var();
    return normed;
  }
  /// Normalises the rows themselves: the sum is not kept.
  void normalize(Context& context, const Norm& norm) {
    x_ = y_.empty() ? norm(context, x_)
                    : norm.of_residual(context, x_, y_, dropout_, autograd::ResidualSum::not_read).normed;
    y_ = Var();
  }

 private:
  Var x_, y_;  // y_ is empty where nothing is to be added
  autograd::DropoutOf dropout_;
};

inline void TransformerStack::add_branch(Context& context, const Branch& branch, float dropout,
                                         Stream& stream, const Var& y) {
  stream.add(context, branch.factor == 1.0f ? y : scale(y, branch.factor), dropout);
}

template <class Sublayer>
void TransformerStack::residual(Context& context, const Branch& branch, float dropout, Stream& stream,
                                Sublayer&& sublayer) {
  const bool norm_in_front = branch.place == NormPlace::pre || branch.place == NormPlace::sandwich;
  Var y = sublayer(norm_in_front ? stream.normed(context, branch.norm) : stream.rows());
  if (branch.place == NormPlace::sandwich) y = branch.end(context, y);
  if (branch.place == NormPlace::end) y = branch.norm(context, y);
  add_branch(context, branch, dropout, stream, y);
  if (branch.place == NormPlace::post) stream.normalize(context, branch.norm);
}

// The two parts of a block that both read its input.
template <class Self>
void TransformerStack::run_side_by_side(Context& context, std::size_t i, Stream& x, Self&& self) const {
  const Layer& layer = layers_[i];
  const Var of_mixer = x.normed(context, layer.self_branch.norm);
  const bool own_norm = layer.final_branch.place == NormPlace::pre;
  const Var of_mlp = own_norm ? layer.final_branch.norm(context, x.rows()) : of_mixer;
  add_branch(context, layer.self_branch, layer.dropout, x, self(layer, i, of_mixer));
  add_branch(context, layer.final_branch, layer.dropout, x, layer.feed_forward(context, of_mlp));
}

// Block number i.
template <class Self, class Memory, class Merge>
void TransformerStack::run(Context& context, std::size_t i, Stream& x, Self&& self, Memory&& memory,
                           Merge&& merge) const {
  const Layer& layer = layers_[i];
  if (layer.parts == BlockSpec::Parts::side_by_side) return run_side_by_side(context, i, x, self);
  residual(context, layer.self_branch, layer.dropout, x, [&](const Var& y) { return self(layer, i, y); });
  if (layer.merging) x = Stream(merge(layer, x.rows()));
  if (layer.memory)
    residual(context, layer.memory_branch, layer.dropout, x,
             [&](const Var& y) { return memory(layer, i, y); });
  if (!layer.feed_forward.empty())
    residual(context, layer.final_branch, layer.dropout, x,
             [&](const Var& y) { return layer.feed_forward(context, y); });
}

inline Var TransformerStack::leave(Context& context, Stream x) const {
  if (norm_) x.normalize(context, *norm_);
  return x.rows();
}

inline Tensor* weights_of(const TransformerStack::Call& call, std::string_view place, std::size_t layer) {
  return call.weights ? call.weights(place, layer) : nullptr;
}

inline std::vector<autograd::AttentionArgument> arguments_of(const TransformerStack::Call& call,
                                                             std::string_view place, std::size_t layer,
                                                             const Var& rows) {
  if (!call.arguments) return {};
  return call.arguments(place, layer, rows);
}

inline Tensor advantage_of(const TransformerStack::Call& call, std::string_view place, std::size_t layer) {
  return call.advantage ? call.advantage(place, layer) : Tensor();
}

}  // namespace fovea::nn
