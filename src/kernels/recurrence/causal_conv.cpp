// The kernels of the causal convolution, compiled once for each instruction set by Highway's foreach_target.
#include "kernels/recurrence/causal_conv.h"

#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/recurrence/causal_conv.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/recurrence/causal_conv-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

template <class T>
constexpr ConvCode<T> kConvCode{ConvForwardBytes<T>, ConvForward<T>, ConvBackwardBytes<T>, ConvBackward<T>};

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <vector>

#include "kernels/isas.h"

namespace fovea::kernels {

std::span<const ConvCandidate> conv_candidates() {
  static const std::vector<ConvCandidate> list = [] {
    std::vector<ConvCandidate> all;
#define FOVEA_ADD(instructions, target)                            \
  all.push_back({.name = std::string(instructions.name) + " conv", \
                 .isa = &instructions,                             \
                 .f32 = target::kConvCode<float>,                  \
                 .f64 = target::kConvCode<double>});
    FOVEA_FOR_EACH_ISA(FOVEA_ADD)
#undef FOVEA_ADD
    all.push_back(conv_reference_candidate());
    return all;
  }();
  return list;
}

}  // namespace fovea::kernels
#endif
