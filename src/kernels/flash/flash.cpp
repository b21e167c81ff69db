// The fused kernels, compiled once for each instruction set by Highway's foreach_target. Candidates name the
// code of each instruction set, instead of Highway's own dispatch, so that FOVEA_ISA can force one.
#include "kernels/flash/flash.h"

#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/flash/flash.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/flash/split-inl.h"
#include "kernels/flash/whole_rows_backward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

// Candidates take a bare pointer to memory: the members of a span are templates, which must not be compiled
// here.

/// SplitForward on keys and values in the type that the caller stores.
template <class T>
void SplitStored(const Problem<T>& p, const ForwardOutputs<T>& out, Executor& executor, std::byte* memory) {
  if constexpr (sizeof(T) == 4) {
    const auto as = [](const Operand<const uint16_t*>& x, auto stored) {
      using S = decltype(stored);
      return Operand<const S*>{reinterpret_cast<const S*>(x.data), x.batch_stride, x.head_stride,
                               x.row_stride};
    };
    const bool cached = p.cached.runs != nullptr;
    if ((p.stored_key.data || cached) && p.stored_dtype == DType::bf16)
      return SplitForward(p, out, as(p.stored_key, hwy::bfloat16_t()), as(p.stored_value, hwy::bfloat16_t()),
                          executor, memory);
    if (p.stored_key.data || (cached && p.stored_dtype == DType::f16))
      return SplitForward(p, out, as(p.stored_key, hwy::float16_t()), as(p.stored_value, hwy::float16_t()),
                          executor, memory);
  }
  SplitForward(p, out, p.key, p.value, executor, memory);
}

/// SplitTogether on keys and values in the type that the cache has.
template <class T>
void SplitStoredTogether(const Together<T>& t, Executor& executor, std::byte* memory) {
  if constexpr (sizeof(T) == 4) {
    const DType stored = t.problems[0]->stored_dtype;
    if (stored == DType::bf16) return SplitTogether<T, hwy::bfloat16_t>(t, executor, memory);
    if (stored == DType::f16) return SplitTogether<T, hwy::float16_t>(t, executor, memory);
  }
  SplitTogether<T, T>(t, executor, memory);
}

/// Weights need rows whose keys are not split into chunks, and asking for weights must change no bit of the
/// output. So such calls run twice, once for each.
template <class T>
void TiledOutputs(const Problem<T>& p, const ForwardOutputs<T>& out, Executor& executor, std::byte* memory) {
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
constexpr FlashCode<T> kFlashCode{
    .split = {.forward_bytes = SplitForwardBytes<T>,
              .forward = SplitStored<T>,
              .together_bytes = SplitTogetherBytes<T>,
              .forward_together = SplitStoredTogether<T>},
    .tiled = {TiledForwardBytes<T>, TiledOutputs<T>, TiledBackwardBytes<T>, TiledBackward<T>},
    .additive = {DirectForwardBytes<AdditivePath::exponential, T>,
                 DirectForward<AdditivePath::exponential, T>,
                 DirectBackwardBytes<AdditivePath::exponential, T>,
                 DirectBackward<AdditivePath::exponential, T>},
    .direct = {DirectForwardBytes<AdditivePath::tanh, T>, DirectForward<AdditivePath::tanh, T>,
               DirectBackwardBytes<AdditivePath::tanh, T>, DirectBackward<AdditivePath::tanh, T>},
    .tiled_rows = {RowsForwardBytes<true, T>, RowsForward<true, T>, RowsBackwardBytes<true, T>,
                   RowsBackward<true, T>},
    .rows = {RowsForwardBytes<false, T>, RowsForward<false, T>, RowsBackwardBytes<false, T>,
             RowsBackward<false, T>}};

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/isas.h"

namespace fovea::kernels {
namespace {

const char* refuse_direct(const Request& r) {
  return refuse_whole_row(r);
}
const char* refuse_additive(const Request& r) {
  if (const char* reason = refuse_whole_row(r)) return reason;
  return r.score == ScoreKind::additive ? nullptr : "its score is not additive";
}
// A cached row must not depend on the queries beside it. So all calls of few queries compute it alike.
QueryCounts additive_best_for(const Request& r) {
  const std::int64_t first = (least_additive_queries + r.heads_of_a_key - 1) / r.heads_of_a_key;
  return {.first = is_cached(r.duty) && first > 1 ? most_split_queries + 1 : first};
}
const char* refuse_tiled(const Request& r) {
  if (const char* reason = refuse_other_scores(r)) return reason;
  return refuse_whole_row(r);
}
const char* refuse_split(const Request& r) {
  if (is_backward(r.duty)) return "it has no backward";
  if (r.duty != Duty::forward && r.duty != Duty::forward_cached) return "it returns no weights";
  return refuse_tiled(r);
}
// In backward these algorithms recompute a row from its keys, so a call must bring all keys of the row. If
// whole rows are needed for another reason, the plan or the call itself refuses parts.
const char* refuse_rows(const Request& r) {
  const bool parts = is_backward(r.duty) && r.parts_of_keys && !r.whole_row;
  return parts ? "a call may bring only some of the keys of a row" : nullptr;
}
const char* refuse_tiled_rows(const Request& r) {
  if (const char* reason = refuse_other_scores(r)) return reason;
  return refuse_rows(r);
}

std::int64_t most_split(const Request& r) {
  return size_of(r.dtype) == 2 ? most_split_16_bit : most_split_queries;
}
In16Bits split_in_16_bits(const Request& r) {
  return size_of(r.dtype) == 2 && !r.keys_mapped ? In16Bits::keys_and_values : In16Bits::nothing;
}

void add_candidates(const Isa& isa, const FlashCode<float>& f32, const FlashCode<double>& f64,
                    std::vector<Candidate>& to) {
  const auto add = [&](const char* algorithm, Candidate candidate) {
    candidate.name = std::string(isa.name) + " " + algorithm;
    candidate.isa = &isa;
    to.push_back(std::move(candidate));
  };
  add("split", {.refuse = refuse_split,
                .best_for = [](const Request& r) { return QueryCounts{.last = most_split(r)}; },
                .in_16_bits = split_in_16_bits,
                .reads_cache = true,
                .tile_keys = tile_keys,
                .f32 = f32.split,
                .f64 = f64.split});
  add("tiled",
      {.refuse = refuse_tiled,
       .best_for =
           [](const Request& r) {
             return QueryCounts{.first = (is_backward(r.duty) ? most_direct_queries : most_split(r)) + 1};
           },
       .reads_cache = true,
       .block_queries = tiled_queries,
       .tile_keys = tile_keys,
       .f32 = f32.tiled,
       .f64 = f64.tiled});
  add("additive", {.refuse = refuse_additive,
                   .best_for = additive_best_for,
                   .block_queries = direct_queries,
                   .tile_keys = tile_keys,
                   .f32 = f32.additive,
                   .f64 = f64.additive});
  add("direct", {.refuse = refuse_direct,
                 .block_queries = direct_queries,
                 .tile_keys = tile_keys,
                 .f32 = f32.direct,
                 .f64 = f64.direct});
  add("tiled rows", {.refuse = refuse_tiled_rows,
                     .best_for = [](const Request&) { return QueryCounts{.first = most_direct_queries + 1}; },
                     .whole_rows = true,
                     .block_queries = tiled_queries,
                     .tile_keys = tile_keys,
                     .f32 = f32.tiled_rows,
                     .f64 = f64.tiled_rows});
  add("rows", {.refuse = refuse_rows,
               .whole_rows = true,
               .block_queries = direct_queries,
               .tile_keys = tile_keys,
               .f32 = f32.rows,
               .f64 = f64.rows});
}

}  // namespace

std::vector<Candidate> flash_candidates() {
  std::vector<Candidate> list;
#define FOVEA_ADD(isa, target) \
  add_candidates(isa, target::kFlashCode<float>, target::kFlashCode<double>, list);
  FOVEA_FOR_EACH_ISA(FOVEA_ADD)
#undef FOVEA_ADD
  return list;
}

}  // namespace fovea::kernels
#endif
