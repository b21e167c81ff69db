// The kernels of the selective scan, compiled once for each instruction set by Highway's foreach_target.
#include "kernels/recurrence/scan.h"

#include "kernels/flash/flash.h"
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

namespace fovea::kernels {
namespace {

[[maybe_unused]] ScanCandidate candidate_of(const Isa& isa, const ScanCode<float>& f32,
                                            const ScanCode<double>& f64) {
  return {.name = std::string(isa.name) + " scan", .isa = &isa, .f32 = f32, .f64 = f64};
}

std::vector<ScanCandidate> make_candidates() {
  std::vector<ScanCandidate> list;
#if HWY_ARCH_X86
#if HWY_TARGETS & HWY_AVX3
  list.push_back(candidate_of(avx512_isa, N_AVX3::kScanCode<float>, N_AVX3::kScanCode<double>));
#endif
#if HWY_TARGETS & HWY_AVX2
  list.push_back(candidate_of(avx2_isa, N_AVX2::kScanCode<float>, N_AVX2::kScanCode<double>));
#endif
#if HWY_TARGETS & HWY_SSE4
  list.push_back(candidate_of(baseline_isa, N_SSE4::kScanCode<float>, N_SSE4::kScanCode<double>));
#endif
#else
  list.push_back(
      candidate_of(baseline_isa, HWY_NAMESPACE::kScanCode<float>, HWY_NAMESPACE::kScanCode<double>));
#endif
  list.push_back(scan_reference_candidate());
  return list;
}

}  // namespace

std::span<const ScanCandidate> scan_candidates() {
  static const std::vector<ScanCandidate> list = make_candidates();
  return list;
}

}  // namespace fovea::kernels
#endif
