// The fused kernels in f32, compiled once for each instruction set by Highway's foreach_target. Candidates
// name the code of each instruction set, instead of Highway's own dispatch, so that FOVEA_ISA can force one.
#include "kernels/flash/flash.h"
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/flash/f32.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/flash/code-inl.h"

#if HWY_ONCE
#include "kernels/isas.h"

namespace fovea::kernels {

std::vector<CodeOfIsa<float>> flash_f32() {
  std::vector<CodeOfIsa<float>> list;
#define FOVEA_ADD(isa, target) list.push_back({&isa, target::kFlashCode<float>});
  FOVEA_FOR_EACH_ISA(FOVEA_ADD)
#undef FOVEA_ADD
  return list;
}

}  // namespace fovea::kernels
#endif
