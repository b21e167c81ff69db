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

namespace fovea {

/// Of a score, of both lists of mods, and of the normaliser.
inline constexpr std::size_t most_arguments = 8 + 2 * kernels::max_mods * max_mod_arguments;
static_assert(OverlapCheck::most >= 16 + most_arguments);

/// What a call gives for each argument of the plan, in the plan's order. Made once a call, without the heap.
template <class View>
class Resolved {
 public:
  Resolved() = default;
  /// Throws InvalidArgument for a name that the plan does not have, or that is given twice. `prefix` stands
  /// before names in the error: "gradients.".
  Resolved(const char* function, const char* prefix, const AttentionPlan::Impl& plan,
           const NamedArguments<View>& given);
  /// Of views that stand in the plan's order; an empty one is "not given". They outlive this.
  explicit Resolved(std::span<const View> views) : count_(static_cast<int>(views.size())) {
    for (std::size_t n = 0; n < views.size(); ++n) views_[n] = &views[n];
  }
  /// An empty view where nothing is given, and for -1.
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

/// A call, its arguments found. `backward`: attend_backward's; `gradients` are those wanted. `entry`: the
/// call is one entry of a packed batch; gradients of mods' arguments are then added to what stands in them.
struct Call {
  const AttentionInputs& inputs;
  Resolved<ConstTensorView> arguments = {};
  Resolved<TensorView> gradients = {};
  bool backward = false;
  std::optional<std::int64_t> entry = {};
};
/// Throws InvalidArgument for arguments, or gradients of them, that the plan does not have.
inline Call call_of(const char* function, const AttentionPlan::Impl& plan, const AttentionInputs& inputs,
                    const AttentionGradients* gradients = nullptr) {
  Call call{.inputs = inputs, .arguments = {function, "", plan, inputs.arguments}};
  if (!gradients) return call;
  call.gradients = {function, "gradients.", plan, gradients->arguments};
  call.backward = true;
  return call;
}
/// Sizes of one call, at most those of the plan. Of a packed batch: its entries, the most rows of one.
struct CallSizes {
  std::int64_t batch = 0, query_len = 0, key_len = 0;
};

/// The problem a kernel sees, and the operands before projection, which the parameter gradients need.
template <class T>
struct Prepared {
  kernels::Problem<T> problem;
  kernels::Operand<const T*> query, key;  // widened, not projected
};

/// Takes from `carver` what widening and projecting need. With a counting carver nothing is read or computed.
/// `stored`: what the candidate reads of 16-bit operands as they are. `weights`: the call wants these weights
/// and nothing else, and no more than they need is widened and projected.
template <class T>
Prepared<T> prepare(const AttentionPlan::Impl& plan, const Call& call, const CallSizes& sizes, Carver& carver,
                    Executor* executor, kernels::Stored stored = kernels::Stored::none,
                    const AttentionOutputs* weights = nullptr);

/// Checks the inputs against the plan in O(batch). Throws InvalidArgument.
CallSizes check_inputs(const char* function, const AttentionPlan::Impl& plan, const Call& call);
/// Sizes that the results of a call with inputs of these sizes have: a packed batch is one entry of all rows.
CallSizes result_sizes(const AttentionInputs& inputs, const CallSizes& sizes);
/// The arguments of a call against their declarations. Throws InvalidArgument.
void check_arguments(const char* function, const AttentionPlan::Impl& plan, const CallSizes& sizes,
                     const Call& call);
/// The gradients of arguments that a call wants: each has the shape of its argument. Throws InvalidArgument.
void check_argument_gradients(const char* function, const AttentionPlan::Impl& plan, const Call& call);
/// Sizes as declarations of arguments name them.
ArgumentSizes argument_sizes(const AttentionPlan::Impl& plan, const CallSizes& sizes);

/// One of the plan's two lists of mods with the arguments and the gradients of a call, all checked before.
template <class T>
kernels::ProblemMods<T> mods_of(const AttentionPlan::Impl& plan, const Mods& mods, int first_argument,
                                const Call& call);
/// For counting bytes: nothing is read.
template <class T>
kernels::ProblemMods<T> mods_of(const AttentionPlan::Impl& plan, const Mods& mods);

/// Appends the mod that multiplies the scores of a row by the normaliser's argument and by ln n, n the number
/// of keys that the mask lets the query see, whose logarithms are taken from `carver`. Asks the rest of `p`,
/// which is complete. With a counting carver (no executor) nothing is read.
template <class T>
void multiply_by_counts(const AttentionPlan::Impl& plan, const Call& call, Carver& carver, Executor* executor,
                        kernels::Problem<T>& p);

/// [batch, heads chosen, rows chosen, key_len].
Shape weights_shape(const AttentionPlan::Impl& plan, const CallSizes& sizes,
                    std::span<const std::int64_t> heads, std::span<const std::int64_t> rows);
/// Of a packed batch there are no weights of chosen rows. Throws InvalidArgument.
void check_all_rows(const char* function, const AttentionInputs& inputs,
                    std::span<const std::int64_t> weight_rows);
/// Throws InvalidArgument where an index is not in [0, count).
void check_chosen(const char* function, const char* argument, std::span<const std::int64_t> chosen,
                  std::int64_t count);

/// check_written, and `view` shares no memory with query, key and value.
void check_output(const char* function, const char* argument, const TensorView& view, DType dtype,
                  const Shape& shape, const AttentionInputs& inputs);

}  // namespace fovea
