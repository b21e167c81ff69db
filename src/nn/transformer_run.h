// The order of the parts of a block. A whole call and a call that reads row by row differ in what the two
// attentions do, and in that only whole calls merge rows.
#pragma once

#include <string_view>
#include <vector>

#include "fovea/nn/transformer.h"

namespace fovea::nn {

template <class Sublayer>
Var TransformerStack::residual(Context& context, const Branch& branch, float dropout, const Var& x,
                               Sublayer&& sublayer) const {
  const auto dropped = [&](const Var& y) { return context.dropout(y, dropout); };
  switch (branch.place) {
    case NormPlace::pre:
      return add(x, dropped(sublayer(branch.norm(context, x))));
    case NormPlace::post:
      return branch.norm(context, add(x, dropped(sublayer(x))));
    case NormPlace::sandwich:
      return add(x, dropped(branch.end(context, sublayer(branch.norm(context, x)))));
    case NormPlace::end:
      return add(x, dropped(branch.norm(context, sublayer(x))));
    case NormPlace::none:
      break;
  }
  return add(x, dropped(sublayer(x)));
}

// Block number i.
template <class Self, class Memory, class Merge>
Var TransformerStack::run(Context& context, std::size_t i, Var x, Self&& self, Memory&& memory,
                          Merge&& merge) const {
  const Layer& layer = layers_[i];
  x = residual(context, layer.self_branch, layer.dropout, x, [&](const Var& y) { return self(layer, i, y); });
  if (layer.merging) x = merge(layer, x);
  if (layer.memory)
    x = residual(context, layer.memory_branch, layer.dropout, x,
                 [&](const Var& y) { return memory(layer, i, y); });
  if (!layer.feed_forward.empty())
    x = residual(context, layer.final_branch, layer.dropout, x,
                 [&](const Var& y) { return layer.feed_forward(context, y); });
  return x;
}

inline Var TransformerStack::leave(Context& context, const Var& x) const {
  return norm_ ? (*norm_)(context, x) : x;
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
