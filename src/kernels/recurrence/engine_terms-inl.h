// The products of forward with states, by an engine of kernels/tiles/product.h such as AMX. The small
// products within a chunk stay dot products, since a tile of 16 by 16 has no triangles.
#if defined(FOVEA_RECURRENCE_ENGINE_TERMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_RECURRENCE_ENGINE_TERMS_INL_H_
#undef FOVEA_RECURRENCE_ENGINE_TERMS_INL_H_
#else
#define FOVEA_RECURRENCE_ENGINE_TERMS_INL_H_
#endif

#include "kernels/recurrence/bf16_terms-inl.h"
#include "kernels/tiles/product.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// An engine multiplies whole tiles of 16 rows, 16 columns and 16 pairs. So rows have zeros behind and below.
template <const TileEngine* (*kEngine)()>
class EngineTerms : public PairTerms {
 public:
  EngineTerms(const RecurrenceProblem<float>& problem, const Columns& unit_columns, const Chunk<float>& chunk,
              const ForwardBuffers<float>& buffers, Carve& carve)
      : PairTerms(problem, unit_columns, chunk, buffers, carve, kTile) {
    const int64_t channels = WholeTiles(p.key_dim);
    k_rows_ = carve.Take<Bf16Pair>(channels * kTile);
    product_ = carve.Take<float>(channels * Padded<float>(TilesOf(p).width));
  }

  /// For one chunk: between two of them a caller's function may ask to stop, and may use tiles itself. For
  /// each product it would take 0.1 µs, a tenth of a small one.
  HWY_INLINE EngineUse HoldEngine() const { return EngineUse(*kEngine()); }
  HWY_INLINE void Start(const float* state) {
    PairTerms::Start(state);
    const int64_t pairs = (p.key_dim + 1) / 2;
    Clear(state_ + pairs * columns.stride, (stride_ - pairs) * columns.stride);
    for (Bf16Pair* values : {values_, written_, k_writes_, b_writes_}) {
      if (values) Clear(values, kTile * columns.stride);
    }
  }

  HWY_INLINE ChunkTerm<Bf16Pair> KeyWrites(const float* written) const {
    return ByRows(PairTerms::KeyWrites(written), k_rows_);
  }

  HWY_INLINE void Multiply(int64_t rows, ChunkSum<float, Bf16Pair>& sum) const {
    const ChunkTerm<Bf16Pair>& term = sum.first;
    const PairFactors factors{reinterpret_cast<const uint16_t*>(term.a), &term.b->bits};
    kEngine()->product(WholeTiles(rows), columns.stride,
                       {.factors = &factors,
                        .count = 1,
                        .lda = 2 * term.am,
                        .ldb = term.ldb,
                        .k = 2 * WholeTiles(term.k),
                        .c = product_,
                        .ldc = columns.stride});
    sum.product = product_;
    sum.product_stride = columns.stride;
  }

 private:
  static constexpr int64_t kTile = 16;
  static HWY_INLINE int64_t WholeTiles(int64_t n) { return (n + kTile - 1) / kTile * kTile; }
  static HWY_INLINE void Clear(Bf16Pair* x, int64_t count) { Fill(0u, count, &x->bits); }
  /// The term with its pairs of tokens in rows, one for each channel.
  HWY_INLINE ChunkTerm<Bf16Pair> ByRows(ChunkTerm<Bf16Pair> term, Bf16Pair* rows) const {
    TransposeFewRows(&term.a->bits, kPairs, WholeTiles(p.key_dim), term.ak, &rows->bits, kTile);
    term.a = rows;
    term.am = kTile;
    term.ak = 1;
    return term;
  }

  Bf16Pair* k_rows_;  // [key_dim][16]: eight pairs of tokens, and zeros
  float* product_;    // [key_dim, at least 16][columns.stride]
};

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif
