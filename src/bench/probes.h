// What this machine can do at most, measured in a few milliseconds each so that a probe can stand beside
// every result: shared machines drift. The vector probes are compiled once an instruction set, and the best
// one this CPU has runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fovea::bench {

enum class Probe : std::uint8_t {
  fma_f32,   ///< floating-point operations of f32 fused multiply-adds on registers, two each
  dot_bf16,  ///< of AVX-512's dot product of bf16 pairs (vdpbf16ps), four a lane
  amx_bf16,  ///< of AMX products of bf16 tiles, without loads
  /// e^x as the f32 kernels take it (src/kernels/simd/math-inl.h: degree 6, relative error below 3e-7), load
  /// and sum included, in L1
  exponential,
  /// 2^x for results of 16 bits: AVX-512's vreduce, degree 3 (relative error 7.5e-5) and vscalef; load and
  /// sum included
  exponential_16,
  tanh,  ///< as the f32 kernels take it, load and sum included, in L1
  read,  ///< bytes read from `footprint` bytes again and again, each thread its own part
};
inline constexpr Probe all_probes[] = {Probe::fma_f32,     Probe::dot_bf16,       Probe::amx_bf16,
                                       Probe::exponential, Probe::exponential_16, Probe::tanh,
                                       Probe::read};

/// "fma_f32", ...
const char* to_string(Probe probe) noexcept;
/// "FLOP/s", "elements/s" or "B/s".
const char* unit_of(Probe probe) noexcept;
/// Why this CPU, or this build, has no such thing; empty where it has.
std::string absence_of(Probe probe);

struct ProbeOptions {
  int threads = 1;
  double seconds = 0.02;
  std::int64_t footprint = std::int64_t{64} << 20;  ///< of `read` alone, all threads together
};

/// A second's worth, all threads together; 0 where absent.
double measure(Probe probe, const ProbeOptions& options);

/// The name that the CPU gives itself; empty where the system does not tell.
std::string cpu_name();

}  // namespace fovea::bench
