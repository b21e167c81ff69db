#include "kernels/simd/convert.h"

#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/convert.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/simd/best.h"
#include "kernels/simd/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

// Overloads have no address of their own.
void WidenF16(const float16* from, int64_t count, float* to) {
  Widen(from, count, to);
}
void NarrowF16(const float* from, int64_t count, float16* to) {
  Narrow(from, count, to);
}
void WidenBf16(const bfloat16* from, int64_t count, float* to) {
  Widen(from, count, to);
}
void NarrowBf16(const float* from, int64_t count, bfloat16* to) {
  Narrow(from, count, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fovea::kernels {

void widen(const float16* from, std::int64_t count, float* to) {
  FOVEA_BEST(WidenF16)(from, count, to);
}
void narrow(const float* from, std::int64_t count, float16* to) {
  FOVEA_BEST(NarrowF16)(from, count, to);
}

void widen(const bfloat16* from, std::int64_t count, float* to) {
  FOVEA_BEST(WidenBf16)(from, count, to);
}
void narrow(const float* from, std::int64_t count, bfloat16* to) {
  FOVEA_BEST(NarrowBf16)(from, count, to);
}

}  // namespace fovea::kernels
#endif
