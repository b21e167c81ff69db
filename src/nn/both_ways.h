// The recurrences of a stack in a whole call, from left to right and from right to left.
#pragma once

#include <cstdint>
#include <vector>

#include "fovea/nn/transformer.h"

namespace fovea::nn {

class BothWays {
 public:
  /// The three must outlive it.
  BothWays(Context& context, const Var& x, const TransformerStack::Call& call)
      : context_(context), x_(x), call_(call) {}
  /// What the recurrences of layer number `layer` make of its rows. `back` is null where it has none.
  Var operator()(const RecurrentMixer& mixer, const RecurrentMixer* back, std::size_t layer, const Var& rows);

  /// Of RWKV-7: the values of the first layer in each direction, which later layers read. Empty before it.
  Var first_value, first_value_back;

 private:
  const std::vector<std::int64_t>& order();
  Var reversed(const Var& rows);
  void add_reversed(const Tensor& from, Tensor& to);

  Context& context_;
  const Var& x_;
  const TransformerStack::Call& call_;
  std::vector<std::int64_t> order_;
};

}  // namespace fovea::nn
