// The decisions of dropout (fovea/attention/dropout.h) for a block of queries and 16 keys at a time: Philox
// with a query in each lane.
#if defined(FOVEA_SIMD_DROPOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_SIMD_DROPOUT_INL_H_
#undef FOVEA_SIMD_DROPOUT_INL_H_
#else
#define FOVEA_SIMD_DROPOUT_INL_H_
#endif

#include "kernels/simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// The bits of a mask, lane 0 lowest.
template <class D, class M>
HWY_INLINE uint64_t BitsOfMask([[maybe_unused]] D d, M mask) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  return mask.raw;
#else
  uint8_t bytes[8] = {};
  hn::StoreMaskBits(d, mask, bytes);
  uint64_t bits;
  hwy::CopyBytes<8>(bytes, &bits);
  return bits;
#endif
}
/// The mask of the lowest bits, as many as there are lanes.
template <class D>
HWY_INLINE hn::Mask<D> MaskOfBits([[maybe_unused]] D d, uint64_t bits) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  using Raw = decltype(hn::Mask<D>::raw);
  return hn::Mask<D>{static_cast<Raw>(bits)};
#else
  uint8_t bytes[8];
  hwy::CopyBytes<8>(&bits, bytes);
  return hn::LoadMaskBits(d, bytes);
#endif
}

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

/// Where the decisions of a block of weights begin: entry and head, the position of the first query, and the
/// first of 16 keys, a multiple of 16.
struct DropoutBlock {
  uint64_t seed = 0;
  int64_t entry = 0, head = 0, query = 0, key = 0;
};

/// Bit r of keeps[j] says that the weight of query `at.query` + r and key `at.key` + j is kept: its byte of
/// Philox is below `threshold`. For 64 queries and 16 keys.
HWY_INLINE void KeepBits(const DropoutBlock& at, uint32_t threshold, uint64_t* keeps) {
  const hn::CappedTag<uint32_t, 16> d;
  const hn::RebindToSigned<decltype(d)> di;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto first = hn::Set(d, 0xD2511F53u), second = hn::Set(d, 0xCD9E8D57u);
  for (int64_t j = 0; j < 16; ++j) keeps[j] = 0;
  for (int64_t v = 0; v < 64; v += lanes) {
    auto c0 = hn::Set(d, static_cast<uint32_t>(at.key / 16)),
         c1 = hn::Iota(d, static_cast<uint32_t>(at.query + v)),
         c2 = hn::Set(d, static_cast<uint32_t>(at.head)), c3 = hn::Set(d, static_cast<uint32_t>(at.entry));
    auto key0 = static_cast<uint32_t>(at.seed), key1 = static_cast<uint32_t>(at.seed >> 32);
    for (int round = 0; round < 10; ++round) {
      auto high0 = c0, low0 = c0, high1 = c2, low1 = c2;
      WideProducts(d, first, c0, high0, low0);
      WideProducts(d, second, c2, high1, low1);
      c0 = hn::Xor(hn::Xor(high1, c1), hn::Set(d, key0));
      c1 = low1;
      c2 = hn::Xor(hn::Xor(high0, c3), hn::Set(d, key1));
      c3 = low0;
      key0 += 0x9E3779B9u;
      key1 += 0xBB67AE85u;
    }
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

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif
