// The kernels that go by chunks and those that go token by token, compiled once for each instruction set by
// Highway's foreach_target.
#include "kernels/recurrence/chunked.h"

#include "fovea/core/cancellation.h"
#include "kernels/flash/flash.h"
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/recurrence/chunked.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/recurrence/chunked_backward-inl.h"
#include "kernels/recurrence/step-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

// Token by token, and by chunks. Backward of one token is a chunk of one: its products are as many.
template <class T>
constexpr RecurrenceCode<T> kCodes[] = {
    {StepForwardBytes<T>, StepForward<T>, ChunkedBackwardBytes<T>, ChunkedBackward<T>},
    {ChunkedForwardBytes<T>, ChunkedForward<T>, ChunkedBackwardBytes<T>, ChunkedBackward<T>}};

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fovea::kernels {
namespace {

const char* refuse_nothing(const RecurrenceRequest&) {
  return nullptr;
}
const char* step_is_slower(const RecurrenceRequest& request) {
  static_assert(recurrence_step_tokens == 4, "the text says how many");
  return request.len > recurrence_step_tokens ? "chunks are faster for plans of more than 4 tokens" : nullptr;
}

// Both candidates of an instruction set.
[[maybe_unused]] void add_candidates(const Isa& isa, const RecurrenceCode<float>* f32,
                                     const RecurrenceCode<double>* f64,
                                     std::vector<RecurrenceCandidate>& list) {
  list.push_back({.name = std::string(isa.name) + " step",
                  .isa = &isa,
                  .refuse = refuse_nothing,
                  .slower = step_is_slower,
                  .chunk = 1,
                  .f32 = f32[0],
                  .f64 = f64[0]});
  list.push_back({.name = std::string(isa.name) + " chunked",
                  .isa = &isa,
                  .refuse = refuse_nothing,
                  .chunk = recurrence_chunk,
                  .f32 = f32[1],
                  .f64 = f64[1]});
}

}  // namespace

std::vector<RecurrenceCandidate> chunked_recurrence_candidates() {
  std::vector<RecurrenceCandidate> list;
#if HWY_ARCH_X86
#if HWY_TARGETS & HWY_AVX3
  add_candidates(avx512_isa, N_AVX3::kCodes<float>, N_AVX3::kCodes<double>, list);
#endif
#if HWY_TARGETS & HWY_AVX2
  add_candidates(avx2_isa, N_AVX2::kCodes<float>, N_AVX2::kCodes<double>, list);
#endif
#if HWY_TARGETS & HWY_SSE4
  add_candidates(baseline_isa, N_SSE4::kCodes<float>, N_SSE4::kCodes<double>, list);
#endif
#else
  add_candidates(baseline_isa, HWY_NAMESPACE::kCodes<float>, HWY_NAMESPACE::kCodes<double>, list);
#endif
  return list;
}

}  // namespace fovea::kernels
#endif
