// Parameters and the context of a forward pass. A layer declares its parameters in a ParameterSet under
// stable dotted names. It has one forward for training and inference; the Context says which of the two runs.
// The layers themselves are in layers.h.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "fovea/autograd/ops.h"
#include "fovea/autograd/residual.h"
#include "fovea/autograd/var.h"

namespace fovea::nn {

using autograd::Parameter;
using autograd::Var;

/// All parameters of a model, in declaration order. Their addresses are stable. Initial values depend only on
/// the seed and the name (Philox keyed by a hash of the name), not on the order of declaration.
class ParameterSet {
 public:
  explicit ParameterSet(std::uint64_t seed) : seed_(seed) {}
  /// Where values come from instead: the f32 tensor of this name and shape, which the parameter then shares.
  using Source = std::function<Tensor(const std::string& name, const Shape& shape)>;
  /// A set whose values are read. Each value is asked for when its parameter is declared, so a reader of
  /// files can refuse a shape before anything of its size is allocated. Nothing is initialised, and a
  /// parameter gets its gradient when a tape or an optimiser first uses it: inference needs none.
  explicit ParameterSet(Source source) : source_(std::move(source)) {}
  /// Moving keeps the addresses of the parameters, so layers that hold them go on working.
  ParameterSet(ParameterSet&&) = default;
  ParameterSet& operator=(ParameterSet&&) = default;

  // Each of these declares a parameter. They throw InvalidArgument for a name that is declared already, and
  // if the source gives a tensor of another shape or type.
  /// Uniform in ±gain·sqrt(6 / (in + out)), for [out, in] (Glorot and Bengio 2010).
  Parameter& xavier(std::string name, Shape shape, float gain = 1.0f);
  /// Normally distributed around 0.
  Parameter& normal(std::string name, Shape shape, float deviation);
  Parameter& constant(std::string name, Shape shape, float value);
  /// A copy of f32 `value`.
  Parameter& constant(std::string name, const Tensor& value);
  /// Throws InvalidArgument for a name that is not there.
  Parameter& at(std::string_view name);
  bool contains(std::string_view name) const;

  std::deque<Parameter>& all() noexcept { return parameters_; }
  const std::deque<Parameter>& all() const noexcept { return parameters_; }
  /// The elements of all parameters together.
  std::int64_t count() const noexcept;
  /// Whether values come from a source, and must not be changed by those who declare them.
  bool given() const noexcept { return source_ != nullptr; }
  /// Releases the source once the model is made. Declaring another parameter then throws InvalidArgument.
  void seal();
  void zero_gradients() noexcept;
  /// Keeps a packed copy of every matrix that layers multiply by, which inference then reads in its place. A
  /// product of a few rows takes about half the time, and a row has the same bits in any batch. Copies of f32
  /// take as many bytes as the matrices, those of bf16 half, those of int8 a quarter; the products of the
  /// latter two are coarser (autograd::WeightType). A value that changes later is not seen by inference until
  /// pack or unpack is called. Training does not read the copies, and Adam::step drops them. A model that was
  /// read packed (models::ModelFolder) has no other values: it stays as it is, and cannot be packed anew.
  /// Throws InvalidArgument for such a model, and for a matrix that the type does not hold.
  void pack(autograd::WeightType type = autograd::WeightType::f32);
  /// Drops the copies, but for those of a model that was read packed.
  void unpack() noexcept;

 private:
  Parameter& declare(std::string name, Shape shape);
  std::uint64_t seed_ = 0;
  Source source_;
  std::deque<Parameter> parameters_;
  std::map<std::string, Parameter*, std::less<>> by_name_;
};

/// Whether training keeps what backward needs of each block, or its input alone. Recomputed blocks run their
/// forward a second time in backward and give the same bits (autograd::recomputed).
enum class Activations : std::uint8_t { kept, recomputed };

/// How a forward runs. With a tape it is training, and dropout acts; without one it is inference.
struct Context {
  autograd::Tape* tape = nullptr;
  std::uint64_t dropout_seed = 0;                             ///< changes every step
  std::uint64_t dropout_stream = 0;                           ///< advances with every dropout of the step
  autograd::Products products = autograd::Products::fastest;  ///< of linear layers, without a tape
  Activations activations = Activations::kept;                ///< of the blocks of stacks, with a tape

  bool training() const noexcept { return tape != nullptr; }
  /// What it gives for inference borrows the packed matrix and the rows of the parameter. Between two tokens
  /// weights drive all else out of the caches, and threads that read a matrix share the line of its counter.
  /// docs/tried.md has what that and three more such lines took of a token of SmolLM.
  Var use(Parameter& parameter) {
    const auto borrowed = []<class T>(const std::shared_ptr<const T>& owned) {
      return std::shared_ptr<const T>(std::shared_ptr<const T>(), owned.get());
    };
    return tape ? tape->use(parameter)
                : Var(parameter.value, borrowed(parameter.packed), borrowed(parameter.rows));
  }
  /// Dropout while training, the identity otherwise.
  Var dropout(const Var& x, float rate);
  /// The same for an operation that drops out by itself: takes the next stream if there is a dropout.
  autograd::DropoutOf next_dropout(float rate);
};

/// Makes a pool of this many threads fovea's default executor, for layers and the engine alike. 0 stands for
/// Fovea's own pool, with one thread for each core that the process may use. It also keeps freed tensor
/// memory in the process: glibc would return large blocks to the kernel after every op, and page faults cost
/// a third of a step. No call may be running.
void use_threads(int threads);

}  // namespace fovea::nn
