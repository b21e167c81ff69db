// Reverse-mode differentiation over tensors. A Var is a Tensor plus, while training, a node of the tape. An
// op records itself only if one of its inputs has a node. A model without a tape runs the same forward code
// and records nothing.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "fovea/autograd/operands.h"
#include "fovea/autograd/packed.h"
#include "fovea/core/profile.h"
#include "fovea/core/tensor.h"

namespace fovea::autograd {

class Tape;
struct Parameter;

/// Rows of a table whose elements are elsewhere, such as in a mapped file: writes row `row` as f32. Several
/// threads may call it at once.
using TableRows = std::function<void(std::int64_t row, float* to)>;

/// One recorded value: the sum of its gradient, and the function that passes it on. It lies in the memory of
/// its tape.
struct Node {
  Tape* tape = nullptr;
  ProfileSpan::Now profiled;  ///< the op that recorded it and its work, while a profile records
  Tensor gradient;            ///< empty until something is added

 private:
  friend class Tape;
  Node* before = nullptr;            // that the tape recorded
  Parameter* parameter = nullptr;    // whose uses share this node; null: a value of an op
  Node* parameter_before = nullptr;  // of the parameters that the tape uses
  // The function adds to the gradients of the op's inputs. Null when it has ended.
  void* function = nullptr;
  void (*call)(void* function, const Tensor& gradient) = nullptr;
  void (*end)(void* function) noexcept = nullptr;
  void end_function() noexcept {
    if (function) end(std::exchange(function, nullptr));
  }
};

class Var {
 public:
  Var() = default;
  Var(Tensor value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Var(Tensor value, Node* node) : value_(std::move(value)), node_(node) {}
  /// Weights of inference beside their packed form; null: they are not packed. `rows` are those of a value
  /// without elements, for `embedding`.
  Var(Tensor value, std::shared_ptr<const PackedMatrix> packed,
      std::shared_ptr<const TableRows> rows = nullptr)
      : value_(std::move(value)), packed_(std::move(packed)), rows_(std::move(rows)) {}

  const Tensor& value() const noexcept { return value_; }
  const Shape& shape() const noexcept { return value_.shape(); }
  std::int64_t size(int axis) const noexcept { return value_.size(axis); }
  bool empty() const noexcept { return value_.empty(); }
  Node* node() const noexcept { return node_; }
  bool recorded() const noexcept { return node_ != nullptr; }
  const PackedMatrix* packed() const noexcept { return packed_.get(); }
  const TableRows* rows() const noexcept { return rows_.get(); }

 private:
  Tensor value_;
  Node* node_ = nullptr;
  std::shared_ptr<const PackedMatrix> packed_;
  std::shared_ptr<const TableRows> rows_;
};

/// A trained tensor under its stable name ("encoder.layers.0.self_attn.q_proj.weight"). All f32. A token of a
/// larger model finds no parameter in the caches; aligned, what inference reads of one lies in three lines.
struct alignas(64) Parameter {
  std::string name;
  Tensor value;
  /// Of the same shape; zero between steps. Empty until Tape::use if the value was read and not initialised.
  Tensor gradient;
  /// The parameter learns this many times as fast: the optimiser treats it as this factor times a hidden
  /// parameter that learns at the full rate. Not saved: the model that declares the parameter sets it.
  float rate_factor = 1.0f;
  bool given = false;            ///< the value was read: it is no initial value that a layer may scale
  bool multiplies_rows = false;  ///< a matrix [out, in] of `linear`, which nn::ParameterSet::pack packs
  bool gives_rows = false;       ///< a table of `embedding`
  std::shared_ptr<const PackedMatrix> packed = nullptr;  ///< of `value` when it was packed; null: not packed
  /// Of a table whose value has no elements: inference reads rows by this. Null for others.
  std::shared_ptr<const TableRows> rows = nullptr;
};

/// Memory that is taken piece by piece and given back at once. What lies in it is ended by its owner.
class TapeMemory {
 public:
  TapeMemory() = default;
  TapeMemory(const TapeMemory&) = delete;
  TapeMemory& operator=(const TapeMemory&) = delete;
  ~TapeMemory() { clear(); }
  /// In the alignment of operator new. Throws std::bad_alloc.
  void* take(std::size_t bytes);
  void clear() noexcept;

 private:
  Tensor piece_;  // begins with the piece before it
  std::size_t used_ = 0;
};

/// Owns the nodes of one forward pass, in the order they were made. Not thread-safe: each thread needs its
/// own tape. Nodes and functions lie in memory like a tensor's, so a step that repeats finds that of the step
/// before it (KeepMemory).
class Tape {
 public:
  /// `operands` are those of the products of the ops that are recorded here; see Operands for which.
  explicit Tape(Operands operands = Operands::f32) : operands_(operands) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;
  ~Tape() { clear(); }
  Operands operands() const noexcept { return operands_; }
  /// The parameter as a recorded value; backward adds to parameter.gradient. Repeated uses share one node.
  /// Throws InvalidArgument for a parameter that was read packed.
  Var use(Parameter& parameter);
  /// A new node for an op's result. `backward` is called with the gradient of the result.
  template <class Backward>
  Node* record(Backward&& backward) {
    using Function = std::decay_t<Backward>;
    static_assert(alignof(Function) <= alignof(std::max_align_t));
    Node* node = append();
    node->function = new (memory_.take(sizeof(Function))) Function(std::forward<Backward>(backward));
    node->call = [](void* object, const Tensor& gradient) { (*static_cast<Function*>(object))(gradient); };
    node->end = [](void* object) noexcept { static_cast<Function*>(object)->~Function(); };
    return node;
  }
  /// Computes d loss / d x for every recorded x. Each node is released once its gradient has been passed on.
  /// Throws InvalidArgument unless `loss` has one element and was recorded on this tape.
  void backward(const Var& loss);
  /// The same from a value of any shape: `gradient`, of the same shape, is d loss / d result. Its storage may
  /// be written to.
  void backward(const Var& result, const Tensor& gradient);
  /// Releases all nodes. Their gradients are lost, but for those of parameters.
  void clear() noexcept;

 private:
  Node* append();

  Operands operands_;
  TapeMemory memory_;
  Node* last_ = nullptr;
  Node* last_parameter_ = nullptr;
};

/// Adds `contribution` (same element count) to the gradient of `var`; no effect if `var` is not recorded. The
/// first contribution becomes the gradient without a copy, so nobody else may write to that tensor.
void accumulate(const Var& var, Tensor contribution);

/// The same for a contribution that the caller uses further: the first one is copied.
void accumulate_copy(const Var& var, const Tensor& contribution);

/// The gradient buffer of `var`, zero-filled on first use, for adding in place. Throws InvalidArgument if
/// `var` is not recorded.
Tensor& gradient_of(const Var& var);

}  // namespace fovea::autograd
