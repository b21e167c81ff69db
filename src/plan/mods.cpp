// The arguments of mods, in the form that kernels read.
#include <algorithm>

#include "fovea/attention/make_mod.h"
#include "plan/call.h"

namespace fovea {
namespace {

template <class T>
ModCode<T> code_of(const ModNode& node, ModIsa which) {
  if constexpr (std::is_same_v<T, float>)
    return node.code_f32(which);
  else
    return node.code_f64(which);
}

// The strides, with 0 for axes of size 1.
kernels::ModStrides strides_of(const ConstTensorView& view) {
  kernels::ModStrides strides{};
  for (int axis = 0; axis < 4; ++axis)
    strides[static_cast<std::size_t>(axis)] = view.size(axis) > 1 ? view.stride(axis) : 0;
  return strides;
}

}  // namespace

template <class T>
kernels::ProblemMods<T> mods_of(const AttentionPlan::Impl& plan, const Mods& mods) {
  kernels::ProblemMods<T> result;
  for (const Mod& mod : mods) {
    kernels::ProblemMod<T>& to = result.add();
    to.node = &mod.node();
    to.code = code_of<T>(mod.node(), plan.choice.mods());
    to.count = mod.node().arguments().size();
  }
  return result;
}

template <class T>
kernels::ProblemMods<T> mods_of(const AttentionPlan::Impl& plan, const Mods& mods, int first_argument,
                                const Call& call) {
  kernels::ProblemMods<T> result = mods_of<T>(plan, mods);
  int at = first_argument;
  for (std::size_t n = 0; n < result.count; ++n) {
    kernels::ProblemMod<T>& mod = result.list[n];
    for (std::size_t k = 0; k < mod.count; ++k, ++at) {
      const ConstTensorView& view = call.arguments[at];
      kernels::ModArgument<T>& to = mod.arguments[k];
      to.data = view.template data<T>();
      to.strides = strides_of(view);
      for (int axis = 0; axis < 4; ++axis) to.sizes[static_cast<std::size_t>(axis)] = view.size(axis);
      const TensorView& gradient = call.gradients[at];
      if (!gradient) continue;
      to.gradient = gradient.template data<T>();
      to.gradient_strides = strides_of(gradient);
    }
  }
  return result;
}

#define FOVEA_INSTANTIATE(T)                                                            \
  template kernels::ProblemMods<T> mods_of<T>(const AttentionPlan::Impl&, const Mods&); \
  template kernels::ProblemMods<T> mods_of<T>(const AttentionPlan::Impl&, const Mods&, int, const Call&);
FOVEA_INSTANTIATE(float)
FOVEA_INSTANTIATE(double)
#undef FOVEA_INSTANTIATE

}  // namespace fovea
