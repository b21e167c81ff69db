// What the products of a chunk multiply: numbers, or pairs of bf16 numbers. Two products of a pair are added
// to one sum in f32, so that a sum takes half as many steps.
#if defined(FOVEA_RECURRENCE_ELEMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_RECURRENCE_ELEMENTS_INL_H_
#undef FOVEA_RECURRENCE_ELEMENTS_INL_H_
#else
#define FOVEA_RECURRENCE_ELEMENTS_INL_H_
#endif

#include "kernels/recurrence/chunk-inl.h"
#include "kernels/simd/dots-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// Two numbers that follow each other in a sum, the first in the lower half.
struct Bf16Pair {
  uint32_t bits;
};

/// The numbers of an element.
template <class X>
constexpr int64_t kNumbers = hwy::IsSame<X, Bf16Pair>() ? 2 : 1;
/// The elements that hold `numbers` numbers.
template <class X>
HWY_INLINE int64_t ElementsOf(int64_t numbers) {
  return (numbers + kNumbers<X> - 1) / kNumbers<X>;
}

template <class D, class T>
HWY_INLINE hn::Vec<D> LoadElements(D d, const T* from) {
  return hn::LoadU(d, from);
}
template <class D, class T>
HWY_INLINE hn::Vec<D> SetElements(D d, const T* from) {
  return hn::Set(d, *from);
}
template <class X, class V>
HWY_INLINE void AddProduct(V factor, V row, V& sum) {
  if constexpr (kNumbers<X> == 2)
    AddDots(sum, factor, row);
  else
    sum = hn::MulAdd(factor, row, sum);
}

template <class D>
HWY_INLINE hn::Vec<D> LoadElements(D d, const Bf16Pair* from) {
  return hn::BitCast(d, hn::LoadU(hn::RebindToUnsigned<D>(), &from->bits));
}
template <class D>
HWY_INLINE hn::Vec<D> SetElements(D d, const Bf16Pair* from) {
  return hn::BitCast(d, hn::Set(hn::RebindToUnsigned<D>(), from->bits));
}
template <class D, class V>
HWY_INLINE void StorePairs(D, V low, V high, Bf16Pair* to) {
  hn::StoreU(PairsOf(low, high), hn::RebindToUnsigned<D>(), &to->bits);
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif
