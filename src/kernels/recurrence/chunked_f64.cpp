// The kernels of chunked.cpp in f64. A file for each type: each takes minutes to compile.
#include "fovea/core/cancellation.h"
#include "kernels/recurrence/chunked.h"
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/recurrence/chunked_f64.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/recurrence/codes-inl.h"

#if HWY_ONCE
#include "kernels/isas.h"

namespace fovea::kernels {

const RecurrenceCode<double>* const* chunked_f64_codes() {
#define FOVEA_ADD(isa, target) target::kCodes<double>,
  static constexpr const RecurrenceCode<double>* codes[] = {FOVEA_FOR_EACH_ISA(FOVEA_ADD)};
#undef FOVEA_ADD
  return codes;
}

}  // namespace fovea::kernels
#endif
