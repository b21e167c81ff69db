// The decisions of dropout (fovea/attention/dropout.h) by vectors: Philox with a query in each lane, as bits,
// or with 16 keys of one query in each lane, as factors.
#if defined(FOVEA_SIMD_DROPOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_SIMD_DROPOUT_INL_H_
#undef FOVEA_SIMD_DROPOUT_INL_H_
#else
#define FOVEA_SIMD_DROPOUT_INL_H_
#endif

#include "fovea/attention/dropout.h"
#include "fovea/attention/site.h"
#include "fovea/core/philox.h"
#include "kernels/simd/mask_bits-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// factor · x in 64 bits for each lane, cut into its halves.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void WideProducts(D d, V factor, V x, V& high, V& low) {
#if HWY_TARGET == HWY_SCALAR
  const uint64_t product = uint64_t{hn::GetLane(factor)} * hn::GetLane(x);
  low = hn::Set(d, static_cast<uint32_t>(product));
  high = hn::Set(d, static_cast<uint32_t>(product >> 32));
#else
  const hn::RepartitionToWide<D> d64;
  const auto even = hn::MulEven(x, factor),
             odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, x))), factor);
  low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
  high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
#endif
}

/// philox4x32 (fovea/core/philox.h) of the counters c0 to c3, which the words replace.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void PhiloxWords(D d, uint64_t seed, V& c0, V& c1, V& c2, V& c3) {
  const auto first = hn::Set(d, philox_factors[0]), second = hn::Set(d, philox_factors[1]);
  auto key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    auto high0 = c0, low0 = c0, high1 = c2, low1 = c2;
    WideProducts(d, first, c0, high0, low0);
    WideProducts(d, second, c2, high1, low1);
    c0 = hn::Xor(hn::Xor(high1, c1), hn::Set(d, key0));
    c1 = low1;
    c2 = hn::Xor(hn::Xor(high0, c3), hn::Set(d, key1));
    c3 = low0;
    key0 += philox_steps[0];
    key1 += philox_steps[1];
  }
}

/// Bit r of keeps[j] says that the weight of query first.query + r and key first.key + j is kept: its byte of
/// Philox is below `threshold`. For 64 queries and 16 keys; first.key is a multiple of 16.
HWY_INLINE void KeepBits(uint64_t seed, uint32_t threshold, const Site& first, uint64_t* keeps) {
  const hn::CappedTag<uint32_t, 16> d;
  const hn::RebindToSigned<decltype(d)> di;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t j = 0; j < 16; ++j) keeps[j] = 0;
  for (int64_t v = 0; v < 64; v += lanes) {
    auto c0 = hn::Set(d, static_cast<uint32_t>(first.key / 16)),
         c1 = hn::Iota(d, static_cast<uint32_t>(first.query + v)),
         c2 = hn::Set(d, static_cast<uint32_t>(first.head)),
         c3 = hn::Set(d, static_cast<uint32_t>(first.batch));
    PhiloxWords(d, seed, c0, c1, c2, c3);
    const auto below = hn::Set(di, static_cast<int32_t>(threshold)), byte = hn::Set(di, 0xff);
    const auto word = [&](auto bits, int64_t j) HWY_ATTR {
      const auto x = hn::BitCast(di, bits);
      keeps[j] |= BitsOfMask(di, hn::Lt(hn::And(x, byte), below)) << v;
      keeps[j + 1] |= BitsOfMask(di, hn::Lt(hn::And(hn::ShiftRight<8>(x), byte), below)) << v;
      keeps[j + 2] |= BitsOfMask(di, hn::Lt(hn::And(hn::ShiftRight<16>(x), byte), below)) << v;
      keeps[j + 3] |= BitsOfMask(di, hn::Lt(hn::And(hn::ShiftRight<24>(x), byte), below)) << v;
    };
    word(c0, 0);
    word(c1, 4);
    word(c2, 8);
    word(c3, 12);
  }
}

template <class D, class V>
HWY_INLINE hn::Vec<D> NumberOf(D d, V integer) {
  if constexpr (sizeof(hn::TFromD<D>) == 8)
    return hn::PromoteTo(d, integer);
  else
    return hn::ConvertTo(d, integer);
}
/// to[j] = the factor of dropout for the weight of key first.key + j, 0 or the scale of kept weights, for
/// `count` keys. By eight lanes: a piece has 128 keys at most, and they are eight 16s.
template <class T>
HWY_NOINLINE void DropoutFactors(double rate, uint64_t seed, const Site& first, int64_t count, T* to) {
  const hn::CappedTag<uint32_t, 8> d;
  const hn::ScalableTag<T> dt;
  const hn::Rebind<int32_t, decltype(dt)> di;
  const hn::Rebind<uint8_t, decltype(dt)> d8;
  constexpr int64_t kKeys = 16;  // of one Philox
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), width = static_cast<int64_t>(hn::Lanes(dt)),
                end = first.key + count;
  const DropoutDecision decision = DropoutDecision::for_rate(rate);
  const auto threshold = hn::Set(dt, static_cast<T>(decision.keep_threshold)),
             scale = hn::Set(dt, static_cast<T>(decision.scale));
  alignas(64) uint8_t bytes[8 * kKeys];
  for (int64_t begin = first.key / kKeys * kKeys; begin < end; begin += lanes * kKeys) {
    auto c0 = hn::Iota(d, static_cast<uint32_t>(begin / kKeys)),
         c1 = hn::Set(d, static_cast<uint32_t>(first.query)),
         c2 = hn::Set(d, static_cast<uint32_t>(first.head)),
         c3 = hn::Set(d, static_cast<uint32_t>(first.batch));
    PhiloxWords(d, seed, c0, c1, c2, c3);
    hn::StoreInterleaved4(c0, c1, c2, c3, d, reinterpret_cast<uint32_t*>(bytes));
    int64_t key = HWY_MAX(begin, first.key);
    const int64_t stop = HWY_MIN(begin + lanes * kKeys, end);
    const uint8_t* byte = bytes + (key - begin);
    T* x = to + (key - first.key);
    for (; key + width <= stop; key += width, byte += width, x += width) {
      const auto number = NumberOf(dt, hn::PromoteTo(di, hn::LoadU(d8, byte)));
      hn::StoreU(hn::IfThenElseZero(hn::Lt(number, threshold), scale), dt, x);
    }
    for (; key < stop; ++key, ++byte, ++x)
      *x = *byte < decision.keep_threshold ? static_cast<T>(decision.scale) : T{0};
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif
