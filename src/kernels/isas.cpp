#include "kernels/isas.h"

#include "core/cpu.h"
#include "kernels/tiles/product.h"

namespace fovea::kernels {
namespace {

#if HWY_ARCH_X86
template <bool (*has)() noexcept>
const char* absence_unless() {
  return has() ? nullptr : "this CPU lacks the instructions";
}
#endif

}  // namespace

#if HWY_ARCH_X86
const Isa avx512_isa{.name = "avx512", .absence = absence_unless<cpu_has_avx512>, .mods = ModIsa::avx512};
const Isa avx512bf16_isa{.name = "avx512bf16",
                         .base = &avx512_isa,
                         .absence = dot_absence,
                         .mods = ModIsa::avx512,
                         .multiplies_bf16 = true};
const Isa amx_isa{.name = "amx",
                  .base = &avx512bf16_isa,
                  .absence = amx_absence,
                  .mods = ModIsa::avx512,
                  .multiplies_bf16 = true};
const Isa avx2_isa{.name = "avx2", .absence = absence_unless<cpu_has_avx2>, .mods = ModIsa::avx2};
const Isa baseline_isa{.name = "baseline", .absence = absence_unless<cpu_has_sse42>};
#else
// The one target that the compiler may use everywhere, so no CPU lacks it. Highway is not asked: its NEON
// wants AES as well, which no kernel uses and which a Raspberry Pi 4 lacks.
const Isa baseline_isa{.name = "baseline", .absence = []() -> const char* { return nullptr; }};
#endif

}  // namespace fovea::kernels
