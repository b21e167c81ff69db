// The rows of `fovea bench kernels` and the limits that they are held against: arithmetic on sizes, none on
// tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/probes.h"
#include "fovea/core/dtype.h"
#include "fovea/plan/plan.h"

namespace fovea::bench {

enum class Pass : std::uint8_t { forward, backward };

struct BenchShape {
  std::int64_t batch = 1, query_heads = 1, kv_heads = 1, query_len = 1, key_len = 1, head_dim = 64;
};

struct BenchCase {
  std::string group;  ///< "prefill", "window", "documents", "decode", "backward", "additive", "odd",
                      ///< "high" and "higher": prefill in f32 at that precision; "small": a call of almost no
                      ///< arithmetic, whose time is what a call costs
  BenchShape shape;
  std::string mask = "everything";
  std::string score = "scaled-dot";
  DType dtype = DType::f32;
  Pass pass = Pass::forward;
  /// Of f32; then `beside` is the same call in full.
  Precision precision = Precision::full;
  /// What Fovea's time is also compared with: the dense call of as many pairs, or the next tile's multiple.
  BenchShape beside = {};
  std::string beside_name = {};  ///< "dense", "tile", "full"; empty: none

  /// "prefill bf16 forward 1,16,16,1024,1024,64 causal".
  std::string name() const;
};

enum class CaseSet : std::uint8_t { all, quick };
/// Every row, in the order of the table; `quick` has small shapes, one of each kind.
std::vector<BenchCase> bench_cases(CaseSet set);

AttentionSpec spec_of(const BenchCase& c);
AttentionShape shape_of(const BenchShape& shape);
std::string to_string(const BenchShape& shape);
const char* to_string(Pass pass) noexcept;

/// Pairs of a query and a key that the mask lets meet, in one batch entry and head; queries are aligned at
/// the end of the keys.
std::int64_t visible_pairs(const Mask& mask, std::int64_t query_len, std::int64_t key_len);

/// What must be done at least, by the pairs that the mask keeps.
struct Work {
  double pairs = 0;         ///< all heads and batch entries together
  double flops = 0;         ///< of the products: two forward, five backward
  double exponentials = 0;  ///< one a pair
  double tanhs = 0;         ///< additive scores: hidden a pair
  double bytes = 0;         ///< each operand and each result once
};
Work work_of(const BenchCase& c);

/// Rates of one moment; 0 where absent.
struct Rates {
  double of[std::size(all_probes)] = {};
  double operator[](Probe probe) const { return of[static_cast<std::size_t>(probe)]; }
};
/// An engine that a case's products may use at best, and how many of its products one takes.
struct Engine {
  Probe probe;
  int products = 1;
};
std::vector<Engine> product_engines(const BenchCase& c);
/// Those that its exponentials may use.
std::vector<Probe> exponential_probes(DType dtype);
/// The probes that the limit of a case needs.
std::vector<Probe> probes_of(const BenchCase& c);

/// Seconds that each part needs alone; the limit is the largest.
struct Limit {
  double product = 0, exponential = 0, bytes = 0;
  double seconds() const;
  const char* bound() const;  ///< "product", "exponential", "tanh" or "bytes"
  bool tanh = false;
};
Limit limit_of(const BenchCase& c, const Work& work, const Rates& rates);

}  // namespace fovea::bench
