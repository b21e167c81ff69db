// Products of bf16 numbers in pairs, summed in f32: the operation of AMX's tile registers and of AVX-512's
// dot products. The kernels of tiles/forward-inl.h are written over this one function. An engine is a way to
// compute it.
#pragma once

#include <cstdint>

namespace fovea::kernels {

/// A [m, k] is bf16 in rows. B [k, n] is in pairs of rows: element n of pair row i holds B(2i, n) in its low
/// half and B(2i + 1, n) in its high half.
struct PairFactors {
  const std::uint16_t* a = nullptr;
  const std::uint32_t* b = nullptr;
};

/// C [m, n] = Σ A·B, or C += Σ A·B with `add`, over `count` pairs of factors of the same layout. m and n are
/// multiples of 16, k of 32.
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
  /// Called before and after the products of a block of queries, on one thread. Mods run in between, which
  /// may be a user's code. Null: nothing to do.
  void (*begin)() = nullptr;
  void (*end)() = nullptr;
};

/// Calls an engine's begin() and end() around the products of a block, also where a user's mod throws.
class EngineUse {
 public:
  explicit EngineUse(const TileEngine& engine) : engine_(engine) {
    if (engine_.begin) engine_.begin();
  }
  ~EngineUse() {
    if (engine_.end) engine_.end();
  }
  EngineUse(const EngineUse&) = delete;
  EngineUse& operator=(const EngineUse&) = delete;

 private:
  const TileEngine& engine_;
};

/// AMX-BF16: begin() sets up the tile registers, end() releases them. Null with other compilers and
/// processors than 64-bit x86.
const TileEngine* amx_engine();
/// `vdpbf16ps`.
const TileEngine* dot_engine();
/// Null where this CPU and system run the engine, else what is missing. The first call asks the system for
/// AMX's registers.
const char* amx_absence();
const char* dot_absence();
/// The same for AVX-512, with all extensions that the kernels use.
const char* avx512_absence();

/// For tests on machines without AMX, which trap its instructions and emulate them.
void assume_amx(bool present);

}  // namespace fovea::kernels
