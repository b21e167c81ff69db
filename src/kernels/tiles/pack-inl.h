// The operands of the tile kernels: rows in bf16 terms, pairs of rows, transposes of pairs. A bf16 operand is
// one term, an f16 operand exactly two. An f32 operand is two or three terms, whose products reach 2^-16 or
// the precision of f32. The method is that of Henry, Tang and Heinecke 2019, "Leveraging the bfloat16
// artificial intelligence datatype for higher-precision computations".
#if defined(FOVEA_TILES_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FOVEA_TILES_PACK_INL_H_
#undef FOVEA_TILES_PACK_INL_H_
#else
#define FOVEA_TILES_PACK_INL_H_
#endif

#include "kernels/flash/split-inl.h"
#include "kernels/simd/bf16-inl.h"
#include "kernels/tiles/product.h"

HWY_BEFORE_NAMESPACE();
namespace fovea::kernels {
namespace HWY_NAMESPACE {

/// The queries of a block, the keys of a chunk, whose scores are computed at a time, and the step of a
/// product's depth k.
constexpr int64_t kBlockQueries = 64, kChunk = 32, kDepth = 32;

constexpr int kMostTerms = 3, kMostProducts = 6;
/// The number of bf16 terms of an operand, and of the products of terms that are summed: all products that
/// are not smaller than the error of the split.
struct Split {
  int terms = 1, products = 1;
};
HWY_INLINE Split SplitOf(const Problem<float>& p) {
  if (p.operand_dtype == DType::bf16) return {1, 1};
  if (p.operand_dtype == DType::f16) return {2, 3};
  if (p.precision == Precision::medium) return {1, 1};
  return p.precision == Precision::high ? Split{2, 3} : Split{3, 6};
}

/// A matrix in terms, which are `term_stride` elements apart.
template <class E>
struct Terms {
  E* data = nullptr;
  int64_t term_stride = 0;
  HWY_INLINE E* of(int term) const { return data + term * term_stride; }
};

/// The products of terms, the smallest first: each one that is added to a large sum would round it again.
HWY_INLINE void FactorsOf(const Split& split, const Terms<const uint16_t>& a, const Terms<const uint32_t>& b,
                          PairFactors* factors) {
  constexpr int left[] = {2, 0, 1, 1, 0, 0}, right[] = {0, 2, 1, 0, 1, 0};
  const int first = kMostProducts - split.products;
  for (int i = 0; i < split.products; ++i) factors[i] = {a.of(left[first + i]), b.of(right[first + i])};
}

/// C = A·B, summed over all products of terms.
struct TileArgs {
  int64_t lda, ldb, k;
  float* c;
  int64_t ldc;
};
HWY_INLINE void TileProduct(const TileEngine& engine, const Split& split, int64_t m, int64_t n,
                            const Terms<const uint16_t>& a, const Terms<const uint32_t>& b,
                            const TileArgs& args) {
  PairFactors factors[kMostProducts];
  FactorsOf(split, a, b, factors);
  engine.product(m, n, {factors, split.products, args.lda, args.ldb, args.k, args.c, args.ldc, false});
}
/// C += A·B. Several products are first summed in `spare`, which has room for m·n, so that C is rounded once.
HWY_INLINE void AddTileProduct(const TileEngine& engine, const Split& split, int64_t m, int64_t n,
                               const Terms<const uint16_t>& a, const Terms<const uint32_t>& b,
                               const TileArgs& args, float* spare) {
  PairFactors factors[kMostProducts];
  FactorsOf(split, a, b, factors);
  if (split.products == 1)
    return engine.product(m, n, {factors, 1, args.lda, args.ldb, args.k, args.c, args.ldc, true});
  engine.product(m, n, {factors, split.products, args.lda, args.ldb, args.k, spare, n, false});
  const hn::CappedTag<float, 16> d;
  for (int64_t i = 0; i < m; ++i) {
    float* c = args.c + i * args.ldc;
    for (int64_t j = 0; j < n; j += static_cast<int64_t>(hn::Lanes(d)))
      hn::StoreU(hn::Add(hn::LoadU(d, c + j), hn::LoadU(d, spare + i * n + j)), d, c + j);
  }
}

HWY_INLINE int64_t RoundUp(int64_t n, int64_t step) {
  return (n + step - 1) / step * step;
}

HWY_INLINE void ZeroHalves(int64_t n, uint16_t* x) {
  for (int64_t i = 0; i < n; ++i) x[i] = 0;
}
HWY_INLINE void CopyHalves(const uint16_t* from, int64_t n, uint16_t* to) {
  const hn::CappedTag<uint16_t, 32> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
  for (; i < n; ++i) to[i] = from[i];
}

/// n elements of x in terms, with zeros behind up to `padded` (a multiple of 16). If a term is not finite,
/// nothing is left to split, and the terms behind it are 0.
template <class S>
HWY_INLINE void PackRow(const S* x, int64_t n, int64_t padded, int terms, const Terms<uint16_t>& to,
                        int64_t at) {
  const hn::CappedTag<float, 16> d;
  const UnsignedOf<decltype(d)> du;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < padded; i += lanes) {
    auto rest = i + lanes <= n ? LoadWide(d, x + i) : i < n ? LoadWideN(d, x + i, n - i) : hn::Zero(d);
    for (int term = 0; term < terms; ++term) {
      const auto half = NearestBf16(d, rest);
      StoreHalves(du, half, to.of(term) + at + i);
      const auto left = hn::Sub(rest, WideBf16(d, half));
      rest = hn::IfThenElseZero(hn::Lt(hn::Abs(left), hn::Set(d, -kHidden<float>)), left);
    }
  }
}

/// Packs rows [row, row + count) of x, then zeros up to `rows` rows, each of `padded` elements.
template <class S>
HWY_NOINLINE void PackRows(const Operand<const S*>& x, int64_t b, int64_t h, int64_t row, int64_t count,
                           int64_t rows, int64_t dim, int64_t padded, int terms, const Terms<uint16_t>& to) {
  for (int64_t r = 0; r < count; ++r) {
    const S* from = RowAt(x, b, h, row + r);
    if constexpr (hwy::IsSame<S, hwy::bfloat16_t>()) {
      if (terms == 1) {  // copied as it is
        CopyHalves(reinterpret_cast<const uint16_t*>(from), dim, to.data + r * padded);
        ZeroHalves(padded - dim, to.data + r * padded + dim);
        continue;
      }
    }
    PackRow(from, dim, padded, terms, to, r * padded);
  }
  for (int term = 0; term < terms; ++term) ZeroHalves((rows - count) * padded, to.of(term) + count * padded);
}

/// Packs rows [begin, begin + count) of a head of a cache as PackRows does, with zeros for rows that are not
/// kept and up to `rows` rows.
template <class S>
HWY_NOINLINE void PackRuns(const HeadRuns<S>& runs, int64_t begin, int64_t count, int64_t rows, int64_t dim,
                           int64_t padded, int terms, const Terms<uint16_t>& to) {
  int64_t done = 0;
  const auto clear_until = [&](int64_t row) HWY_ATTR {
    for (int term = 0; term < terms && done < row; ++term)
      ZeroHalves((row - done) * padded, to.of(term) + done * padded);
  };
  runs.ForStretches(
      begin, begin + count, [&](int64_t from, int64_t end, const S* first, const RunsBehind<S>&) HWY_ATTR {
        clear_until(from - begin);
        PackRows(Operand<const S*>{first, 0, 0, runs.stride}, 0, 0, 0, end - from, end - from, dim, padded,
                 terms, Terms<uint16_t>{to.data + (from - begin) * padded, to.term_stride});
        done = end - begin;
      });
  clear_until(rows);
}

/// The first of `count` rows of a head of a cache from position `begin` on, if they lie side by side, else
/// null.
template <class S>
HWY_INLINE const S* SideBySide(const HeadRuns<S>& runs, int64_t begin, int64_t count) {
  const S* rows = nullptr;
  runs.ForStretches(begin, begin + count,
                    [&](int64_t from, int64_t end, const S* first, const RunsBehind<S>&) HWY_ATTR {
                      if (end - from == count) rows = first;
                    });
  return rows;
}

/// Whether there is an infinity or a NaN among `rows` rows of n bf16 elements. n is a multiple of 16.
inline HWY_NOINLINE bool HasInfinityOrNan(const uint16_t* x, int64_t rows, int64_t n, int64_t stride) {
  const hn::CappedTag<uint16_t, 16> d;
  const auto exponent = hn::Set(d, uint16_t{0x7f80});
  auto largest = hn::Zero(d);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < n; i += static_cast<int64_t>(hn::Lanes(d)))
      largest = hn::Max(largest, hn::And(hn::LoadU(d, x + r * stride + i), exponent));
  }
  return !hn::AllFalse(d, hn::Eq(largest, exponent));
}

