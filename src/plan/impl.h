// What a plan keeps, and what the files of this room share.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "fovea/plan/plan.h"
#include "kernels/problem.h"
#include "plan/checks.h"
#include "plan/choice.h"

namespace fovea {

struct AttentionPlan::Impl {
  AttentionSpec spec;
  AttentionShape shape;  // key_dim filled in
  DType dtype = DType::f32;
  Keys keys = Keys::all;
  Precision precision = Precision::full;
  double scale = 1.0;
  Choice choice;

  /// Every argument of the spec, in the order of declared_arguments; where each part's begin.
  std::vector<DeclaredArgument> arguments;
  std::vector<std::string> gradient_names;  // "gradients.mods[0].slope": a call's checks make no text
  int first_mod_argument = 0, first_normalizer_argument = 0, first_weight_mod_argument = 0;

  const ScoreDefinition& score() const { return definition(spec.score); }
  bool coverage() const { return score().pair == PairKind::coverage; }
  /// A score that is no product: a tanh of rows of queries and keys.
  bool additive() const { return score().pair != PairKind::product; }
  /// Rows of queries, or of keys, are made of those given before a kernel sees them.
  bool query_mapped() const { return is_mapped(score().query); }
  bool key_mapped() const { return is_mapped(score().key) || score().key_rows >= 0; }
  /// Elements of query and key once they reach the kernel.
  std::int64_t score_dim() const {
    const RowMap& query = score().query;
    return query.matrix < 0 ? shape.key_dim : matrix_rows(query.matrix);
  }
  /// Elements that an argument of the score makes of a row.
  std::int64_t matrix_rows(int argument) const {
    return score().arguments[static_cast<std::size_t>(argument)].axes[0].of(
        {.query_dim = shape.head_dim, .key_dim = shape.key_dim, .hidden = shape.hidden});
  }
  /// Whole rows of scores are needed (kernels/problem.h): forward, and backward.
  bool whole_row() const { return is_whole_row(spec.normalizer) || !spec.weight_mods.empty() || coverage(); }
  bool whole_row_backward() const {
    return whole_row() || std::any_of(spec.mods.begin(), spec.mods.end(),
                                      [](const Mod& mod) { return mod.node().table_by_query(); });
  }
  kernels::ScoreKind score_kind() const {
    return coverage()   ? kernels::ScoreKind::coverage
           : additive() ? kernels::ScoreKind::additive
                        : kernels::ScoreKind::dot;
  }
  /// What make_plan chose for, by duty.
  Requests requests() const;
  DType compute_dtype() const { return dtype == DType::f64 ? DType::f64 : DType::f32; }

 private:
  static bool is_mapped(const RowMap& map) {
    return map.matrix >= 0 || map.bias >= 0 || map.norm != RowMap::Norm::none;
  }
};

/// Of a score, of both lists of mods, and of the normaliser.
inline constexpr std::size_t most_arguments = 8 + 2 * kernels::max_mods * max_mod_arguments;
static_assert(Apart::most >= 16 + most_arguments);

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
  bool cached = false;  // keys and values are those of AttentionInputs::cache
};

/// The problem a kernel sees, and the operands before projection, which the parameter gradients need.
template <class T>
struct Prepared {
  kernels::Problem<T> problem;
  kernels::Operand<const T*> query, key;  // widened, not projected
};

/// Whether a candidate reads the rows of a cache where they lie, or finds them gathered side by side.
enum class CacheReading : std::uint8_t { gathered, in_place };

/// Takes from `carver` what widening and projecting need. With a counting carver nothing is read or computed.
/// `stored`: what the candidate reads of 16-bit operands as they are. `weights`: the call wants these weights
/// and nothing else, and no more than they need is widened and projected.
template <class T>
Prepared<T> prepare(const AttentionPlan::Impl& plan, const Call& call, const CallSizes& sizes, Carver& carver,
                    Executor* executor, kernels::In16Bits stored = kernels::In16Bits::nothing,
                    const AttentionOutputs* weights = nullptr, CacheReading reading = CacheReading::gathered);

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

template <class T>
kernels::Operand<T*> operand_of(const TensorView& view) {
  return {view.data<T>(), view.stride(0), view.stride(1), view.stride(2)};
}
template <class T>
kernels::Operand<const T*> operand_of(const ConstTensorView& view) {
  return {view.data<T>(), view.stride(0), view.stride(1), view.stride(2)};
}
/// The other way round: rows of `shape` as an operand has them.
template <class Pointer>
auto view_of(const kernels::Operand<Pointer>& operand, const Shape& shape) {
  using T = std::remove_pointer_t<Pointer>;
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  const std::array<std::int64_t, 4> strides{operand.batch_stride, operand.head_stride, operand.row_stride, 1};
  return BasicTensorView<Byte>(reinterpret_cast<Byte*>(operand.data), dtype_of<std::remove_const_t<T>>, shape,
                               strides);
}
/// Contiguous [batch, heads, rows, dim].
template <class Pointer>
kernels::Operand<Pointer> packed(Pointer data, std::int64_t heads, std::int64_t rows, std::int64_t dim) {
  return {data, heads * rows * dim, rows * dim, dim};
}

}  // namespace fovea
