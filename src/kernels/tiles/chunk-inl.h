// The steps of the tile kernels on a chunk of scores [32 keys][64 queries], forward and backward:
// exponentials, weights in terms, and hiding what the mask hides.
#if defined(FOVEA_TILES_CHUNK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_TILES_CHUNK_INL_H_
#undef FOVEA_TILES_CHUNK_INL_H_
#else
#define FOVEA_TILES_CHUNK_INL_H_
#endif

#include "kernels/tiles/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// The exponents of weights. One bf16 term takes powers of 2, which cost least. More terms take e^x: the
/// roundings of another unit would be half of the error that `Precision::higher` has.
struct Exponents {
  float factor = 1.0f;    ///< an exponent is factor · (product of query and key) - shift
  float unit = 1.0f;      ///< the unit of an exponent, in natural logarithms
  float headroom = 8.0f;  ///< by how much an exponent may exceed the row's maximum
};
HWY_INLINE Exponents ExponentsOf(const Problem<float>& p, const Split& split) {
  const float scale = ScaleOf(p);
  if (split.terms > 1) return {scale, 1.0f, 8.0f};
  return {scale * 1.44269504f, 0.693147181f, 12.0f};
}

/// Vectors along a block's 64 queries.
using TileTag = hn::CappedTag<float, 16>;

/// e^x, or 2^x with kTwo; 0 for -inf, at least e^80 above 80, and NaN stays NaN. Powers of 2 are for weights
/// in one bf16 term; AVX-512 computes them cheaply to a relative 2.6e-6. Degree 3, with 7.5e-5, would do for
/// the term, whose rounding is 2^-9, but not for the log-sum-exp, which is f32.
template <bool kTwo, class V>
HWY_INLINE V Power(V x) {
  const TileTag d;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  if constexpr (kTwo) {
    const __m512 f = _mm512_reduce_ps(x.raw, 0x01);  // x - floor(x)
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(0.013534168f), f, _mm512_set1_ps(0.05201146f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.24144275f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.69300383f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0000026f));
    return V{_mm512_scalef_ps(p, x.raw)};
  }
#endif
  if constexpr (kTwo) x = hn::Mul(x, hn::Set(d, 0.693147181f));
  return Exp(d, AtMost(hn::Set(d, 80.0f), x));
}

/// Stores the weights of two keys in terms, as pairs: row i of `to` gets keys 2i and 2i + 1. A NaN weight
/// need not stay NaN: the sum of the weights is.
template <int kTerms, class V>
HWY_INLINE void StorePair(V even, V odd, const Terms<uint32_t>& to, int64_t at) {
  const TileTag d;
  const UnsignedOf<TileTag> du;
  const auto high = hn::Set(du, 0xffff0000u), half = hn::Set(du, 0x8000u);
  HWY_UNROLL(3)
  for (int term = 0; term < kTerms; ++term) {
    const auto low_half = hn::Add(hn::BitCast(du, even), half),
               high_half = hn::Add(hn::BitCast(du, odd), half);
    hn::StoreU(hn::Or(hn::ShiftRight<16>(low_half), hn::And(high_half, high)), du, to.of(term) + at);
    if (term + 1 == kTerms) break;
    even = hn::Sub(even, hn::BitCast(d, hn::And(low_half, high)));
    odd = hn::Sub(odd, hn::BitCast(d, hn::And(high_half, high)));
  }
}

/// The queries [begin, end) of a block, in whole 16s, as tile registers need them.
struct Columns {
  int64_t begin = 0, end = 0;
  HWY_INLINE int64_t Count() const { return end - begin; }
  HWY_INLINE bool operator==(const Columns& other) const { return begin == other.begin && end == other.end; }
};

/// What dropout does to a chunk of weights. Bit r of keeps[j] says that the weight of row r and key j is
/// kept. A kept weight is multiplied by `scale`.
struct ChunkDropout {
  double rate = 0.0;
  float scale = 1.0f;
  uint32_t threshold = 256;
  uint64_t keeps[kChunk];

  explicit HWY_INLINE ChunkDropout(const Problem<float>& p) : rate(p.dropout_rate) {
    if (rate <= 0.0) return;
    const DropoutDecision decision = DropoutDecision::for_rate(rate);
    scale = static_cast<float>(decision.scale);
    threshold = decision.keep_threshold;
  }
  HWY_INLINE bool Drops() const { return rate > 0.0; }
  /// Decides for the keys of the chunk that begins at `key`.
  HWY_INLINE void Decide(const Problem<float>& p, const BlockAt<float>& at, int64_t key) {
    for (int64_t j = 0; j < kChunk; j += 16)
      KeepBits(p.dropout_seed, threshold, SiteOf(p, at.b, at.h, at.row, key + j), keeps + j);
  }
  /// The factors of one key's weights for the rows from `row` on.
  HWY_INLINE hn::Vec<TileTag> Factors(int64_t j, int64_t row) const {
    const TileTag d;
    return hn::IfThenElseZero(MaskOfBits(d, keeps[j] >> row), hn::Set(d, scale));
  }
};