/// Stores a finished row in 16 bits, rounded to the nearest.
template <class S>
HWY_INLINE void NarrowRow(const float* row, int64_t n, uint16_t* to) {
#if !FOVEA_NATIVE_F16
  if constexpr (hwy::IsSame<S, hwy::float16_t>()) {
    for (int64_t i = 0; i < n; ++i) to[i] = float16(row[i]).bits;
    return;
  }
#endif
  const hn::CappedTag<float, 16> d;
  const UnsignedOf<decltype(d)> du;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  alignas(64) uint16_t last[16];
  for (int64_t i = 0; i < n; i += lanes) {
    uint16_t* at = i + lanes <= n ? to + i : last;
    const auto wide = i + lanes <= n ? hn::LoadU(d, row + i) : LoadWideN(d, row + i, n - i);
    if constexpr (hwy::IsSame<S, hwy::bfloat16_t>()) {
      StoreHalves(du, NearestBf16(d, wide), at);
    } else {
      const hn::Rebind<hwy::float16_t, decltype(d)> d16;
      hn::StoreU(hn::DemoteTo(d16, wide), d16, reinterpret_cast<hwy::float16_t*>(at));
    }
    for (int64_t j = i; at == last && j < n; ++j) to[j] = last[j - i];
  }
}

/// f(operand) with the operand as it is stored in 16 bits, else with the f32 operand.
template <class F>
HWY_INLINE void WithStored(const Problem<float>& p, const Operand<const float*>& wide,
                           const Operand<const uint16_t*>& stored, F&& f) {
  const auto as = [&](auto type) {
    using S = decltype(type);
    return Operand<const S*>{reinterpret_cast<const S*>(stored.data), stored.batch_stride, stored.head_stride,
                             stored.row_stride};
  };
  if (p.stored_dtype == DType::bf16) return f(as(hwy::bfloat16_t()));
  if (p.stored_dtype == DType::f16) return f(as(hwy::float16_t()));
  f(wide);
}

