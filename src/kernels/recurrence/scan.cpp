// The kernels of the selective scan, compiled once for each instruction set by Highway's foreach_target.
#include "kernels/recurrence/scan.h"

#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/recurrence/scan.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/recurrence/scan_backward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

template <class T>
constexpr ScanCode<T> kScanCode{ScanForwardBytes<T>, ScanForward<T>, ScanBackwardBytes<T>, ScanBackward<T>};

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <vector>

#include "kernels/isas.h"

namespace fovea::kernels {

std::span<const ScanCandidate> scan_candidates() {
  static const std::vector<ScanCandidate> list = [] {
    std::vector<ScanCandidate> all;
#define FOVEA_ADD(instructions, target)                            \
  all.push_back({.name = std::string(instructions.name) + " scan", \
                 .isa = &instructions,                             \
                 .f32 = target::kScanCode<float>,                  \
                 .f64 = target::kScanCode<double>});
    FOVEA_FOR_EACH_ISA(FOVEA_ADD)
#undef FOVEA_ADD
    all.push_back(scan_reference_candidate());
    return all;
  }();
  return list;
}

}  // namespace fovea::kernels
#endif
