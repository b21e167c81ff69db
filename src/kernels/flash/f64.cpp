// The fused kernels in f64, compiled once for each instruction set by Highway's foreach_target. Candidates
// name the code of each instruction set, instead of Highway's own dispatch, so that FOVEA_ISA can force one.
#include "kernels/flash/flash.h"
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/flash/f64.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/flash/code-inl.h"

#if HWY_ONCE
#include "kernels/isas.h"

namespace fovea::kernels {

std::vector<CodeOfIsa<double>> flash_f64() {
  std::vector<CodeOfIsa<double>> list;
#define FOVEA_ADD(isa, target) list.push_back({&isa, target::kFlashCode<double>});
  FOVEA_FOR_EACH_ISA(FOVEA_ADD)
#undef FOVEA_ADD
  return list;
}

}  // namespace fovea::kernels
#endif
