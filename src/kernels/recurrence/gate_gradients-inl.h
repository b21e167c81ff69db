// The derivatives by the gates of a chunk. They follow from those by the sums of the gates up to each token.
#if defined(FOVEA_RECURRENCE_GATE_GRADIENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_RECURRENCE_GATE_GRADIENTS_INL_H_
#undef FOVEA_RECURRENCE_GATE_GRADIENTS_INL_H_
#else
#define FOVEA_RECURRENCE_GATE_GRADIENTS_INL_H_
#endif

#include "kernels/recurrence/backward_buffers-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

#define FOVEA_UNROLL _Pragma("GCC unroll 8")

/// ⟨x, y⟩ of whole vectors, for long rows. Eight sums, since two waited for their multiply-adds.
template <class T>
HWY_INLINE T LongDot(const T* x, const T* y, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> sums[8];
  FOVEA_UNROLL for (int s = 0; s < 8; ++s) sums[s] = hn::Zero(d);
  int64_t i = 0;
  for (; i + 8 * lanes <= n; i += 8 * lanes) {
    FOVEA_UNROLL for (int s = 0; s < 8; ++s) sums[s] =
        hn::MulAdd(hn::LoadU(d, x + i + s * lanes), hn::LoadU(d, y + i + s * lanes), sums[s]);
  }
  for (; i < n; i += lanes) sums[0] = hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, y + i), sums[0]);
  FOVEA_UNROLL for (int s = 0; s < 4; ++s) sums[s] = hn::Add(sums[s], sums[s + 4]);
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]))));
}

/// to[i] = ⟨row i of x, row i of y⟩ for `count` rows of whole vectors. Sixteen sums are folded at once: a
/// reduction of each vector takes three times as many instructions.
template <class T>
HWY_INLINE void RowDots(const T* x, const T* y, int64_t count, int64_t dim, T* to) {
  const hn::ScalableTag<T> d;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  int64_t i = 0;
  for (; i + kChunk <= count; i += kChunk) {
    hn::Vec<decltype(d)> sums[kChunk];
    for (int64_t r = 0; r < kChunk; ++r) {
      auto sum = hn::Zero(d);
      for (int64_t j = (i + r) * dim; j < (i + r + 1) * dim; j += static_cast<int64_t>(hn::Lanes(d)))
        sum = hn::MulAdd(hn::LoadU(d, x + j), hn::LoadU(d, y + j), sum);
      sums[r] = sum;
    }
    FoldSums<kChunk, kLanes>(d, sums, to + i);
  }
  for (; i < count; ++i) to[i] = Dot(x + i * dim, y + i * dim, dim);
}

/// The derivative by the sum of all gates of a chunk: rows of ⟨state behind the chunk, Z⟩, or their sum where
/// all channels share a decay. That state is the decayed one before the chunk, and what writer rows add.
/// `sums` and `z_sums`: the sums of keys, or null. Where all channels share a decay, `state_z` is ⟨state, z⟩
/// of the state before the chunk, sums included, and z is not read.
template <class T>
HWY_NOINLINE void EndGradients(const RecurrenceProblem<T>& p, const ChunkAt& at, const Chunk<T>& c,
                               const ChunkGradient<T>& g, const T* state, const T* z, T state_z,
                               int64_t stride, const T* sums, const T* z_sums, T* ends) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  if (p.decay != DecayKind::key) {
    T sum = c.to_token[at.count - 1] * state_z;
    sum += LongDot(c.k_end, g.dk, at.count * c.dim);
    if (c.b) sum += LongDot(c.b_end, g.db, at.count * c.dim);
    ends[0] = sum;
    return;
  }
  Fill(T{0}, c.dim, ends);
  RowDots(state, z, p.key_dim, stride, ends);
  for (int64_t i = 0; sums && i < p.key_dim; ++i) ends[i] += sums[i] * z_sums[i];
  const T* decay = c.to_token + (at.count - 1) * c.dim;
  for (int64_t j = 0; j < c.dim; j += lanes) {
    auto sum = hn::Mul(hn::LoadU(d, ends + j), hn::LoadU(d, decay + j));
    for (int64_t i = j; i < at.count * c.dim; i += c.dim) {
      sum = hn::MulAdd(hn::LoadU(d, c.k_end + i), hn::LoadU(d, g.dk + i), sum);
      if (c.b) sum = hn::MulAdd(hn::LoadU(d, c.b_end + i), hn::LoadU(d, g.db + i), sum);
    }
    hn::StoreU(sum, d, ends + j);
  }
}

