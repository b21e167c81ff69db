// The peak rates of this machine: arithmetic, exponentials, memory. Each is measured in a few milliseconds,
// so that a probe can stand beside every result, since shared machines drift. The vector probes are compiled
// for each instruction set, and the best one that this CPU has runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fovea::bench {

enum class Probe : std::uint8_t {
  fma_f32,   ///< FLOP/s of f32 fused multiply-adds on registers, two operations each
  dot_bf16,  ///< FLOP/s of AVX-512's dot product of bf16 pairs (vdpbf16ps), four operations for each lane
  amx_bf16,  ///< FLOP/s of AMX products of bf16 tile registers, without loads
  /// e^x as the f32 kernels compute it (src/kernels/simd/math-inl.h, relative error below 3e-7), with load
  /// and sum, in the first-level cache
  exponential,
  /// 2^x for results of 16 bits: AVX-512's vreduce, degree 3 (relative error 7.5e-5) and vscalef; with load
  /// and sum.
  exponential_16,
  tanh,    ///< as the f32 kernels compute it, with load and sum, in the first-level cache
  read,    ///< bytes read from `footprint` bytes, again and again; each thread reads its own part
  update,  ///< bytes read and bytes written of numbers that are changed where they are, else as `read`
  /// Operations/s of products of bytes, two for each: AVX-512's vpdpbusd, or AVX2's vpmaddubsw with the sums
  dot_int8,
};
/// Those of `fovea bench kernels`, none of whose rows multiplies bytes.
inline constexpr Probe all_probes[] = {Probe::fma_f32,     Probe::dot_bf16,       Probe::amx_bf16,
                                       Probe::exponential, Probe::exponential_16, Probe::tanh,
                                       Probe::read,        Probe::update};

/// "fma_f32", ...
const char* to_string(Probe probe) noexcept;
/// "FLOP/s", "elements/s" or "B/s".
const char* unit_of(Probe probe) noexcept;
/// Why this CPU, or this build, lacks the probe; empty where it has it.
std::string absence_of(Probe probe);

struct ProbeOptions {
  int threads = 1;
  double seconds = 0.02;
  std::int64_t footprint = std::int64_t{64}
                           << 20;  ///< for `read` and `update`: the bytes of all threads together
};

/// The probe of the fastest products of bf16 numbers here: those of f32 where the CPU has none of bf16.
Probe best_bf16_products();

/// Likewise of int8 numbers.
Probe best_int8_products();

/// The rate for each second, of all threads together; 0 where absent.
double measure(Probe probe, const ProbeOptions& options);

/// The name that the CPU gives itself; empty where the system does not tell.
std::string cpu_name();

}  // namespace fovea::bench
