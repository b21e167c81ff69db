// Products of bf16 numbers, two by two, into f32: what AMX's tiles and AVX-512's dot products compute. The
// kernels of tiles/forward-inl.h are written over this one function; an engine is a way to compute it.
#pragma once

#include <cstdint>

namespace fovea::kernels {

/// A [m, k], bf16 in rows, and B [k, n] in pairs of rows: element n of pair row i holds B(2i, n) in its low
/// half and B(2i + 1, n) in its high half.
struct PairFactors {
  const std::uint16_t* a = nullptr;
  const std::uint32_t* b = nullptr;
};

/// C [m, n] (+)= Σ A·B over `count` pairs of factors of the same layout. m, n multiples of 16, k of 32.
struct PairProduct {
  const PairFactors* factors = nullptr;
  int count = 0;
  std::int64_t lda = 0;  ///< elements from row to row of A
  std::int64_t ldb = 0;  ///< pairs from pair row to pair row of B
  std::int64_t k = 0;
  float* c = nullptr;
  std::int64_t ldc = 0;
  bool add = false;
};

struct TileEngine {
  void (*product)(std::int64_t m, std::int64_t n, const PairProduct& p) = nullptr;
  /// Around the products of a block of queries on one thread, and nothing that users wrote; null: nothing to
  /// do.
  void (*begin)() = nullptr;
  void (*end)() = nullptr;
};

/// AMX-BF16: the tiles' registers are set up by begin() and given back by end(). Null on other compilers and
/// processors than 64-bit x86.
const TileEngine* amx_engine();
/// `vdpbf16ps`.
const TileEngine* dot_engine();
/// Null where this CPU and system run the engine, else what is missing. AMX's registers are asked of the
/// system on the first call.
const char* amx_absence();
const char* dot_absence();
/// The same of AVX-512 with what the kernels use of it.
const char* avx512_absence();

/// For tests on machines without AMX, which trap its instructions and carry them out.
void assume_amx(bool present);

}  // namespace fovea::kernels
