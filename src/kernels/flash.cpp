// The fused kernels, compiled once an ISA by Highway's foreach_target. Every candidate is chosen by name
// through its table, not by Highway's own dispatch, so that FOVEA_ISA can force one.
#include "kernels/flash.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/flash.cpp"
// Three x86 targets: SSE4 as the baseline, AVX2, AVX-512. More would compile longer and win nothing on f32.
// On Arm NEON alone: register tiles are arrays of vectors, and a type of SVE has no size to make an array of.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/flash_rows_backward-inl.h"
#include "kernels/flash_split-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// Few queries are not worth packing keys for, and an additive score never is.
template <class T>
HWY_INLINE bool IsDirect(const Problem<T>& p) {
  return p.score != ScoreKind::dot || p.query_len <= most_direct_queries || p.key_len == 0;
}

/// A few queries of a dot-like score under a normaliser whose states merge: flash_split-inl.h.
template <class T>
HWY_INLINE bool IsSplit(const Problem<T>& p) {
  return p.score == ScoreKind::dot && p.query_len <= MostSplit(p) && p.key_len > 0 && !p.whole_row;
}

template <class T>
size_t ForwardBytes(const Problem<T>& p, int threads) {
  if (p.whole_row) {
    const size_t direct =
        RowsForwardBytes<false>(p, threads);  // chosen rows are, however many queries there are
    const size_t tiled = IsDirect(p) ? 0 : RowsForwardBytes<true>(p, threads);
    return direct > tiled ? direct : tiled;
  }
  // A smaller call may be direct or split where this one is tiled.
  const size_t direct = DirectForwardBytes(p, threads), split = SplitForwardBytes(p, threads),
               tiled = IsDirect(p) ? 0 : TiledForwardBytes(p, threads);
  const size_t few = direct > split ? direct : split;
  return few > tiled ? few : tiled;
}
template <class T>
size_t BackwardBytes(const Problem<T>& p, int threads) {
  const size_t direct = p.whole_row ? RowsBackwardBytes<false>(p, threads) : DirectBackwardBytes(p, threads);
  if (IsDirect(p)) return direct;
  const size_t tiled = p.whole_row ? RowsBackwardBytes<true>(p, threads) : TiledBackwardBytes(p, threads);
  return direct > tiled ? direct : tiled;
}
/// Keys and values in the 16 bits they are stored in.
HWY_NOINLINE void StoredForward(const Problem<float>& p, const ForwardOutputs<float>& out, Executor& executor,
                                std::byte* memory) {
  const auto as = [](const Operand<const uint16_t*>& x, auto stored) {
    using S = decltype(stored);
    return Operand<const S*>{reinterpret_cast<const S*>(x.data), x.batch_stride, x.head_stride, x.row_stride};
  };
  if (p.stored == DType::bf16) {
    return SplitForward(p, out, as(p.stored_key, hwy::bfloat16_t()), as(p.stored_value, hwy::bfloat16_t()),
                        executor, memory);
  }
  SplitForward(p, out, as(p.stored_key, hwy::float16_t()), as(p.stored_value, hwy::float16_t()), executor,
               memory);
}

template <class T>
void Forward(const Problem<T>& p, const ForwardOutputs<T>& out, Executor& executor, std::byte* memory) {
  if (p.whole_row) {
    const bool direct = IsDirect(p) || (!out.output.data && list_size(out.weight_rows) > 0);
    return direct ? RowsForward<false>(p, out, executor, memory)
                  : RowsForward<true>(p, out, executor, memory);
  }
  if (IsSplit(p)) {
    // Weights come from a pass of their own, so that asking for them changes no bit of the output.
    ForwardOutputs<T> weights = out, rest = out;
    weights.output.data = nullptr;
    weights.log_sum_exp = nullptr;
    rest.weights.data = nullptr;
    if (out.weights.data) DirectForward(p, weights, executor, memory);
    if (!rest.output.data && !rest.log_sum_exp) return;
    if constexpr (sizeof(T) == 4) {
      if (p.stored_key.data) return StoredForward(p, rest, executor, memory);
    }
    return SplitForward(p, rest, p.key, p.value, executor, memory);
  }
  if (IsDirect(p)) return DirectForward(p, out, executor, memory);
  if (!out.weights.data || !out.output.data || TiledChunks(p).count == 1)
    return TiledForward(p, out, executor, memory);
  ForwardOutputs<T> weights = out, rest = out;
  weights.output.data = nullptr;
  weights.log_sum_exp = nullptr;
  rest.weights.data = nullptr;
  TiledForward(p, weights, executor, memory);
  TiledForward(p, rest, executor, memory);
}
template <class T>
void Backward(const Problem<T>& p, const BackwardProblem<T>& g, Executor& executor, std::byte* memory) {
  if (p.whole_row)
    return IsDirect(p) ? RowsBackward<false>(p, g, executor, memory)
                       : RowsBackward<true>(p, g, executor, memory);
  IsDirect(p) ? DirectBackward(p, g, executor, memory) : TiledBackward(p, g, executor, memory);
}