/// x∘dx belongs to the token that a reader row reads at, and -y∘dy to the token of a writer row. `ends`, in
/// the shape of a token's gates, is the derivative by the whole chunk's sum.
template <class T>
HWY_NOINLINE void GateGradients(const RecurrenceProblem<T>& p, const ChunkAt& at, bool queries,
                                const Chunk<T>& c, const ChunkGradient<T>& g, const T* ends) {
  const hn::ScalableTag<T> d;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(d));
  using V = hn::Vec<decltype(d)>;
  const int64_t dim = c.dim, lanes = static_cast<int64_t>(hn::Lanes(d)), count = at.count;
  const int64_t query_shift = QueryReach(p) == Reach::before, erase_shift = EraseReach(p) == Reach::before;
  const int64_t readers = queries ? c.readers : 0;
  // visit(x, dx, plus) for the rows that belong to the gate of a token, from column j on. The size of `plus`
  // is 1 for a reader row and 0 for a writer row.
  const auto rows_of = [&](int64_t token, int64_t j, auto visit) HWY_ATTR {
    const int64_t writer = token * dim + j, reader = (token + query_shift) * dim + j,
                  erase = (token + erase_shift) * dim + j;
    for (int64_t r = 0; r < readers && token + query_shift < count; ++r)
      visit(c.q + r * kChunk * dim + reader, g.dq + r * kChunk * dim + reader, hwy::SizeTag<1>());
    visit(c.k + writer, g.dk + writer, hwy::SizeTag<0>());
    if (c.e && token + erase_shift < count) visit(c.e + erase, g.de + erase, hwy::SizeTag<1>());
    if (c.b) visit(c.b + writer, g.db + writer, hwy::SizeTag<0>());
  };
  const auto add = [&](const T* x, const T* dx, auto plus, V sum) HWY_ATTR {
    if constexpr (hwy::IsSame<decltype(plus), hwy::SizeTag<1>>())
      return hn::MulAdd(hn::LoadU(d, x), hn::LoadU(d, dx), sum);
    else
      return hn::NegMulAdd(hn::LoadU(d, x), hn::LoadU(d, dx), sum);
  };
  if (p.decay != DecayKind::key) {
    V sums[kChunk];
    for (int64_t i = 0; i < kChunk; ++i) {
      V sum = hn::Zero(d);
      if (i < count) {
        rows_of(i, 0, [&](const T* x, const T* dx, auto plus) HWY_ATTR {
          for (int64_t j = 0; j < dim; j += lanes) sum = add(x + j, dx + j, plus, sum);
        });
      }
      sums[i] = sum;
    }
    FoldSums<kChunk, kLanes>(d, sums, g.decays);
    T sum = ends[0];
    for (int64_t i = count - 1; i >= 0; --i) g.decays[i] = sum += g.decays[i];
    return;
  }
  // From the last token to the first, so that a sum of all later ones stays in registers. Adding token by
  // token in memory took 2,100 of 24,500 cycles of a chunk of GLA on a Zen 5.
  const auto channels = [&]<int kVectors>(int64_t j) HWY_ATTR {
    V sum[kVectors];
    FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) sum[v] = hn::LoadU(d, ends + j + v * lanes);
    for (int64_t i = count - 1; i >= 0; --i) {
      rows_of(i, j, [&](const T* x, const T* dx, auto plus) HWY_ATTR {
        FOVEA_UNROLL for (int v = 0; v < kVectors; ++v) sum[v] =
            add(x + v * lanes, dx + v * lanes, plus, sum[v]);
      });
      FOVEA_UNROLL for (int v = 0; v < kVectors; ++v)
          hn::StoreU(sum[v], d, g.decays + i * dim + j + v * lanes);
    }
  };
  int64_t j = 0;
  for (; j + 4 * lanes <= dim; j += 4 * lanes) channels.template operator()<4>(j);
  for (; j < dim; j += lanes) channels.template operator()<1>(j);
}

#undef FOVEA_UNROLL

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif
