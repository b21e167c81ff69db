// One call of a plan: its arguments by index, its sizes, its checks, and the problem that a kernel is given.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "fovea/plan/plan.h"
#include "kernels/problem.h"
#include "plan/checks.h"
#include "plan/operand.h"
#include "plan/plan_impl.h"
#include "plan/workspace.h"

namespace fovea {

/// The most arguments of a plan: those of a score, of both lists of mods, and of the normaliser.
inline constexpr std::size_t most_arguments = 8 + 2 * kernels::max_mods * max_mod_arguments;
static_assert(OverlapCheck::most >= 16 + most_arguments);

/// The views that a call gives for the arguments of the plan, in the plan's order. Made once a call, without
/// allocating.
template <class View>
class Resolved {
 public:
  Resolved() = default;
  /// Throws InvalidArgument for a name that the plan does not have, or that is given twice. `prefix`
  /// ("gradients.") stands before names in the error.
  Resolved(const char* function, const char* prefix, const AttentionPlan::Impl& plan,
           const NamedArguments<View>& given);
  /// Takes views in the plan's order; an empty one counts as not given. They must outlive this object.
  explicit Resolved(std::span<const View> views) : count_(static_cast<int>(views.size())) {
    for (std::size_t n = 0; n < views.size(); ++n) views_[n] = &views[n];
  }
  /// An empty view for an argument that is not given, and for -1.
  const View& operator[](int argument) const {
    static const View none;
    return argument < 0 || argument >= count_ || !views_[static_cast<std::size_t>(argument)]
               ? none
               : *views_[static_cast<std::size_t>(argument)];
  }
  int count() const { return count_; }

 private:
  std::array<const View*, most_arguments> views_;
  int count_ = 0;
};

/// A call whose arguments have been found. `backward`: it is a call of attend_backward, and `gradients` are
/// the wanted ones. `entry`: it is one entry of a packed batch, and gradients of mods' arguments are added to
/// their views.
struct Call {
  const AttentionInputs& inputs;
  Resolved<ConstTensorView> arguments = {};
  Resolved<TensorView> gradients = {};
  bool backward = false;
  std::optional<std::int64_t> entry = {};
};
/// Throws InvalidArgument for arguments or gradients that the plan does not have.
inline Call call_of(const char* function, const AttentionPlan::Impl& plan, const AttentionInputs& inputs,
                    const AttentionGradients* gradients = nullptr) {
  Call call{.inputs = inputs, .arguments = {function, "", plan, inputs.arguments}};
  if (!gradients) return call;
  call.gradients = {function, "gradients.", plan, gradients->arguments};
  call.backward = true;
  return call;
}
/// Sizes of one call, at most those of the plan. For a packed batch: the number of entries, and the most rows
/// of one.
struct CallSizes {
  std::int64_t batch = 0, query_len = 0, key_len = 0;
  bool cached = false;  // keys and values are those of AttentionInputs::cache
};

/// The problem that a kernel sees. Gradients of parameters also need the operands before projection.
template <class T>
struct Prepared {
  kernels::Problem<T> problem;
  kernels::Operand<const T*> query, key;  // widened to T, not projected
};

struct Entry;  // plan/packed.h

/// Whether a candidate reads the rows of a cache where they lie, or finds them gathered side by side.
enum class CacheReading : std::uint8_t { gathered, in_place };

/// Makes the problem of a call. Takes memory for widening and projecting from `carver`. With a counting
/// carver nothing is read or computed. `stored`: the 16-bit operands that the candidate reads without
/// widening. `weights`: the call wants only these weights, and only the rows that they need are widened and
/// projected.
template <class T>
Prepared<T> prepare(const AttentionPlan::Impl& plan, const Call& call, const CallSizes& sizes, Carver& carver,
                    Executor* executor, kernels::In16Bits stored = kernels::In16Bits::nothing,
                    const AttentionOutputs* weights = nullptr, CacheReading reading = CacheReading::gathered);

/// Makes `problem`, which `prepare` made for another entry of a cached batch, that of `entry`. It changes
/// what an entry without arguments of its own has alone: the place and number of its rows, and its positions.
/// The query must be neither mapped nor widened, and the cache is read in place.
template <class T>
void move_rows(const AttentionInputs& inputs, const Entry& entry, kernels::Problem<T>& problem);

/// Checks the inputs against the plan in O(batch). Throws InvalidArgument.
CallSizes check_inputs(const char* function, const AttentionPlan::Impl& plan, const Call& call);
/// Sizes of the results of a call whose inputs have these sizes. The results of a packed batch are one entry
/// with all rows.
CallSizes result_sizes(const AttentionInputs& inputs, const CallSizes& sizes);
/// Checks the arguments of a call against their declarations. Throws InvalidArgument.
void check_arguments(const char* function, const AttentionPlan::Impl& plan, const CallSizes& sizes,
                     const Call& call);
/// Checks the wanted gradients of arguments: each must have the shape of its argument. Throws
/// InvalidArgument.
void check_argument_gradients(const char* function, const AttentionPlan::Impl& plan, const Call& call);
/// How many numbers of a normaliser's argument belong to one query head. Its axes are num_query_heads and
/// constants.
std::int64_t elements_of_a_head(const ArgumentDeclaration& declaration);
/// Whether a tensor with `rank` axes has numbers of its own for each query head.
bool is_by_head(const ArgumentDeclaration& declaration, int rank);
/// The sizes that declarations of arguments refer to.
ArgumentSizes argument_sizes(const AttentionPlan::Impl& plan, const CallSizes& sizes);

/// One of the plan's two lists of mods, with the arguments and gradients of a call. All were checked before.
template <class T>
kernels::ProblemMods<T> mods_of(const AttentionPlan::Impl& plan, const Mods& mods, int first_argument,
                                const Call& call);
/// The same without arguments, for counting bytes: nothing is read.
template <class T>
kernels::ProblemMods<T> mods_of(const AttentionPlan::Impl& plan, const Mods& mods);

/// Appends the mod that multiplies the scores of a row by the normaliser's argument and by ln n. n is the
/// number of keys that the mask lets the query see; memory for ln n is taken from `carver`. Everything else
/// of `p` must be complete. With a counting carver (no executor) nothing is read.
template <class T>
void multiply_by_counts(const AttentionPlan::Impl& plan, const Call& call, Carver& carver, Executor* executor,
                        kernels::Problem<T>& p);

/// [batch, chosen heads, chosen rows, key_len].
Shape weights_shape(const AttentionPlan::Impl& plan, const CallSizes& sizes,
                    std::span<const std::int64_t> heads, std::span<const std::int64_t> rows);
/// Packed batches have no weights of chosen rows. Throws InvalidArgument.
void check_all_rows(const char* function, const AttentionInputs& inputs,
                    std::span<const std::int64_t> weight_rows);
/// Throws InvalidArgument if an index is outside [0, count).
void check_chosen(const char* function, const char* argument, std::span<const std::int64_t> chosen,
                  std::int64_t count);

/// check_written, and `view` must not share memory with query, key and value.
void check_output(const char* function, const char* argument, const TensorView& view, DType dtype,
                  const Shape& shape, const AttentionInputs& inputs);

}  // namespace fovea