size_t ForwardBytes32(const Problem<float>& p, int threads) {
  return ForwardBytes(p, threads);
}
size_t ForwardBytes64(const Problem<double>& p, int threads) {
  return ForwardBytes(p, threads);
}
size_t BackwardBytes32(const Problem<float>& p, int threads) {
  return BackwardBytes(p, threads);
}
size_t BackwardBytes64(const Problem<double>& p, int threads) {
  return BackwardBytes(p, threads);
}
void Forward32(const Problem<float>& p, const ForwardOutputs<float>& out, Executor& e, std::byte* memory) {
  Forward(p, out, e, memory);
}
void Forward64(const Problem<double>& p, const ForwardOutputs<double>& out, Executor& e, std::byte* memory) {
  Forward(p, out, e, memory);
}
void Backward32(const Problem<float>& p, const BackwardProblem<float>& g, Executor& e, std::byte* memory) {
  Backward(p, g, e, memory);
}
void Backward64(const Problem<double>& p, const BackwardProblem<double>& g, Executor& e, std::byte* memory) {
  Backward(p, g, e, memory);
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <array>

namespace fovea::kernels {
namespace {

std::int64_t few_queries(DType dtype) {
  return size_of(dtype) == 2 ? most_split_16_bit : most_split_queries;
}

Stored reads_stored(const Problem<float>& p) {
  return p.score == ScoreKind::dot && p.query_len <= most_split_16_bit && p.key_len > 0 && !p.whole_row
             ? Stored::keys_and_values
             : Stored::none;
}

#if HWY_ARCH_X86
bool supports(std::int64_t target) {
  return (hwy::SupportedTargets() & target) != 0;
}
#endif

const char* absence_unless(bool supported) {
  return supported ? nullptr : "this CPU lacks the instructions";
}

const char* accepts(const Request&) {
  return nullptr;
}

// The per-ISA entry points take a bare pointer: a span's members are templates, which must not be compiled
// there.
#define FOVEA_TABLE(TARGET, NAME, ISA, SUPPORTED)                                                   \
  const KernelTable& TARGET##_table() {                                                             \
    static const KernelTable table{                                                                 \
        .name = NAME,                                                                               \
        .isa = ISA,                                                                                 \
        .forward_workspace = TARGET::ForwardBytes32,                                                \
        .backward_workspace = TARGET::BackwardBytes32,                                              \
        .forward_workspace_f64 = TARGET::ForwardBytes64,                                            \
        .backward_workspace_f64 = TARGET::BackwardBytes64,                                          \
        .forward = [](const Problem<float>& p, const ForwardOutputs<float>& out, Executor& e,       \
                      std::span<std::byte> m) { TARGET::Forward32(p, out, e, m.data()); },          \
        .backward = [](const Problem<float>& p, const BackwardProblem<float>& g, Executor& e,       \
                       std::span<std::byte> m) { TARGET::Backward32(p, g, e, m.data()); },          \
        .forward_f64 = [](const Problem<double>& p, const ForwardOutputs<double>& out, Executor& e, \
                          std::span<std::byte> m) { TARGET::Forward64(p, out, e, m.data()); },      \
        .backward_f64 = [](const Problem<double>& p, const BackwardProblem<double>& g, Executor& e, \
                           std::span<std::byte> m) { TARGET::Backward64(p, g, e, m.data()); },      \
        .reads_stored = reads_stored,                                                               \
        .absence = [] { return absence_unless(SUPPORTED); },                                        \
        .refuse = accepts,                                                                          \
        .few_queries = few_queries};                                                                \
    return table;                                                                                   \
  }

// A build for one machine (-march=native) leaves out the targets below its own.
#if HWY_ARCH_X86
#if HWY_TARGETS & HWY_AVX3
FOVEA_TABLE(N_AVX3, "avx512 flash", "avx512", supports(HWY_AVX3))
#endif
#if HWY_TARGETS & HWY_AVX2
FOVEA_TABLE(N_AVX2, "avx2 flash", "avx2", supports(HWY_AVX2))
#endif
#if HWY_TARGETS & HWY_SSE4
FOVEA_TABLE(N_SSE4, "baseline flash", "baseline", supports(HWY_SSE4))
#endif
#else
// The one target that the compiler may use everywhere; the last one included. Not asked of Highway, whose
// NEON wants AES as well, which no kernel uses and which a Raspberry Pi 4 lacks.
FOVEA_TABLE(HWY_NAMESPACE, "baseline flash", "baseline", true)
#endif
#undef FOVEA_TABLE

}  // namespace

std::span<const KernelTable* const> flash_kernels() {
#if HWY_ARCH_X86
  static const std::array list {
#if HWY_TARGETS & HWY_AVX3
    &N_AVX3_table(),
#endif
#if HWY_TARGETS & HWY_AVX2
        &N_AVX2_table(),
#endif
#if HWY_TARGETS & HWY_SSE4
        &N_SSE4_table(),
#endif
  };
#else
  static const std::array list{&HWY_NAMESPACE_table()};
#endif
  return list;
}

}  // namespace fovea::kernels
#endif