/// The packed forms of an operand [batch, kv_heads, key_len, dim]: its rows (PackedRows), and its transpose
/// by blocks of keys (PackedColumns), both in terms. The rows of a transposed block are 48 elements, 1.5
/// cache lines, further apart than their length. With a power of two, the rows that fill a tile register
/// would fall into one set of the cache.
struct PackedRows {
  Terms<const uint16_t> rows;  // [batch, kv_heads, keys rounded up to chunks][dim rounded up to `kDepth`]
  int64_t batch_stride = 0, head_stride = 0, stride = 0;
  HWY_INLINE Terms<const uint16_t> At(int64_t b, int64_t h, int64_t key) const {
    return {rows.data + b * batch_stride + h * head_stride + key * stride, rows.term_stride};
  }
};
struct PackedColumns {
  Terms<const uint16_t> columns;  // [batch, kv_heads, blocks][dim rounded up to 16][stride]
  const bool* wild = nullptr;     // [batch, kv_heads, chunks]: whether there is an infinity or a NaN
  int64_t heads = 0, blocks = 0, block = 0, dim = 0, stride = 0, chunks = 0;
  HWY_INLINE Terms<const uint16_t> At(int64_t b, int64_t h, int64_t key) const {
    return {columns.data + (((b * heads + h) * blocks + key / block) * dim) * stride + key % block,
            columns.term_stride};
  }
  HWY_INLINE bool Wild(int64_t b, int64_t h, int64_t key) const {
    return wild[(b * heads + h) * chunks + key / kChunk];
  }
};

