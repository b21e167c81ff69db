// Chunks by the dot products of AVX512_BF16. One file, since it is compiled for one instruction set alone.
#define FOVEA_WITHOUT_AVX2  // it would compile for nothing
#include "fovea/core/cancellation.h"
#include "kernels/recurrence/chunked.h"
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/recurrence/chunked_bf16.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/recurrence/bf16_terms-inl.h"
#include "kernels/recurrence/chunked_backward-inl.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

constexpr RecurrenceCode<float> kBf16Code = {
    ChunkedForwardBytes<float, PairTerms>, ChunkedForward<float, PairTerms>,
    ChunkedBackwardBytes<float, PairTerms>, ChunkedBackward<float, PairTerms>, SavedCount<float>};

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace fovea::kernels {

const RecurrenceCode<float>* chunked_bf16_code() {
#if HWY_ARCH_X86 && (HWY_TARGETS & HWY_AVX3)
  return &N_AVX3::kBf16Code;
#else
  return nullptr;
#endif
}

}  // namespace fovea::kernels
#endif
