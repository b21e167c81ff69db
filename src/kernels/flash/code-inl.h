// The seven algorithms of flash.h for one element type, compiled for one instruction set. A file for each
// type includes this one, because both types in one file would take a minute and a half to compile after a
// change.
#if defined(FOVEA_FLASH_CODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_FLASH_CODE_INL_H_
#undef FOVEA_FLASH_CODE_INL_H_
#else
#define FOVEA_FLASH_CODE_INL_H_
#endif

#include "kernels/flash/flash.h"
#include "kernels/flash/short-inl.h"
#include "kernels/flash/split_together-inl.h"
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
    const auto as = [](const auto& x, auto stored) {
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
    if (p.operand_dtype == DType::bf16)
      return SplitForward(p, out, as(p.key, F32FromBf16()), as(p.value, F32FromBf16()), executor, memory);
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
    .few = {ShortForwardBytes<T>, ShortForward<T>, ShortBackwardBytes<T>, ShortBackward<T>},
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

#endif
