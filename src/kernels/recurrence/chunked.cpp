// The chunked kernels, compiled once for each instruction set by Highway's foreach_target.
#include "kernels/recurrence/chunked.h"

#include "fovea/core/cancellation.h"
#include "kernels/flash/flash.h"
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/recurrence/chunked.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/recurrence/chunked_backward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

template <class T>
constexpr RecurrenceCode<T> kChunkedCode{ChunkedForwardBytes<T>, ChunkedForward<T>, ChunkedBackwardBytes<T>,
                                         ChunkedBackward<T>};

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fovea::kernels {
namespace {

const char* refuse_chunked(const RecurrenceRequest&) {
  return nullptr;
}

[[maybe_unused]] RecurrenceCandidate candidate_of(const Isa& isa, const RecurrenceCode<float>& f32,
                                                  const RecurrenceCode<double>& f64) {
  return {.name = std::string(isa.name) + " chunked",
          .isa = &isa,
          .refuse = refuse_chunked,
          .chunk = recurrence_chunk,
          .f32 = f32,
          .f64 = f64};
}

}  // namespace

std::vector<RecurrenceCandidate> chunked_recurrence_candidates() {
  std::vector<RecurrenceCandidate> list;
#if HWY_ARCH_X86
#if HWY_TARGETS & HWY_AVX3
  list.push_back(candidate_of(avx512_isa, N_AVX3::kChunkedCode<float>, N_AVX3::kChunkedCode<double>));
#endif
#if HWY_TARGETS & HWY_AVX2
  list.push_back(candidate_of(avx2_isa, N_AVX2::kChunkedCode<float>, N_AVX2::kChunkedCode<double>));
#endif
#if HWY_TARGETS & HWY_SSE4
  list.push_back(candidate_of(baseline_isa, N_SSE4::kChunkedCode<float>, N_SSE4::kChunkedCode<double>));
#endif
#else
  list.push_back(
      candidate_of(baseline_isa, HWY_NAMESPACE::kChunkedCode<float>, HWY_NAMESPACE::kChunkedCode<double>));
#endif
  return list;
}

}  // namespace fovea::kernels
#endif
