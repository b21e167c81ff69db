// Helpers for rows of numbers and for pieces of a workspace, which every family of kernels needs.
#if defined(FOVEA_SIMD_MEMORY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_SIMD_MEMORY_INL_H_
#undef FOVEA_SIMD_MEMORY_INL_H_
#else
#define FOVEA_SIMD_MEMORY_INL_H_
#endif

#include <cstddef>
#include <utility>

#include "core/cpu.h"
#include "kernels/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// Cuts a workspace into pieces that are aligned to 64 bytes. With a null base it only counts the bytes.
class Carve {
 public:
  explicit Carve(std::byte* base) : base_(base) {}
  template <class T>
  HWY_INLINE T* Take(int64_t count) {
    T* piece = reinterpret_cast<T*>(base_ ? base_ + used_ : nullptr);
    used_ += (static_cast<size_t>(count) * sizeof(T) + 63) / 64 * 64;
    return piece;
  }
  size_t Used() const { return used_; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

/// The bytes from a thread's workspace to that of the next one. A thread that reads through the end of its
/// workspace makes the processor fetch lines behind it. Where the next thread writes those, and cores do not
/// share a cache, each line moves from one core to the other and back. With 8 KiB between them, forward of
/// GLA of width 128 took 6.0 or 7.3 ms, and takes 5.5 with 64 KiB.
inline size_t FromThreadToThread(size_t bytes) {
  return bytes + 65536;
}

/// Asked once, since every line that is fetched depends on it.
inline const bool kFetchesIntoFirstLevel = cpu_prefetches_into_first_level();
/// Fetches the line at `p` for reading, into the second-level cache. On a Zen 4 only some 24 lines at a time
/// can be on their way into the first level, and fetches into it take the places of loads. One core decoded
/// 32,768 keys of 8 heads of 128 in 23.9 ms (f32) and 10.0 (bf16) with those, and in 11.8 and 6.5 with these.
/// In pages of 64, bf16 took 15.8 ms and takes 7.8. A Zen 5 has more of these places, and there fetches into
/// the first level are faster (docs/performance.md).
HWY_INLINE void FetchLine(const void* p) {
#if HWY_ARCH_X86
  // Assembly, since GCC drops calls of functions and lambdas that do nothing but fetch.
  if (kFetchesIntoFirstLevel)
    asm volatile("prefetcht0 %0" : : "m"(*static_cast<const char*>(p)));
  else
    asm volatile("prefetcht1 %0" : : "m"(*static_cast<const char*>(p)));
#else
  __builtin_prefetch(p, 0, 2);
#endif
}

/// Fetches the line kOffset bytes behind `p`, with the offset in the instruction. With an operand in memory
/// GCC computes the address of each line before it asks for the level. Between products, where registers are
/// few, it keeps these addresses in vector registers: two moves a line, by the units of the products.
template <int kOffset, bool kIntoFirstLevel>
HWY_INLINE void FetchAt(const char* p) {
  if constexpr (kIntoFirstLevel)
    asm volatile("prefetcht0 %c1(%0)" : : "r"(p), "i"(kOffset));
  else
    asm volatile("prefetcht1 %c1(%0)" : : "r"(p), "i"(kOffset));
}

/// Where lines are fetched to, for loops that ask before they begin.
enum class FetchInto : uint8_t { first_level, second_level };
/// FetchLine for kLines lines that lie side by side, without a question.
template <FetchInto kInto, int kLines>
HWY_INLINE void FetchLinesInto(const void* p) {
  const char* line = static_cast<const char*>(p);
#if HWY_ARCH_X86
  const auto fetch = [&]<int... n>(std::integer_sequence<int, n...>) HWY_ATTR {
    (FetchAt<64 * n, kInto == FetchInto::first_level>(line), ...);
  };
  fetch(std::make_integer_sequence<int, kLines>());
#else
  _Pragma("GCC unroll 16") for (int i = 0; i < kLines; ++i) FetchLine(line + 64 * i);
#endif
}
/// FetchLine for kLines lines that lie side by side. The level is asked for once, and nothing loops.
template <int kLines>
HWY_INLINE void FetchLines(const void* p) {
  if (kFetchesIntoFirstLevel)
    FetchLinesInto<FetchInto::first_level, kLines>(p);
  else
    FetchLinesInto<FetchInto::second_level, kLines>(p);
}

template <class T>
HWY_INLINE void Fill(T value, int64_t n, T* x) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto values = hn::Set(d, value);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(values, d, x + i);
  for (; i < n; ++i) x[i] = value;
}
template <class T>
HWY_INLINE void Copy(const T* from, int64_t n, T* to) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
  for (; i < n; ++i) to[i] = from[i];
}

template <class T>
HWY_INLINE void MultiplyInto(const T* factors, int64_t n, T* x) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t j = 0;
  for (; j + lanes <= n; j += lanes)
    hn::StoreU(hn::Mul(hn::LoadU(d, x + j), hn::LoadU(d, factors + j)), d, x + j);
  for (; j < n; ++j) x[j] *= factors[j];
}

/// The maximum; -infinity if n is 0.
template <class T>
HWY_INLINE T MaximumOf(const T* x, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto best = hn::Set(d, static_cast<T>(-HUGE_VAL));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) best = hn::Max(best, hn::LoadU(d, x + i));
  T result = hn::GetLane(hn::MaxOfLanes(d, best));
  for (; i < n; ++i) result = x[i] > result ? x[i] : result;
  return result;
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif
