// The kernels that go by chunks and those that go token by token, in f32, compiled once for each instruction
// set by Highway's foreach_target. And the candidates, which have the code of chunked_f64.cpp too.
#include "kernels/recurrence/chunked.h"

#include "fovea/core/cancellation.h"
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/recurrence/chunked.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/recurrence/codes-inl.h"

#if HWY_ONCE
#include "kernels/isas.h"

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
void add_candidates(const Isa& isa, const RecurrenceCode<float>* f32, const RecurrenceCode<double>* f64,
                    std::vector<RecurrenceCandidate>& list) {
  const auto compiled = [&](const char* algorithm, std::size_t code) {
    return CompiledKernel<RecurrenceCode>{
        .name = std::string(isa.name) + algorithm, .isa = &isa, .f32 = f32[code], .f64 = f64[code]};
  };
  list.push_back({compiled(" step", 0), refuse_nothing, step_is_slower, 1, true});
  list.push_back({compiled(" chunked", 1), refuse_nothing, nullptr, recurrence_chunk, true});
}

}  // namespace

std::vector<RecurrenceCandidate> chunked_recurrence_candidates() {
  std::vector<RecurrenceCandidate> list;
  const RecurrenceCode<double>* const* f64 = chunked_f64_codes();
#define FOVEA_ADD(isa, target) add_candidates(isa, target::kCodes<float>, *f64++, list);
  FOVEA_FOR_EACH_ISA(FOVEA_ADD)
#undef FOVEA_ADD
  return list;
}

}  // namespace fovea::kernels
#endif
