// What a plan keeps, and what the files of this room share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fovea/plan/plan.h"
#include "kernels/problem.h"

namespace fovea {

struct AttentionPlan::Impl {
  AttentionSpec spec;
  AttentionShape shape;  // key_dim filled in
  DType dtype = DType::f32;
  double scale = 1.0;
  const kernels::KernelTable* kernel = nullptr;
  std::vector<std::string> refusals;  // "avx512 flash: this CPU has no AVX-512"

  bool bilinear() const { return std::holds_alternative<Bilinear>(spec.score); }
  bool additive() const { return std::holds_alternative<Additive>(spec.score); }
  bool low_rank() const { return std::holds_alternative<LowRankBilinear>(spec.score); }
  /// Elements of query and key once they reach the kernel.
  std::int64_t score_dim() const { return additive() || low_rank() ? shape.hidden : shape.key_dim; }
  DType compute_dtype() const { return dtype == DType::f64 ? DType::f64 : DType::f32; }
};

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

/// Takes from `carver` what widening and projecting need. With a counting carver nothing is read or computed.
template <class T>
Prepared<T> prepare(const AttentionPlan::Impl& plan, const AttentionInputs& inputs, const CallSizes& sizes,
                    Carver& carver, Executor* executor, const char* function = "attend",
                    std::span<const TensorView> mod_gradients = {});

/// Checks the inputs against the plan in O(batch). Throws InvalidArgument.
CallSizes check_inputs(const char* function, const AttentionPlan::Impl& plan, const AttentionInputs& inputs);

/// Arguments of the plan's mods, by name in errors; gradients where `gradients` has them.
template <class T>
kernels::ProblemMods<T> mods_of(const char* function, const AttentionPlan::Impl& plan, const CallSizes& sizes,
                                std::span<const ConstTensorView> arguments,
                                std::span<const TensorView> gradients);
/// Throws what mods_of would.
void check_mods(const char* function, const AttentionPlan::Impl& plan, const CallSizes& sizes,
                std::span<const ConstTensorView> arguments, std::span<const TensorView> gradients);
/// The same for counting bytes: nothing is read.
template <class T>
kernels::ProblemMods<T> mods_of(const AttentionPlan::Impl& plan);

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
  void reads(const char* argument, const ConstTensorView& view) { add(read_, read_count_, argument, view); }
  /// The parameters, the sink and the arguments of mods; query, key and value are check_output's.
  void reads(const AttentionInputs& inputs);
  /// Throws InvalidArgument naming both.
  void check() const;

 private:
  static constexpr std::size_t most = 16 + kernels::max_mods * max_mod_arguments;
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
/// Contiguous [batch, heads, rows, dim].
template <class Pointer>
kernels::Operand<Pointer> packed(Pointer data, std::int64_t heads, std::int64_t rows, std::int64_t dim) {
  return {data, heads * rows * dim, rows * dim, dim};
}

}  // namespace fovea
