// What a plan keeps, and what the files of this room share.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "fovea/plan/plan.h"
#include "kernels/problem.h"

namespace fovea {

struct AttentionPlan::Impl {
  AttentionSpec spec;
  AttentionShape shape;  // key_dim filled in
  DType dtype = DType::f32;
  Keys keys = Keys::all;
  Precision precision = Precision::full;
  double scale = 1.0;
  const kernels::KernelTable* kernel = nullptr;
  std::vector<std::string> refusals;  // "avx512 flash: this CPU has no AVX-512"

  /// Every argument of the spec, in the order of declared_arguments; where each part's begin.
  std::vector<DeclaredArgument> arguments;
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
  kernels::Request request() const;
  DType compute_dtype() const { return dtype == DType::f64 ? DType::f64 : DType::f32; }

 private:
  static bool is_mapped(const RowMap& map) {
    return map.matrix >= 0 || map.bias >= 0 || map.norm != RowMap::Norm::none;
  }
};

/// Of a score, of both lists of mods, and of the normaliser.
inline constexpr std::size_t most_arguments = 8 + 2 * kernels::max_mods * max_mod_arguments;

/// What a call gives for each argument of the plan, in the plan's order. Made once a call, without the heap.
template <class View>
class Resolved {
 public:
  Resolved() = default;
  /// Throws InvalidArgument for a name that the plan does not have, or that is given twice. `prefix` stands
  /// before names in the error: "gradients.".
  Resolved(const char* function, const char* prefix, const AttentionPlan::Impl& plan,
           const NamedArguments<View>& given);
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

/// A call, its arguments found. `backward`: attend_backward's; `gradients` are those wanted.
struct Call {
  const AttentionInputs& inputs;
  Resolved<ConstTensorView> arguments = {};
  Resolved<TensorView> gradients = {};
  bool backward = false;
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
/// True for a view with a shape: one of no elements may have no memory either.
inline bool is_given(const ConstTensorView& view) {
  return bool(view) || view.rank() > 0;
}

/// Cuts a span into 64-byte aligned pieces. With a null span it only counts.
class Carver {
 public:
  Carver() = default;
  explicit Carver(std::span<std::byte> memory) : memory_(memory) {}
  template <class T>
  T* take(std::int64_t count) {
    used_ = (used_ + 63) / 64 * 64;
    std::byte* begin = memory_.data() ? memory_.data() + used_ : nullptr;
    used_ += static_cast<std::size_t>(count) * sizeof(T);
    return reinterpret_cast<T*>(begin);
  }
  std::size_t used() const { return used_; }
  std::span<std::byte> rest() {
    used_ = (used_ + 63) / 64 * 64;
    return memory_.data() ? memory_.subspan(used_) : std::span<std::byte>();
  }

 private:
  std::span<std::byte> memory_;
  std::size_t used_ = 0;
};

/// The caller's workspace if it is given and large enough (else InvalidArgument), or this thread's arena,
/// grown to `bytes`. 64-byte aligned.
std::span<std::byte> workspace_of(const char* function, const CallResources& resources, std::size_t bytes);

/// Sizes of one call, at most those of the plan.
struct CallSizes {
  std::int64_t batch = 0, query_len = 0, key_len = 0;
};

/// The problem a kernel sees, and the operands before projection, which the parameter gradients need.
template <class T>
struct Prepared {
  kernels::Problem<T> problem;
  kernels::Operand<const T*> query, key;  // widened, not projected
};

/// Whether 16-bit keys and values are widened for the kernel, or handed over as they are stored where it
/// takes them so.
enum class Reads : std::uint8_t { widened, stored };

/// Takes from `carver` what widening and projecting need. With a counting carver nothing is read or computed.
/// `weights`: the call wants these weights and nothing else, and no more than they need is widened and
/// projected.
template <class T>
Prepared<T> prepare(const AttentionPlan::Impl& plan, const Call& call, const CallSizes& sizes, Carver& carver,
                    Executor* executor, const AttentionOutputs* weights = nullptr,
                    Reads reads = Reads::widened);

/// Checks the inputs against the plan in O(batch). Throws InvalidArgument.
CallSizes check_inputs(const char* function, const AttentionPlan::Impl& plan, const Call& call);
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

/// [batch, heads chosen, rows chosen, key_len].
Shape weights_shape(const AttentionPlan::Impl& plan, const CallSizes& sizes,
                    std::span<const std::int64_t> heads, std::span<const std::int64_t> rows);
/// Throws InvalidArgument where an index is not in [0, count).
void check_chosen(const char* function, const char* argument, std::span<const std::int64_t> chosen,
                  std::int64_t count);

/// "f32 [2, 4]".
std::string described(const ConstTensorView& view);
/// `view` is a [sizes...] of `dtype` with contiguous innermost axis, and its elements are somewhere.
void check_view(const char* function, const char* argument, const ConstTensorView& view, DType dtype,
                const Shape& shape);
/// Do the bytes from the first to the last element of each meet? Interleaved views that are apart do too.
bool overlap(const ConstTensorView& a, const ConstTensorView& b);
/// Is a stride not beyond all that the smaller ones reach? Every sensible layout without shared elements says
/// no.
bool overlaps_itself(const ConstTensorView& view);
/// `view` is a writable [sizes...] of `dtype` with contiguous innermost axis that shares no memory with the
/// inputs.
void check_output(const char* function, const char* argument, const TensorView& view, DType dtype,
                  const Shape& shape, const AttentionInputs& inputs);

/// Views of one call: what it writes may share memory neither with what it reads nor with what else it
/// writes. Empty ones share with none. Has room for every view of a call, so that it takes nothing from the
/// heap.
class Apart {
 public:
  explicit Apart(const char* function) : function_(function) {}
  /// `argument` of a view among many: "mod_arguments".
  void writes(const char* argument, const ConstTensorView& view) {
    add(written_, written_count_, argument, view);
  }
  void writes(const ArgumentGradients& gradients);
  void reads(const char* argument, const ConstTensorView& view) { add(read_, read_count_, argument, view); }
  /// The arguments; query, key and value are check_output's.
  void reads(const Arguments& arguments);
  /// Throws InvalidArgument naming both.
  void check() const;

 private:
  static constexpr std::size_t most = 16 + most_arguments;
  struct Named {
    const char* argument = nullptr;
    ConstTensorView view;
  };
  using List = std::array<Named, most>;
  static void add(List& list, std::size_t& count, const char* argument, const ConstTensorView& view) {
    if (view) list[count++] = {argument, view};
  }
  void check(const Named& written, const Named& other) const;

  const char* function_;
  List written_, read_;
  std::size_t written_count_ = 0, read_count_ = 0;
};

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