/// Turns the scores of a chunk [key][64] into weights, powers of factor·s - shift, which are stored as pairs.
/// sums[64] gets the weights' sums over the keys, of which dropout takes nothing.
template <int kTerms, bool kDrops>
HWY_INLINE void ChunkWeights(const float* scores, const Columns& columns, float factor, const float* shifts,
                             const ChunkDropout& dropout, float* sums, const Terms<uint32_t>& to) {
  const TileTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto slope = hn::Set(d, factor);
  for (int64_t v = columns.begin; v < columns.end; v += lanes) {
    const auto shift = hn::LoadU(d, shifts + v);
    auto sum0 = hn::Zero(d), sum1 = hn::Zero(d);
    const float* row = scores + v;
    for (int64_t i = 0; i < kChunk / 2; ++i, row += 2 * kBlockQueries) {
      auto even = Power<kTerms == 1>(hn::MulSub(hn::LoadU(d, row), slope, shift));
      auto odd = Power<kTerms == 1>(hn::MulSub(hn::LoadU(d, row + kBlockQueries), slope, shift));
      sum0 = hn::Add(sum0, even);
      sum1 = hn::Add(sum1, odd);
      if constexpr (kDrops) {
        even = hn::Mul(even, dropout.Factors(2 * i, v));
        odd = hn::Mul(odd, dropout.Factors(2 * i + 1, v));
      }
      StorePair<kTerms>(even, odd, to, i * kBlockQueries + v);
    }
    hn::StoreU(hn::Add(sum0, sum1), d, sums + v);
  }
}

/// For each query of a block: the shift of its exponents, and the factor of its final weights.
struct ChunkShares {
  alignas(64) float shift[kBlockQueries], share[kBlockQueries];
};
/// Turns the scores of a chunk into final weights, exactly 0 where a key is hidden. The shift of powers of 2
/// was converted to natural logarithms and back, which is off by some 2^-23 of itself. So weights are clamped
/// to 1.
template <bool kTwo>
HWY_INLINE void FinalChunk(float factor, const Columns& columns, const ChunkShares& shares, float* scores) {
  const TileTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto slope = hn::Set(d, factor), hidden = hn::Set(d, kHidden<float>), most = hn::Set(d, 1.0f);
  for (int64_t v = columns.begin; v < columns.end; v += lanes) {
    const auto shift = hn::Load(d, shares.shift + v), share = hn::Load(d, shares.share + v);
    for (int64_t j = 0; j < kChunk; ++j) {
      float* row = scores + j * kBlockQueries + v;
      const auto score = hn::LoadU(d, row);
      const auto weight = AtMost(most, hn::Mul(share, Power<kTwo>(hn::MulSub(score, slope, shift))));
      hn::StoreU(hn::IfThenZeroElse(hn::Eq(score, hidden), weight), d, row);
    }
  }
}

HWY_INLINE uint64_t AllRows(int64_t rows) {
  return rows == 64 ? ~uint64_t{0} : (uint64_t{1} << rows) - 1;
}

/// Bit r of hidden[j] says that key `begin` + j is hidden from query r. The bits of padding rows,
/// which lie behind the block's last query, stay 0. So a padding row never looks like a row without keys.
HWY_NOINLINE void HiddenBits(const BlockSchedule& schedule, const Piece& piece, int64_t rows, int64_t begin,
                             int64_t count, uint64_t* hidden) {
  const uint64_t all = AllRows(rows);
  for (int64_t j = 0; j <= count; ++j) hidden[j] = 0;
  const int64_t from = piece.begin - begin, to = piece.end - begin;
  // First the bits are toggled where each row begins and ceases to see keys. Then a running exclusive or
  // gives the rows that see each key.
  for (int64_t r = 0; r < rows; ++r) {
    const uint64_t row = uint64_t{1} << r;
    const SpanList spans = piece.full ? SpanList() : schedule.row(r);
    for (int64_t n = 0; n < (piece.full ? 1 : spans.count); ++n) {
      const int64_t first = piece.full ? from : HWY_MAX(spans.data[n].begin - begin, from),
                    last = piece.full ? to : HWY_MIN(spans.data[n].end - begin, to);
      if (first >= last) continue;
      hidden[first] ^= row;
      hidden[last] ^= row;
    }
  }
  uint64_t seen = 0;
  for (int64_t j = 0; j < count; ++j) {
    seen ^= hidden[j];
    hidden[j] = all & ~seen;
  }
}