HWY_INLINE int64_t PackedKeys(const Problem<float>& p) {
  return RoundUp(p.key_len, kChunk);
}

template <class S>
HWY_NOINLINE PackedRows PackKeyRows(const Problem<float>& p, const Split& split, const Operand<const S*>& x,
                                    int64_t dim, Carve& carve, Executor* executor) {
  if constexpr (hwy::IsSame<S, hwy::bfloat16_t>()) {  // rows that fill tile registers are multiplied where
                                                      // they lie
    if (executor && split.terms == 1 && dim % kDepth == 0 && p.key_len % kChunk == 0) {
      if (!p.cached.runs)
        return {{reinterpret_cast<const uint16_t*>(x.data), 0}, x.batch_stride, x.head_stride, x.row_stride};
      const HeadRuns<S> runs = KeyRuns<S>(p.cached, 0);
      if (const S* rows = SideBySide(runs, 0, p.key_len))
        return {{reinterpret_cast<const uint16_t*>(rows), 0},
                0,
                p.cached.runs[FirstRunBehind(p.cached, 0)].key_head_stride,
                runs.stride};
    }
  }
  const int64_t keys = PackedKeys(p), width = RoundUp(dim, kDepth),
                size = p.batch * p.kv_heads * keys * width;
  PackedRows packed{{}, p.kv_heads * keys * width, keys * width, width};
  uint16_t* to = carve.Take<uint16_t>(size * split.terms);
  packed.rows = {to, size};
  if (!executor) return packed;
  const int64_t chunks = keys / kChunk;
  executor->parallel_for(p.batch * p.kv_heads * chunks, [&](int64_t unit, int) {
    const int64_t begin = unit % chunks * kChunk, head = unit / chunks;
    const int64_t count = HWY_MIN(kChunk, p.key_len - begin);
    const Terms<uint16_t> rows{to + (head * keys + begin) * width, size};
    if (p.cached.runs)
      PackRuns(KeyRuns<S>(p.cached, head), begin, count, kChunk, dim, width, split.terms, rows);
    else
      PackRows(x, head / p.kv_heads, head % p.kv_heads, begin, count, kChunk, dim, width, split.terms, rows);
  });
  return packed;
}

/// The bytes of one thread's scratch buffer for PackKeyColumns.
HWY_INLINE int64_t ColumnScratch(const Split& split, int64_t dim) {
  return kChunk * RoundUp(dim, 16) * (split.terms * 2 + 2);  // rows in terms, and the pairs of one term
}

template <class S>
HWY_NOINLINE PackedColumns PackKeyColumns(const Problem<float>& p, const Split& split,
                                          const Operand<const S*>& x, int64_t dim, int64_t block, int threads,
                                          Carve& carve, Executor* executor) {
  PackedColumns packed;
  packed.heads = p.kv_heads;
  packed.block = block;
  packed.blocks = (p.key_len + block - 1) / block;
  packed.dim = RoundUp(dim, 16);
  packed.stride = block + 48;
  packed.chunks = PackedKeys(p) / kChunk;
  const int64_t size = p.batch * p.kv_heads * packed.blocks * packed.dim * packed.stride;
  uint16_t* to = carve.Take<uint16_t>(size * split.terms);
  bool* wild = carve.Take<bool>(p.batch * p.kv_heads * packed.chunks);
  const int64_t one = ColumnScratch(split, dim);
  std::byte* scratch = carve.Take<std::byte>(one * threads);
  packed.columns = {to, size};
  packed.wild = wild;
  if (!executor) return packed;
  executor->parallel_for(p.batch * p.kv_heads * packed.chunks, [&](int64_t unit, int worker) {
    const int64_t key = unit % packed.chunks * kChunk, head = unit / packed.chunks;
    const int64_t b = head / p.kv_heads, h = head % p.kv_heads, count = kChunk * packed.dim;
    const int64_t there = HWY_MIN(kChunk, p.key_len - key);
    auto* own = reinterpret_cast<uint16_t*>(scratch + worker * one);
    auto* pairs = reinterpret_cast<uint32_t*>(own + count * split.terms);
    const uint16_t* rows = own;
    int64_t stride = packed.dim;
    bool in_place = false;
    if constexpr (hwy::IsSame<S, hwy::bfloat16_t>()) {  // rows that fill tile registers are read where they
                                                        // lie
      if (split.terms == 1 && there == kChunk && dim == packed.dim) {
        const S* first =
            p.cached.runs ? SideBySide(ValueRuns<S>(p.cached, h), key, kChunk) : RowAt(x, b, h, key);
        if (first) {
          rows = reinterpret_cast<const uint16_t*>(first);
          stride = p.cached.runs ? p.cached.value_row_stride : x.row_stride;
          in_place = true;
        }
      }
    }
    if (!in_place && p.cached.runs)
      PackRuns(ValueRuns<S>(p.cached, h), key, there, kChunk, dim, packed.dim, split.terms,
               Terms<uint16_t>{own, count});
    else if (!in_place)
      PackRows(x, b, h, key, there, kChunk, dim, packed.dim, split.terms, Terms<uint16_t>{own, count});
    wild[unit] = HasInfinityOrNan(rows, kChunk, packed.dim, stride);
    for (int term = 0; term < split.terms; ++term) {
      ZipRows(rows + term * count, kChunk, packed.dim, stride, pairs, packed.dim);
      auto* columns = const_cast<uint16_t*>(packed.At(b, h, key).of(term));
      TransposeBlocks(pairs, kChunk / 2, packed.dim, packed.dim, reinterpret_cast<uint32_t*>(columns),
                      packed.stride / 2);
    }
  });
  return packed;
}

/// The product of the portable engine: pairs are widened to f32.
inline HWY_NOINLINE void PortableProduct(int64_t m_count, int64_t n_count, const PairProduct& p) {
  const hn::CappedTag<float, 16> d;
  const UnsignedOf<decltype(d)> du;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t m = 0; m < m_count; ++m) {
    for (int64_t n = 0; n < n_count; n += lanes) {
      float* c = p.c + m * p.ldc + n;
      auto sum = p.add ? hn::LoadU(d, c) : hn::Zero(d);
      for (int i = 0; i < p.count; ++i) {
        const uint16_t* a = p.factors[i].a + m * p.lda;
        const uint32_t* b = p.factors[i].b + n;
        for (int64_t k = 0; k < p.k; k += 2, b += p.ldb) {
          const auto pair = hn::LoadU(du, b);
          const auto even = WideBf16(d, hn::Set(du, a[k])), odd = WideBf16(d, hn::Set(du, a[k + 1]));
          sum = hn::MulAdd(even, WideBf16(d, pair), sum);
          sum = hn::MulAdd(odd, hn::BitCast(d, hn::And(pair, hn::Set(du, 0xffff0000u))), sum);
        }
      }
      hn::StoreU(sum, d, c);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fovea::kernels
HWY_AFTER_NAMESPACE();

#endif
