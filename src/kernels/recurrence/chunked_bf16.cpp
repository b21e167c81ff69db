// Chunks by products of pairs of bf16 numbers: by the dot products of AVX512_BF16, and by widened numbers for
// checks of the same code on any CPU.
#define FOVEA_WITHOUT_AVX2  // it would compile for nothing
#include "core/cpu.h"
#include "fovea/core/cancellation.h"
#include "kernels/recurrence/chunked.h"
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/recurrence/chunked_bf16.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/recurrence/chunked_backward-inl.h"
#include "kernels/recurrence/engine_terms-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

template <class Terms>
constexpr RecurrenceCode<float> kBf16Code = {ChunkedForwardBytes<float, Terms>, ChunkedForward<float, Terms>,
                                             ChunkedBackwardBytes<float, Terms>,
                                             ChunkedBackward<float, Terms>, SavedCount<float>};
#if HWY_TARGET == HWY_AVX3
constexpr const RecurrenceCode<float>& kAmxCode = kBf16Code<EngineTerms<amx_engine>>;
#endif
constexpr const RecurrenceCode<float>& kPairCode = kBf16Code<PairTerms>;

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/isas.h"

namespace fovea::kernels {
namespace {

const char* refuse_unless_bf16(const RecurrenceRequest& request) {
  return request.dtype == DType::bf16 ? nullptr : "operands that are not bf16";
}
[[maybe_unused]] const char* chunks_are_slower(const RecurrenceRequest& request) {
  static_assert(recurrence_step_tokens == 4, "the text says how many");
  return request.len <= recurrence_step_tokens ? "tokens one by one are faster for plans of at most 4 tokens"
                                               : nullptr;
}
// On a Sapphire Rapids tiles take 0.6 to 1.6 of the time of f32 forward. Backward, whose small products are
// no work for tiles, takes 1.2 to 1.7 of it (docs/recurrence.md, "Numbers").
[[maybe_unused]] const char* tiles_are_slower(const RecurrenceRequest& request) {
  if (const char* reason = chunks_are_slower(request)) return reason;
  return "f32 is faster backward, and as fast forward";
}
[[maybe_unused]] const char* dots_are_slower(const RecurrenceRequest& request) {
  if (const char* reason = chunks_are_slower(request)) return reason;
  return cpu_has_fast_bf16_dots() ? nullptr : "this CPU's dot products of bf16 are slower than f32";
}
[[maybe_unused]] RecurrenceCandidate by_pairs(const char* name, const Isa& isa,
                                              const RecurrenceCode<float>& code,
                                              const char* (*slower)(const RecurrenceRequest&)) {
  return {{.name = name, .isa = &isa, .f32 = code}, refuse_unless_bf16, slower, recurrence_chunk};
}
#if !HWY_ARCH_X86 || (HWY_TARGETS & HWY_SSE4)
const Isa pairs_isa{
    .name = "pairs", .base = portable_base(), .absence = []() -> const char* { return nullptr; }};
const char* for_checks(const RecurrenceRequest&) {
  return "it is for checks";
}
#endif

}  // namespace

std::vector<RecurrenceCandidate> bf16_recurrence_candidates() {
#if HWY_ARCH_X86 && (HWY_TARGETS & HWY_AVX3)
  return {by_pairs("amx chunked", amx_isa, N_AVX3::kAmxCode, tiles_are_slower),
          by_pairs("avx512bf16 chunked", avx512bf16_isa, N_AVX3::kPairCode, dots_are_slower)};
#else
  return {};
#endif
}

std::vector<RecurrenceCandidate> portable_bf16_recurrence_candidates() {
#if !HWY_ARCH_X86
  return {by_pairs("pairs chunked", pairs_isa, HWY_NAMESPACE::kPairCode, for_checks)};
#elif HWY_TARGETS & HWY_SSE4
  return {by_pairs("pairs chunked", pairs_isa, N_SSE4::kPairCode, for_checks)};
#else
  return {};
#endif
}

}  // namespace fovea::kernels
#endif