/// The columns of `all` that see some key of the chunk.
HWY_INLINE Columns SeeingColumns(const uint64_t* hidden, int64_t rows, const Columns& all) {
  uint64_t none = AllRows(rows);  // rows that see nothing
  for (int64_t j = 0; j < kChunk; ++j) none &= hidden[j];
  const uint64_t some = AllRows(rows) & ~none;
  Columns seeing;
  while (seeing.begin < all.end && !(some >> seeing.begin & 0xffffu)) seeing.begin += 16;
  for (seeing.end = all.end; seeing.end > seeing.begin && !(some >> (seeing.end - 16) & 0xffffu);)
    seeing.end -= 16;
  return seeing;
}

/// Whether some key of the chunk is hidden from all queries of the block.
HWY_INLINE bool HidesFromAll(const uint64_t* hidden, int64_t rows) {
  for (int64_t j = 0; j < kChunk; ++j) {
    if (hidden[j] == AllRows(rows)) return true;
  }
  return false;
}

/// Sets the scores [kChunk][64] of hidden pairs to -inf.
HWY_NOINLINE void HideScores(const uint64_t* hidden, float* scores) {
  const TileTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t j = 0; j < kChunk; ++j, scores += kBlockQueries) {
    if (hidden[j] == 0) continue;
    for (int64_t v = 0; v < kBlockQueries; v += lanes)
      hn::BlendedStore(hn::Set(d, kHidden<float>), MaskOfBits(d, hidden[j] >> v), d, scores + v);
  }
}

/// A chunk of scores with a row for each query, as mods and returned weights need it: row r at rows + r ·
/// kChunk.
struct ChunkRows {
  float* rows;  ///< [64][kChunk]
  ModBuffers<float> mods;
};
HWY_INLINE ChunkRows TakeChunkRows(const Problem<float>& p, bool backward, Carve& carve) {
  return {carve.Take<float>(kBlockQueries * kChunk), TakeModBuffers(p.mods, kBlockQueries, backward, carve)};
}
/// from [kChunk][64], for these columns, to rows that begin with the first of them; and back.
HWY_INLINE void RowsOfChunk(const float* from, const Columns& columns, float* rows) {
  TransposeBlocks(reinterpret_cast<const uint32_t*>(from + columns.begin), kChunk, columns.Count(),
                  kBlockQueries, reinterpret_cast<uint32_t*>(rows), kChunk);
}
HWY_INLINE void ChunkOfRows(const float* rows, const Columns& columns, float* to) {
  TransposeBlocks(reinterpret_cast<const uint32_t*>(rows), columns.Count(), kChunk, kChunk,
                  reinterpret_cast<uint32_t*>(to + columns.begin), kBlockQueries);
}
/// The place of these columns of the chunk from `key` on, without padding rows and keys.
HWY_INLINE ModPlace PlaceOfChunk(const Problem<float>& p, const BlockAt<float>& at, const Columns& columns,
                                 int64_t key, int64_t group) {
  return {at.b,
          at.h,
          at.row + columns.begin,
          HWY_MIN(at.rows, columns.end) - columns.begin,
          key,
          HWY_MIN(kChunk, p.key_len - key),
          group};
}
/// Applies the problem's mods to a chunk of scores [kChunk][64].
HWY_NOINLINE void ModChunk(const Problem<float>& p, const BlockAt<float>& at, const Columns& columns,
                           int64_t key, const ChunkRows& buffers, float* scores) {
  RowsOfChunk(scores, columns, buffers.rows);
  apply_mods<float>(p, PlaceOfChunk(p, at, columns, key, 0), buffers.rows, kChunk, buffers.mods);
  ChunkOfRows(buffers.rows, columns, scores);
}

/// Copies a chunk of columns with 0 for keys that no query of the block sees. Such a key may hold an infinity
/// or a NaN, and 0 times either is NaN.
HWY_NOINLINE Terms<const uint16_t> CleanColumns(const PackedColumns& columns, const Split& split,
                                                const BlockAt<float>& at, int64_t key, const uint64_t* hidden,
                                                uint16_t* to) {
  const uint64_t all = AllRows(at.rows);
  const Terms<const uint16_t> from = columns.At(at.b, at.kv, key);
  const int64_t size = columns.dim * kChunk;
  for (int term = 0; term < split.terms; ++term) {
    for (int64_t i = 0; i < columns.dim; ++i) {
      for (int64_t j = 0; j < kChunk; ++j)
        to[term * size + i * kChunk + j] =
            hidden[j] == all ? uint16_t{0} : from.of(term)[i * columns.stride + j];
    }
  }
  return {to, size};
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif
