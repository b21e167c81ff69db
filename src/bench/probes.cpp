#include "bench/probes.h"

#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/probes.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/simd/best.h"
#include "kernels/simd/math-inl.h"
#include "kernels/tiles/product.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::bench {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using kernels::HWY_NAMESPACE::Exp;
using kernels::HWY_NAMESPACE::Tanh;

// Twelve sums: more than the eight that two multiply-adds for each cycle, of four cycles each, keep busy; and
// fewer than AVX2's 16 registers.
double FmaStep(float* kept) {
  constexpr int kSteps = 2000, kSums = 12;
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const V a = hn::Set(d, 0.5f), b = hn::Set(d, 1.0f);
  V sum[kSums];
#pragma GCC unroll 12
  for (int i = 0; i < kSums; ++i) sum[i] = hn::Set(d, static_cast<float>(i));
  for (int n = 0; n < kSteps; ++n) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) sum[i] = hn::MulAdd(sum[i], a, b);
  }
#pragma GCC unroll 12
  for (int i = 1; i < kSums; ++i) sum[0] = hn::Add(sum[0], sum[i]);
  *kept = hn::GetLane(sum[0]);
  return 2.0 * kSteps * kSums * static_cast<double>(hn::Lanes(d));
}

template <class F>
HWY_INLINE double EachSummed(const float* x, int count, float* kept, F&& f) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const int lanes = static_cast<int>(hn::Lanes(d));
  V sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  for (int i = 0; i < count; i += 2 * lanes) {
    sum0 = hn::Add(sum0, f(d, hn::LoadU(d, x + i)));
    sum1 = hn::Add(sum1, f(d, hn::LoadU(d, x + i + lanes)));
  }
  *kept = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  return count;
}

double ExponentialStep(const float* x, int count, float* kept) {
  return EachSummed(x, count, kept, [](auto d, auto v) HWY_ATTR { return Exp(d, v); });
}
double TanhStep(const float* x, int count, float* kept) {
  return EachSummed(x, count, kept, [](auto d, auto v) HWY_ATTR { return Tanh(d, v); });
}

// Eight sums, because four would wait for their additions in the first-level cache; 512 bytes for each turn
// of the loop with AVX-512. `count` is a multiple of 128.
double ReadStep(const float* x, int64_t count, float* kept) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int kSums = 8;
  V sum[kSums];
#pragma GCC unroll 8
  for (int v = 0; v < kSums; ++v) sum[v] = hn::Zero(d);
  for (int64_t i = 0; i < count; i += kSums * lanes) {
#pragma GCC unroll 8
    for (int v = 0; v < kSums; ++v) sum[v] = hn::Add(sum[v], hn::LoadU(d, x + i + v * lanes));
  }
#pragma GCC unroll 8
  for (int v = 1; v < kSums; ++v) sum[0] = hn::Add(sum[0], sum[v]);
  *kept = hn::GetLane(hn::SumOfLanes(d, sum[0]));
  return static_cast<double>(count) * sizeof(float);
}

// Numbers at most 0, which stay what they are.
double UpdateStep(float* x, int64_t count) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < count; i += 4 * lanes) {
    for (int64_t v = 0; v < 4; ++v)
      hn::StoreU(hn::Min(hn::LoadU(d, x + i + v * lanes), hn::Zero(d)), d, x + i + v * lanes);
  }
  return 2.0 * static_cast<double>(count) * sizeof(float);
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include "bench/probes_x86.h"
#include "core/cpu.h"
#include "fovea/core/tensor.h"

