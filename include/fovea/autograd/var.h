// Reverse-mode differentiation over tensors. A Var is a Tensor and, while training, a node of the tape that
// made it. An op records itself only if one of its inputs has a node: a model without a tape runs the same
// forward code with nothing recorded.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "fovea/core/tensor.h"

namespace fovea::autograd {

class Tape;

/// One recorded value: where its gradient is gathered, and how to pass it on.
struct Node {
  Tape* tape = nullptr;
  Tensor gradient;                                       ///< empty until the first contribution
  std::function<void(const Tensor& gradient)> backward;  ///< adds to the gradients of the op's inputs
};

class Var {
 public:
  Var() = default;
  Var(Tensor value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Var(Tensor value, Node* node) : value_(std::move(value)), node_(node) {}

  const Tensor& value() const noexcept { return value_; }
  const Shape& shape() const noexcept { return value_.shape(); }
  std::int64_t size(int axis) const noexcept { return value_.size(axis); }
  bool empty() const noexcept { return value_.empty(); }
  Node* node() const noexcept { return node_; }
  bool recorded() const noexcept { return node_ != nullptr; }

 private:
  Tensor value_;
  Node* node_ = nullptr;
};

/// A trained tensor under its stable name ("encoder.layers.0.self_attn.q_proj.weight"). All f32.
struct Parameter {
  std::string name;
  Tensor value;
  Tensor gradient;  ///< same shape; zero between steps
  /// The optimiser treats the parameter as this factor times a hidden one that learns at the full rate, so
  /// the parameter learns this many times as fast. Not saved: the model that declares the parameter sets it.
  float rate_factor = 1.0f;
};

/// Owns the nodes of one forward pass, in the order they were made. Not thread-safe: one tape a thread.
class Tape {
 public:
  /// The parameter as a recorded value; backward adds to parameter.gradient. One node for repeated uses.
  Var use(Parameter& parameter);
  /// A new node for an op's result.
  Node* record(std::function<void(const Tensor&)> backward);
  /// d loss / d everything; `loss` holds one element and was recorded here. Nodes are released as they are
  /// passed.
  void backward(const Var& loss);
  void clear();

 private:
  std::deque<Node> nodes_;
  std::deque<std::pair<Parameter*, Node*>> parameters_;
};

/// Adds `contribution` (same element count) to the gradient of `var`; no effect where var is not recorded.
/// Takes the tensor over when it is the first, so it must not be shared with anybody who writes to it.
void accumulate(const Var& var, Tensor contribution);

/// The gradient buffer of `var`, zero-filled on first use, to add to in place. Requires var.recorded().
Tensor& gradient_of(const Var& var);

}  // namespace fovea::autograd
