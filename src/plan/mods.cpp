// Arguments of score mods, checked and laid out for the kernels.
#include <algorithm>

#include "plan/impl.h"

namespace fovea {
namespace {

constexpr const char *score_list = "mods", *weight_list = "weight_mods";

template <class T>
ModCode<T> code_of(const ModNode& node, std::string_view isa) {
  const ModIsa which = isa == "avx512" ? ModIsa::avx512 : isa == "avx2" ? ModIsa::avx2 : ModIsa::any;
  if constexpr (std::is_same_v<T, float>)
    return node.code_f32(which);
  else
    return node.code_f64(which);
}

// Strides with 0 where an axis of size 1 stands for all.
kernels::ModStrides strides_of(const ConstTensorView& view) {
  kernels::ModStrides strides{};
  for (int axis = 0; axis < 4; ++axis)
    strides[static_cast<std::size_t>(axis)] = view.size(axis) > 1 ? view.stride(axis) : 0;
  return strides;
}

std::string name_of(const char* list, const ModNode& node, std::size_t mod, std::size_t argument) {
  return std::string(list) + "[" + std::to_string(mod) + "]." + node.arguments()[argument];
}

// Which axes a mod's arguments have, and which may be 1.
struct Axes {
  std::array<std::int64_t, 4> full;
  std::array<bool, 4> may_be_one{true, true, true, true};
};

Axes axes_of(const AttentionPlan::Impl& plan, const CallSizes& sizes, const ModNode& node) {
  const bool table = node.entries() > 0, by_query = node.table_by_query();
  return {{sizes.batch, plan.shape.num_query_heads, table && !by_query ? 1 : sizes.query_len,
           table ? node.entries() : sizes.key_len},
          {true, true, true, !table}};
}

// Texts are made only where something is wrong: a call takes nothing from the heap.
bool fits(const ConstTensorView& view, DType dtype, const Axes& axes) {
  if (view.rank() != 4 || view.dtype() != dtype || (view.empty() && view.count() > 0)) return false;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    const std::int64_t size = view.size(static_cast<int>(axis));
    if (size != axes.full[axis] && (size != 1 || !axes.may_be_one[axis])) return false;
  }
  return true;
}

std::string wanted(DType dtype, const Axes& axes) {
  std::string text = std::string(to_string(dtype)) + " [";
  for (std::size_t axis = 0; axis < 4; ++axis) {
    const bool exact = !axes.may_be_one[axis] || axes.full[axis] == 1;
    text += (axis ? ", " : "") + std::to_string(axes.full[axis]) + (exact ? "" : " or 1");
  }
  return text + "]";
}

}  // namespace

template <class T>
kernels::ProblemMods<T> mods_of(const AttentionPlan::Impl& plan, const Mods& mods) {
  kernels::ProblemMods<T> result;
  for (const Mod& mod : mods) {
    kernels::ProblemMod<T>& to = result.add();
    to.node = &mod.node();
    to.code = code_of<T>(mod.node(), plan.kernel->isa);
    to.count = mod.node().arguments().size();
  }
  return result;
}

template <class T>
kernels::ProblemMods<T> mods_of(const char* function, const AttentionPlan::Impl& plan, const CallSizes& sizes,
                                const ModCall& call) {
  const auto& [mods, list, arguments, gradients] = call;
  kernels::ProblemMods<T> result = mods_of<T>(plan, *mods);
  const char* field = list == score_list ? "mod_arguments" : "weight_mod_arguments";
  std::size_t count = 0;
  for (const kernels::ProblemMod<T>& mod : result.all()) count += mod.count;
  if (arguments.size() != count)
    throw InvalidArgument(function, field, std::to_string(count) + " tensors, as many as the mods have",
                          std::to_string(arguments.size()));
  if (!gradients.empty() && gradients.size() != count)
    throw InvalidArgument(function, std::string("gradients.") + field,
                          "none, or " + std::to_string(count) + " views", std::to_string(gradients.size()));
  std::size_t at = 0;
  for (std::size_t n = 0; n < result.count; ++n) {
    kernels::ProblemMod<T>& mod = result.list[n];
    const Axes axes = axes_of(plan, sizes, *mod.node);
    for (std::size_t k = 0; k < mod.count; ++k, ++at) {
      const ConstTensorView& view = arguments[at];
      if (!fits(view, plan.compute_dtype(), axes))
        throw InvalidArgument(function, name_of(list, *mod.node, n, k), wanted(plan.compute_dtype(), axes),
                              view.empty() ? "nothing" : described(view));
      kernels::ModArgument<T>& to = mod.arguments[k];
      to.data = view.template data<T>();
      to.strides = strides_of(view);
      for (int axis = 0; axis < 4; ++axis) to.sizes[static_cast<std::size_t>(axis)] = view.size(axis);
      if (gradients.empty() || !gradients[at]) continue;
      const TensorView& gradient = gradients[at];
      if (gradient.dtype() != plan.compute_dtype() || !(gradient.shape() == view.shape()))
        throw InvalidArgument(function, "gradients." + name_of(list, *mod.node, n, k), described(view),
                              described(gradient));
      to.gradient = gradient.template data<T>();
      to.gradient_strides = strides_of(gradient);
    }
  }
  return result;
}

ModCall score_mods(const AttentionPlan::Impl& plan, const AttentionInputs& inputs,
                   const AttentionGradients* gradients) {
  return {&plan.spec.mods, score_list, inputs.mod_arguments,
          gradients ? gradients->mod_arguments : std::span<const TensorView>()};
}
ModCall weight_mods(const AttentionPlan::Impl& plan, const AttentionInputs& inputs,
                    const AttentionGradients* gradients) {
  return {&plan.spec.weight_mods, weight_list, inputs.weight_mod_arguments,
          gradients ? gradients->weight_mod_arguments : std::span<const TensorView>()};
}

void check_mods(const char* function, const AttentionPlan::Impl& plan, const CallSizes& sizes,
                const AttentionInputs& inputs, const AttentionGradients* gradients) {
  for (const ModCall& call : {score_mods(plan, inputs, gradients), weight_mods(plan, inputs, gradients)}) {
    if (plan.compute_dtype() == DType::f64)
      mods_of<double>(function, plan, sizes, call);
    else
      mods_of<float>(function, plan, sizes, call);
  }
}

#define FOVEA_INSTANTIATE(T)                                                                             \
  template kernels::ProblemMods<T> mods_of<T>(const AttentionPlan::Impl&, const Mods&);                  \
  template kernels::ProblemMods<T> mods_of<T>(const char*, const AttentionPlan::Impl&, const CallSizes&, \
                                              const ModCall&);
FOVEA_INSTANTIATE(float)
FOVEA_INSTANTIATE(double)
#undef FOVEA_INSTANTIATE

}  // namespace fovea
