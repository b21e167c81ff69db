// The candidates of the tile kernels: one loop (tiles/forward-inl.h, tiles/backward-inl.h) over three
// engines. With AMX and with AVX512_BF16 the vectors around the products are AVX-512's. The portable engine
// is for checking the loop on machines that have neither, and is only chosen when it is named.
#define FOVEA_WITHOUT_AVX2  // it would compile for nothing
#include "kernels/tiles/tiles.h"

#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/tiles/tiles.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/flash/split_together-inl.h"
#include "kernels/tiles/backward-inl.h"
#include "kernels/tiles/forward_call-inl.h"
#include "kernels/tiles/many_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

template <const TileEngine* (*kEngine)()>
void TilesForwardBy(const Problem<float>& p, const ForwardOutputs<float>& out, Executor& executor,
                    std::byte* memory) {
  TilesForward(p, out, *kEngine(), executor, memory);
}
template <const TileEngine* (*kEngine)()>
void TilesBackwardBy(const Problem<float>& p, const BackwardProblem<float>& g, Executor& executor,
                     std::byte* memory) {
  TilesBackward(p, g, *kEngine(), executor, memory);
}
template <const TileEngine* (*kEngine)()>
constexpr Code<float> kTilesCode{.forward_bytes = TilesForwardBytes,
                                 .forward = TilesForwardBy<kEngine>,
                                 .backward_bytes = TilesBackwardBytes,
                                 .backward = TilesBackwardBy<kEngine>};

const TileEngine* PortableEngine() {
  static constexpr TileEngine engine{PortableProduct, nullptr, nullptr};
  return &engine;
}

#if HWY_TARGET == HWY_AVX3
/// Decodes keys and values as they are stored; or widened ones, if the call needs them so for its weights.
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
  p.stored_key.data || p.cached.runs ? decode(p.stored_key, p.stored_value, DotBf16())
                                     : decode(p.key, p.value, WidenedBf16());
}
constexpr Code<float> kDecodeCode{.forward_bytes = SplitForwardBytes<float>,
                                  .forward = DecodeDots,
                                  .together_bytes = SplitTogetherBytes<float>,
                                  .forward_together = SplitTogether<float, DotBf16>};
#endif

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/isas.h"

