// The kernels of the causal convolution, compiled once for each instruction set by Highway's foreach_target.
#include "kernels/recurrence/causal_conv.h"

#include "kernels/flash/flash.h"
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

namespace fovea::kernels {
namespace {

[[maybe_unused]] ConvCandidate candidate_of(const Isa& isa, const ConvCode<float>& f32,
                                            const ConvCode<double>& f64) {
  return {.name = std::string(isa.name) + " conv", .isa = &isa, .f32 = f32, .f64 = f64};
}

std::vector<ConvCandidate> make_candidates() {
  std::vector<ConvCandidate> list;
#if HWY_ARCH_X86
#if HWY_TARGETS & HWY_AVX3
  list.push_back(candidate_of(avx512_isa, N_AVX3::kConvCode<float>, N_AVX3::kConvCode<double>));
#endif
#if HWY_TARGETS & HWY_AVX2
  list.push_back(candidate_of(avx2_isa, N_AVX2::kConvCode<float>, N_AVX2::kConvCode<double>));
#endif
#if HWY_TARGETS & HWY_SSE4
  list.push_back(candidate_of(baseline_isa, N_SSE4::kConvCode<float>, N_SSE4::kConvCode<double>));
#endif
#else
  list.push_back(
      candidate_of(baseline_isa, HWY_NAMESPACE::kConvCode<float>, HWY_NAMESPACE::kConvCode<double>));
#endif
  list.push_back(conv_reference_candidate());
  return list;
}

}  // namespace

std::span<const ConvCandidate> conv_candidates() {
  static const std::vector<ConvCandidate> list = make_candidates();
  return list;
}

}  // namespace fovea::kernels
#endif
