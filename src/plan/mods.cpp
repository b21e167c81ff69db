// Arguments of score mods, checked and laid out for the kernels.
#include <algorithm>

#include "plan/impl.h"

namespace fovea {
namespace {

template <class T>
ModCode<T> code_of(const ModNode& node, std::string_view isa) {
  const ModIsa which = isa == "avx512" ? ModIsa::avx512 : isa == "avx2" ? ModIsa::avx2 : ModIsa::any;
  if constexpr (std::is_same_v<T, float>)
    return node.code_f32(which);
  else
    return node.code_f64(which);
}

std::string sizes_text(const ConstTensorView& view) {
  return std::string(to_string(view.dtype())) + " " + to_string(view.shape());
}

// Strides with 0 where an axis of size 1 stands for all.
kernels::ModStrides strides_of(const ConstTensorView& view) {
  kernels::ModStrides strides{};
  for (int axis = 0; axis < 4; ++axis)
    strides[static_cast<std::size_t>(axis)] = view.size(axis) > 1 ? view.stride(axis) : 0;
  return strides;
}

std::string name_of(const ModNode& node, std::size_t mod, std::size_t argument) {
  return "mods[" + std::to_string(mod) + "]." + node.arguments()[argument];
}

// Texts are made only where something is wrong: a call takes nothing from the heap.
bool fits(const ConstTensorView& view, DType dtype, const std::array<std::int64_t, 4>& full, bool table) {
  if (view.rank() != 4 || view.dtype() != dtype || (view.empty() && view.count() > 0)) return false;
  for (int axis = 0; axis < 4; ++axis) {
    const std::int64_t size = view.size(axis), whole = full[static_cast<std::size_t>(axis)];
    if (size != whole && (size != 1 || (table && axis >= 2))) return false;
  }
  return true;
}

std::string wanted(DType dtype, const std::array<std::int64_t, 4>& full, bool table) {
  std::string text = std::string(to_string(dtype)) + " [";
  for (std::size_t axis = 0; axis < 4; ++axis) {
    const bool exact = (table && axis >= 2) || full[axis] == 1;
    text += (axis ? ", " : "") + std::to_string(full[axis]) + (exact ? "" : " or 1");
  }
  return text + "]";
}

}  // namespace

template <class T>
kernels::ProblemMods<T> mods_of(const AttentionPlan::Impl& plan) {
  kernels::ProblemMods<T> result;
  for (const Mod& mod : plan.spec.mods) {
    kernels::ProblemMod<T>& to = result.list[result.count++];
    to.node = &mod.node();
    to.code = code_of<T>(mod.node(), plan.kernel->isa);
    to.count = mod.node().arguments().size();
  }
  return result;
}

template <class T>
kernels::ProblemMods<T> mods_of(const char* function, const AttentionPlan::Impl& plan, const CallSizes& sizes,
                                std::span<const ConstTensorView> arguments,
                                std::span<const TensorView> gradients) {
  kernels::ProblemMods<T> result = mods_of<T>(plan);
  std::size_t count = 0;
  for (const kernels::ProblemMod<T>& mod : result.all()) count += mod.count;
  if (arguments.size() != count)
    throw InvalidArgument(function, "mod_arguments",
                          std::to_string(count) + " tensors, as many as the mods have",
                          std::to_string(arguments.size()));
  if (!gradients.empty() && gradients.size() != count)
    throw InvalidArgument(function, "gradients.mod_arguments", "none, or " + std::to_string(count) + " views",
                          std::to_string(gradients.size()));
  std::size_t at = 0;
  for (std::size_t n = 0; n < result.count; ++n) {
    kernels::ProblemMod<T>& mod = result.list[n];
    const bool table = mod.node->entries() > 0;
    const std::array<std::int64_t, 4> full{sizes.batch, plan.shape.num_query_heads,
                                           table ? 1 : sizes.query_len,
                                           table ? mod.node->entries() : sizes.key_len};
    for (std::size_t k = 0; k < mod.count; ++k, ++at) {
      const ConstTensorView& view = arguments[at];
      if (!fits(view, plan.compute_dtype(), full, table))
        throw InvalidArgument(function, name_of(*mod.node, n, k), wanted(plan.compute_dtype(), full, table),
                              view.empty() ? "nothing" : sizes_text(view));
      kernels::ModArgument<T>& to = mod.arguments[k];
      to.data = view.template data<T>();
      to.strides = strides_of(view);
      for (int axis = 0; axis < 4; ++axis) to.sizes[static_cast<std::size_t>(axis)] = view.size(axis);
      if (gradients.empty() || !gradients[at]) continue;
      const TensorView& gradient = gradients[at];
      if (gradient.dtype() != plan.compute_dtype() || !(gradient.shape() == view.shape()))
        throw InvalidArgument(function, "gradients." + name_of(*mod.node, n, k), sizes_text(view),
                              sizes_text(gradient));
      to.gradient = gradient.template data<T>();
      to.gradient_strides = strides_of(gradient);
    }
  }
  return result;
}

void check_mods(const char* function, const AttentionPlan::Impl& plan, const CallSizes& sizes,
                std::span<const ConstTensorView> arguments, std::span<const TensorView> gradients) {
  if (plan.compute_dtype() == DType::f64)
    mods_of<double>(function, plan, sizes, arguments, gradients);
  else
    mods_of<float>(function, plan, sizes, arguments, gradients);
}

#define FOVEA_INSTANTIATE(T)                                                                             \
  template kernels::ProblemMods<T> mods_of<T>(const AttentionPlan::Impl&);                               \
  template kernels::ProblemMods<T> mods_of<T>(const char*, const AttentionPlan::Impl&, const CallSizes&, \
                                              std::span<const ConstTensorView>,                          \
                                              std::span<const TensorView>);
FOVEA_INSTANTIATE(float)
FOVEA_INSTANTIATE(double)
#undef FOVEA_INSTANTIATE

}  // namespace fovea