namespace fovea::bench {

namespace {

using Clock = std::chrono::steady_clock;
volatile float sink = 0.0f;

constexpr int in_l1 = 4096;  // elements, 16 KiB

// The memory of one thread. `count` and `at`, where reading goes on, belong to `read` and `update`.
struct Part {
  float* data = nullptr;
  std::int64_t count = 0, at = 0;
};

double step(Probe probe, Part& part) {
  float kept = 0.0f;
  double done = 0.0;
  switch (probe) {
    case Probe::fma_f32:
      done = FOVEA_BEST(FmaStep)(&kept);
      break;
    case Probe::dot_bf16:
      return dot_bf16_step();
    case Probe::amx_bf16:
      return amx_step();
    case Probe::exponential:
      done = FOVEA_BEST(ExponentialStep)(part.data, in_l1, &kept);
      break;
    case Probe::exponential_16:
      return exponential_16_step(part.data, in_l1);
    case Probe::tanh:
      done = FOVEA_BEST(TanhStep)(part.data, in_l1, &kept);
      break;
    case Probe::read:
    case Probe::update: {
      constexpr std::int64_t most = 1 << 16;  // 256 KiB between two readings of the clock
      for (std::int64_t elements = 0; elements < most;) {
        const std::int64_t count = std::min(most - elements, part.count - part.at);
        done += probe == Probe::read ? FOVEA_BEST(ReadStep)(part.data + part.at, count, &kept)
                                     : FOVEA_BEST(UpdateStep)(part.data + part.at, count);
        part.at = part.at + count == part.count ? 0 : part.at + count;
        elements += count;
      }
      break;
    }
    case Probe::dot_int8:
      return dot_int8_step();
  }
  sink = kept;
  return done;
}

double rate(Probe probe, double seconds, Part part) {
  double done = 0.0;
  const auto begin = Clock::now();
  for (;;) {
    done += step(probe, part);
    const double passed = std::chrono::duration<double>(Clock::now() - begin).count();
    if (passed >= seconds) return done / passed;
  }
}

// Kept from one probe to the next, so that its pages are touched once. A tensor, so that it lies on huge
// pages as operands do: on pages of 4 KiB a Zen 4 read half as fast, and decoding passed the limit.
float* memory_of(std::int64_t elements) {
  static Tensor memory;
  if (!memory || memory.count() < elements) {
    memory = Tensor();
    memory = Tensor(DType::f32, {elements});
    float* values = memory.data<float>();
    for (std::int64_t i = 0; i < elements; ++i) values[i] = -static_cast<float>(i % 1024) * 0.01f;
  }
  return memory.data<float>();
}

}  // namespace

const char* to_string(Probe probe) noexcept {
  switch (probe) {
    case Probe::fma_f32:
      return "fma_f32";
    case Probe::dot_bf16:
      return "dot_bf16";
    case Probe::amx_bf16:
      return "amx_bf16";
    case Probe::exponential:
      return "exponential";
    case Probe::exponential_16:
      return "exponential_16";
    case Probe::tanh:
      return "tanh";
    case Probe::read:
      return "read";
    case Probe::update:
      return "update";
    case Probe::dot_int8:
      return "dot_int8";
  }
  return "";
}

const char* unit_of(Probe probe) noexcept {
  if (probe == Probe::read || probe == Probe::update) return "B/s";
  if (probe == Probe::dot_int8) return "operations/s";
  return probe == Probe::fma_f32 || probe == Probe::dot_bf16 || probe == Probe::amx_bf16 ? "FLOP/s"
                                                                                         : "elements/s";
}

std::string absence_of(Probe probe) {
  const char* reason = probe == Probe::amx_bf16                      ? kernels::amx_absence()
                       : probe == Probe::dot_bf16                    ? kernels::dot_absence()
                       : probe == Probe::exponential_16              ? kernels::avx512_absence()
                       : probe == Probe::dot_int8 && !cpu_has_avx2() ? "this CPU has no AVX2"
                                                                     : nullptr;
  return reason ? reason : "";
}

Probe best_bf16_products() {
  for (const Probe probe : {Probe::amx_bf16, Probe::dot_bf16}) {
    if (absence_of(probe).empty()) return probe;
  }
  return Probe::fma_f32;
}

Probe best_int8_products() {
  return absence_of(Probe::dot_int8).empty() ? Probe::dot_int8 : Probe::fma_f32;
}

double measure(Probe probe, const ProbeOptions& options) {
  if (!absence_of(probe).empty()) return 0.0;
  const bool reads = probe == Probe::read || probe == Probe::update;
  // Threads that share a core run in turns, and the sum of the rates of their turns is none of the machine's.
  const int threads = std::min(options.threads, usable_cores());
  const std::int64_t elements =
      reads ? std::max<std::int64_t>(128, options.footprint / (4 * threads) / 128 * 128) : in_l1;
  float* memory = memory_of(elements * threads);
  std::vector<double> rates(static_cast<std::size_t>(threads));
  std::atomic<int> waiting{threads};
  const auto body = [&](int thread) {
    Part part{memory + thread * elements, elements, 0};
    step(probe, part);
    waiting.fetch_sub(1);
    while (waiting.load() > 0) std::this_thread::yield();
    rates[static_cast<std::size_t>(thread)] = rate(probe, options.seconds, part);
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(body, thread);
  body(0);
  for (std::thread& thread : others) thread.join();
  double sum = 0.0;
  for (const double each : rates) sum += each;
  return sum;
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return {};
}

}  // namespace fovea::bench
#endif
