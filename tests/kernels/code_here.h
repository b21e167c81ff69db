// The code of each instruction set that is compiled in and that this CPU has, for tests of code over Highway.
// Included after Highway, in the part of a test that is compiled once (HWY_ONCE).
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "core/cpu.h"

namespace fovea::testing {

template <class Code>
struct TargetCode {
  const char* name;
  bool here;  ///< whether this CPU runs it
  Code code;
};

template <class Code>
std::vector<std::pair<std::string, Code>> supported(std::initializer_list<TargetCode<Code>> all) {
  std::vector<std::pair<std::string, Code>> list;
  for (const TargetCode<Code>& one : all) {
    if (one.here) list.emplace_back(one.name, one.code);
  }
  return list;
}

}  // namespace fovea::testing

#if HWY_TARGETS & HWY_AVX3
#define FOVEA_AVX512_CODE(code) {"avx512", cpu_has_avx512(), kernels::N_AVX3::code},
#else
#define FOVEA_AVX512_CODE(code)
#endif
#if HWY_TARGETS & HWY_AVX2
#define FOVEA_AVX2_CODE(code) {"avx2", cpu_has_avx2(), kernels::N_AVX2::code},
#else
#define FOVEA_AVX2_CODE(code)
#endif
#if HWY_TARGETS & HWY_SSE4
#define FOVEA_BASELINE_CODE(code) {"baseline", cpu_has_sse42(), kernels::N_SSE4::code},
#elif !HWY_ARCH_X86
#define FOVEA_BASELINE_CODE(code) {"baseline", true, kernels::HWY_NAMESPACE::code},
#else
#define FOVEA_BASELINE_CODE(code)
#endif

/// [(name, code)]: `code` is a constant of type `Code` in the namespace kernels::N_... of each instruction
/// set.
#define FOVEA_CODE_HERE(Code, code) \
  ::fovea::testing::supported<Code>({FOVEA_AVX512_CODE(code) FOVEA_AVX2_CODE(code) FOVEA_BASELINE_CODE(code)})