namespace fovea::kernels {
namespace {

const char* refuse_inexact(const Request& r) {
  if (const char* reason = refuse_other_scores(r)) return reason;
  if (r.dtype == DType::f64) return "f64";
  if (r.dtype == DType::f32 && r.precision == Precision::full) return "f32 at Precision::full";
  return nullptr;
}

// Refusals that all algorithms of this file share.
const char* refuse_unless_softmax(const Request& r) {
  if (const char* reason = refuse_inexact(r)) return reason;
  if ((r.queries_mapped || r.keys_mapped) && size_of(r.dtype) == 2) return "projected operands are f32";
  if (const char* reason = refuse_whole_row(r)) return reason;
  if (r.normalizer != NormalizerKind::softmax) return "its normaliser is not softmax";
  if (!r.mods && !(r.scale >= 1e-30)) return "a scale that is not positive";
  if (!r.values) return "there are no values";
  return nullptr;
}
// For an engine whose products of bf16 are so much faster than those of f32 that several of them are faster,
// too.
const char* refuse_tiles(const Request& r) {
  if (const char* reason = refuse_unless_softmax(r)) return reason;
  if (r.duty == Duty::weights_alone) return "weights without an output";
  if (r.duty == Duty::weights_cached) return "weights of keys in a cache";
  // Products of several terms are added to what is gathered in blocks, whose borders depend on the other
  // rows.
  return is_cached(r.duty) && r.dtype != DType::bf16 ? "it reads caches of bf16 alone" : nullptr;
}
In16Bits tiles_in_16_bits(const Request& r) {
  return size_of(r.dtype) == 2 ? In16Bits::everything : In16Bits::nothing;
}

// With fewer queries the operands are not packed. For f32 in bf16 terms the count is the same forward and
// backward: backward must recompute the weights from the same scores as forward.
QueryCounts tiles_best_for(const Request& r, std::int64_t most_forward) {
  if (is_cached(r.duty)) return {.first = most_split_16_bit + 1};  // see decode_best_for
  const bool backward = is_backward(r.duty) && size_of(r.dtype) == 2;
  return {.first = (backward ? most_direct_queries : most_forward) + 1};
}

[[maybe_unused]] Candidate tiles_candidate(const char* name, const Isa& isa, const Code<float>& code) {
  return {.name = name,
          .isa = &isa,
          .refuse = refuse_tiles,
          .best_for = [](const Request& r) { return tiles_best_for(r, most_split_queries); },
          .in_16_bits = tiles_in_16_bits,
          .reads_cache = true,
          .block_queries = 64,
          .tile_keys = 256,
          .f32 = code};
}

#if HWY_ARCH_X86 && (HWY_TARGETS & HWY_AVX3)
const char* refuse_one_term(const Request& r) {
  if (const char* reason = refuse_tiles(r)) return reason;
  const bool one_term = r.dtype == DType::bf16 || (r.dtype == DType::f32 && r.precision == Precision::medium);
  return one_term ? nullptr : "several products of bf16 cost more here than one of f32";
}
const char* refuse_decode(const Request& r) {
  if (is_backward(r.duty)) return "it has no backward";
  if (const char* reason = refuse_unless_softmax(r)) return reason;
  if (r.duty != Duty::forward && r.duty != Duty::forward_cached) return "it returns no weights";
  if (r.mods) return "score mods";
  if (r.dropout) return "dropout";
  return r.dtype == DType::bf16 ? nullptr : "operands that are not bf16";
}
// For the engines that have decode beside them.
QueryCounts after_decoding(const Request& r) {
  return tiles_best_for(r, r.dtype == DType::bf16 ? most_decode_queries : most_split_queries);
}
// For a cached call the kernel may depend only on whether the entry has at most most_split_16_bit queries:
// other counts must not change a row's bits.
QueryCounts decode_best_for(const Request& r) {
  return {.last = is_cached(r.duty) ? most_split_16_bit : most_decode_queries};
}

#endif

#if !HWY_ARCH_X86 || (HWY_TARGETS & HWY_SSE4)
const Isa portable_isa{
    .name = "tiles", .base = portable_base(), .absence = []() -> const char* { return nullptr; }};
#endif

}  // namespace

std::vector<Candidate> tile_candidates() {
  std::vector<Candidate> list;
#if HWY_ARCH_X86 && (HWY_TARGETS & HWY_AVX3)
  list.push_back(tiles_candidate("amx tiles", amx_isa, N_AVX3::kTilesCode<amx_engine>));
  list.back().best_for = after_decoding;
  list.push_back(tiles_candidate("avx512bf16 tiles", avx512bf16_isa, N_AVX3::kTilesCode<dot_engine>));
  list.back().refuse = refuse_one_term;
  list.back().best_for = after_decoding;
  list.push_back({.name = "avx512bf16 decode",
                  .isa = &avx512bf16_isa,
                  .refuse = refuse_decode,
                  .best_for = decode_best_for,
                  .in_16_bits = [](const Request&) { return In16Bits::keys_and_values; },
                  .reads_cache = true,
                  .tile_keys = tile_keys,
                  .cached_chunk_keys = fixed_chunk_keys,
                  .f32 = N_AVX3::kDecodeCode});
#endif
  return list;
}

std::vector<Candidate> portable_tile_candidates() {
#if !HWY_ARCH_X86
  return {tiles_candidate("portable tiles", portable_isa,
                          HWY_NAMESPACE::kTilesCode<HWY_NAMESPACE::PortableEngine>)};
#elif HWY_TARGETS & HWY_SSE4
  return {tiles_candidate("portable tiles", portable_isa, N_SSE4::kTilesCode<N_SSE4::PortableEngine>)};
#else
  return {};
#endif
}

}  // namespace fovea::kernels
#endif
