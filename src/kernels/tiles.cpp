// The tile kernels' tables: one walk (tiles-inl.h, tiles_backward-inl.h) over three engines. With AMX and
// with AVX512_BF16 the vectors around the products are AVX-512's; the portable engine is for checking the
// walk where neither is to be had, and is never chosen unasked.
#include "kernels/tiles.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/tiles.cpp"
// AVX-512 and the baseline; AVX2 would compile for nothing.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_AVX2 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/tiles_backward-inl.h"
#include "kernels/tiles_decode-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

size_t TilesForwardWorkspace(const Problem<float>& p, int threads) {
  return TilesForwardBytes(p, threads);
}
size_t TilesBackwardWorkspace(const Problem<float>& p, int threads) {
  return TilesBackwardBytes(p, threads);
}
// No engine: the portable one.
void TilesForward32(const Problem<float>& p, const ForwardOutputs<float>& out, const TileEngine* engine,
                    Executor& executor, std::byte* memory) {
  const TileEngine portable{PortableProduct, nullptr, nullptr};
  TilesForward(p, out, engine ? *engine : portable, executor, memory);
}
void TilesBackward32(const Problem<float>& p, const BackwardProblem<float>& g, const TileEngine* engine,
                     Executor& executor, std::byte* memory) {
  const TileEngine portable{PortableProduct, nullptr, nullptr};
  TilesBackward(p, g, engine ? *engine : portable, executor, memory);
}
/// A few queries of bf16.
#if HWY_TARGET == HWY_AVX3
void DecodeDots(const Problem<float>& p, const ForwardOutputs<float>& out, Executor& executor,
                std::byte* memory) {
  const auto decode = [&](const auto& keys, const auto& values, auto element) {
    using S = decltype(element);
    const auto as = [](const auto& x) {
      return Operand<const S*>{reinterpret_cast<const S*>(x.data), x.batch_stride, x.head_stride,
                               x.row_stride};
    };
    SplitForward(p, out, as(keys), as(values), executor, memory);
  };
  p.stored_key.data ? decode(p.stored_key, p.stored_value, DotBf16()) : decode(p.key, p.value, WidenedBf16());
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <string_view>
#include <vector>

namespace fovea::kernels {
namespace {

const char* refusal(const Request& request, bool splits) {
  if (request.score != ScoreKind::dot) return "its score is no product of queries and keys";
  if (request.dtype == DType::f64) return "f64";
  if (request.dtype == DType::f32 && request.precision == Precision::full) return "f32 at Precision::full";
  const bool one_term =
      request.dtype == DType::bf16 || (request.dtype == DType::f32 && request.precision == Precision::medium);
  if (!splits && !one_term) return "several products of bf16 cost more here than one of f32";
  if (request.projected && size_of(request.dtype) == 2) return "projected operands are f32";
  if (request.mods) return "score mods";
  if (request.whole_row) return "whole rows";
  if (request.dropout) return "dropout";
  if (request.normalizer != NormalizerKind::softmax) return "its normaliser is not softmax";
  if (!(request.scale >= 1e-30)) return "a scale that is not positive";
  return nullptr;
}

// Few queries of bf16 are decoded by dot products.
using Decode = void (*)(const Problem<float>&, const ForwardOutputs<float>&, Executor&, std::byte*);
std::int64_t few_queries(DType dtype, Decode decode) {
  return decode && dtype == DType::bf16 && !dot_absence() ? most_split_dots : most_split_queries;
}
bool decodes(const Problem<float>& p, Decode decode) {
  return decode && p.operands == DType::bf16 && p.query_len <= few_queries(p.operands, decode) &&
         p.key_len > 0 && p.value_dim > 0 && !p.whole_row && !dot_absence();
}
// Few others are read as they lie by the flash kernel.
bool takes(const Problem<float>& p, Decode decode) {
  return !p.whole_row && p.query_len > most_split_queries && p.key_len > 0 && p.value_dim > 0 &&
         !decodes(p, decode);
}
// Of f32 in bf16 terms the weights are to be made of the scores that forward made them of.
bool takes_backward(const Problem<float>& p) {
  const std::int64_t most = p.operands == DType::f32 ? most_split_queries : most_direct_queries;
  return !p.whole_row && p.query_len > most && p.key_len > 0 && p.value_dim > 0;
}

/// Null in builds for one machine, which leave out the targets below its own.
const KernelTable* flash_kernel(std::string_view isa) {
  for (const KernelTable* table : flash_kernels()) {
    if (table->isa == isa) return table;
  }
  return nullptr;
}

// One table over the walk of TARGET. Few queries of bf16 are DECODE's business; what else `takes` says no to,
// and weights, that of BASE.
#define FOVEA_TILE_TABLE(FUNCTION, TARGET, NAME, ISA, ENGINE, ABSENCE, SPLITS, BASE, DECODE)              \
  const KernelTable& FUNCTION() {                                                                         \
    static const KernelTable& base = *flash_kernel(BASE);                                                 \
    static const KernelTable table{                                                                       \
        .name = NAME,                                                                                     \
        .isa = ISA,                                                                                       \
        .forward_workspace =                                                                              \
            [](const Problem<float>& p, int threads) {                                                    \
              const std::size_t few = base.forward_workspace(p, threads);                                 \
              return takes(p, DECODE) ? std::max(few, TARGET::TilesForwardWorkspace(p, threads)) : few;   \
            },                                                                                            \
        .backward_workspace =                                                                             \
            [](const Problem<float>& p, int threads) {                                                    \
              const std::size_t few = base.backward_workspace(p, threads);                                \
              return takes_backward(p) ? std::max(few, TARGET::TilesBackwardWorkspace(p, threads)) : few; \
            },                                                                                            \
        .forward_workspace_f64 = base.forward_workspace_f64,                                              \
        .backward_workspace_f64 = base.backward_workspace_f64,                                            \
        .forward =                                                                                        \
            [](const Problem<float>& p, const ForwardOutputs<float>& out, Executor& e,                    \
               std::span<std::byte> m) {                                                                  \
              const Decode decode = DECODE;                                                               \
              const bool few = decodes(p, decode);                                                        \
              if (!(few || takes(p, decode)) || !(out.output.data || out.stored_output.data))             \
                return base.forward(p, out, e, m);                                                        \
              ForwardOutputs<float> weights = out, rest = out;                                            \
              weights.output.data = nullptr;                                                              \
              weights.log_sum_exp = nullptr;                                                              \
              rest.weights.data = nullptr;                                                                \
              if (out.weights.data) base.forward(p, weights, e, m);                                       \
              few ? decode(p, rest, e, m.data()) : TARGET::TilesForward32(p, rest, ENGINE, e, m.data());  \
            },                                                                                            \
        .backward =                                                                                       \
            [](const Problem<float>& p, const BackwardProblem<float>& g, Executor& e,                     \
               std::span<std::byte> m) {                                                                  \
              if (!takes_backward(p)) return base.backward(p, g, e, m);                                   \
              TARGET::TilesBackward32(p, g, ENGINE, e, m.data());                                         \
            },                                                                                            \
        .forward_f64 = base.forward_f64,                                                                  \
        .backward_f64 = base.backward_f64,                                                                \
        .reads_stored =                                                                                   \
            [](const Problem<float>& p) {                                                                 \
              return decodes(p, DECODE) ? Stored::keys_and_values                                         \
                     : takes(p, DECODE) ? Stored::all                                                     \
                                        : base.reads_stored(p);                                           \
            },                                                                                            \
        .absence = ABSENCE,                                                                               \
        .refuse = [](const Request& request) { return refusal(request, SPLITS); },                        \
        .otherwise = &base,                                                                               \
        .block_queries = 64,                                                                              \
        .block_keys = 256,                                                                                \
        .few_queries = [](DType dtype) { return few_queries(dtype, DECODE); }};                           \
    return table;                                                                                         \
  }

const char* never_absent() {
  return nullptr;
}

#if HWY_ARCH_X86
#if HWY_TARGETS & HWY_AVX3
FOVEA_TILE_TABLE(amx_table, N_AVX3, "amx tiles", "amx", amx_engine(), amx_absence, true, "avx512",
                 N_AVX3::DecodeDots)
FOVEA_TILE_TABLE(dot_table, N_AVX3, "avx512 bf16 dots", "avx512bf16", dot_engine(), dot_absence, false,
                 "avx512", N_AVX3::DecodeDots)
#endif
#if HWY_TARGETS & HWY_SSE4
FOVEA_TILE_TABLE(portable_table, N_SSE4, "portable tiles", "tiles", nullptr, never_absent, true, "baseline",
                 nullptr)
#endif
#else
FOVEA_TILE_TABLE(portable_table, HWY_NAMESPACE, "portable tiles", "tiles", nullptr, never_absent, true,
                 "baseline", nullptr)
#endif
#undef FOVEA_TILE_TABLE

}  // namespace

std::span<const KernelTable* const> tile_kernels() {
  static const std::vector<const KernelTable*> list = [] {
    std::vector<const KernelTable*> all;
#if HWY_ARCH_X86 && (HWY_TARGETS & HWY_AVX3)
    if (flash_kernel("avx512")) all = {&amx_table(), &dot_table()};
#endif
    return all;
  }();
  return list;
}

const KernelTable* portable_tile_kernel() {
#if !HWY_ARCH_X86 || (HWY_TARGETS & HWY_SSE4)
  return flash_kernel("baseline") ? &portable_table() : nullptr;
#else
  return nullptr;
#endif
}

}  // namespace fovea::kernels
#endif
