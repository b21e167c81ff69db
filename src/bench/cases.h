// What is here: the rows of `fovea bench kernels`, and the limits that they are compared with. This header is
// arithmetic on sizes and touches no tensor. What is not here: the probes that measure the limits
// (bench/probes.h) and the loop that times a row (bench/measure.h). Read this header first, then
// bench/measure.h.
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
                      ///< "sentences". "high" and "higher" are prefill in f32 at that precision. "small" is a
                      ///< call of almost no arithmetic, whose time is what a call costs.
  BenchShape shape;
  std::string mask = "everything";
  std::string score = "scaled-dot";
  DType dtype = DType::f32;
  Pass pass = Pass::forward;
  /// Of f32 operands. Below full precision, `beside` is the same call at full precision.
  Precision precision = Precision::full;
  /// Another call that Fovea's time is compared with. "dense": the dense call of as many pairs. "tile": the
  /// call with the next larger sizes that fill AMX's tile registers. "full": the call at full precision.
  BenchShape beside = {};
  std::string beside_name = {};  ///< which of these calls; empty: none

  /// "prefill bf16 forward 1,16,16,1024,1024,64 causal".
  std::string name() const;
};

enum class CaseSet : std::uint8_t { all, quick };
/// All rows, in the order of the table. `quick` has small shapes, one of each kind.
std::vector<BenchCase> bench_cases(CaseSet set);

AttentionSpec spec_of(const BenchCase& c);
AttentionShape shape_of(const BenchShape& shape);
std::string to_string(const BenchShape& shape);
const char* to_string(Pass pass) noexcept;

/// The pairs of query and key that the mask keeps, in one batch entry and head. The last query is aligned
/// with the last key.
std::int64_t visible_pairs(const Mask& mask, std::int64_t query_len, std::int64_t key_len);

/// The least work of a case, for the pairs that the mask keeps.
struct Work {
  double pairs = 0;         ///< in all heads and batch entries
  double flops = 0;         ///< of the matrix products: two forward, five backward
  double exponentials = 0;  ///< one for each pair
  double tanhs = 0;         ///< additive scores: as many for each pair as the hidden size
  double bytes = 0;         ///< each operand and each result counts once
};
Work work_of(const BenchCase& c);

/// The rate of each probe, measured at one moment; 0 where the machine lacks it.
struct Rates {
  double of[std::size(all_probes)] = {};
  double operator[](Probe probe) const { return of[static_cast<std::size_t>(probe)]; }
};
/// A unit of the processor that the products of a case may use, and how many of its products make one of the
/// case.
struct Engine {
  Probe probe;
  int products = 1;
};
std::vector<Engine> product_engines(const BenchCase& c);
/// The probes of the units that the exponentials may use.
std::vector<Probe> exponential_probes(DType dtype);
/// The probes that the limit of a case needs.
std::vector<Probe> probes_of(const BenchCase& c);

/// The seconds that each part would need alone; the limit is the largest of them.
struct Limit {
  double product = 0, exponential = 0, bytes = 0;
  double seconds() const;
  const char* bound() const;  ///< "product", "exponential", "tanh" or "bytes"
  bool tanh = false;
};
Limit limit_of(const BenchCase& c, const Work& work, const Rates& rates);

}  // namespace fovea::bench
