// What is here: `Candidate`, an algorithm compiled for an instruction set, and what make_plan asks it.
// make_plan chooses among the candidates, once for each duty (plan/choice.h). No code below it chooses again.
//
// What is not here: the algorithms (flash, tiles, reference) and the types of masks, scores and mods. Read
// kernels/problem.h first: it is what a kernel receives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "fovea/attention/mod_node.h"
#include "kernels/problem.h"

namespace fovea::kernels {

/// The results that a call asks for.
enum class Duty : std::uint8_t {
  forward,              ///< the output, the log-sum-exp
  weights,              ///< the output, and the weights of all rows
  weights_alone,        ///< weights without an output, or of chosen rows; each such row is computed as a
                        ///< query by itself
  forward_cached,       ///< the output, the log-sum-exp, of keys and values that are in a cache
  weights_cached,       ///< the output, and the weights of all rows, of keys and values that are in a cache
  backward,             ///< gradients of a loss of the output
  backward_of_weights,  ///< gradients of a loss that depends on the weights too
};
inline constexpr std::size_t duty_count = 7;
constexpr bool is_backward(Duty duty) {
  return duty >= Duty::backward;
}
/// Whether keys and values are in a cache. Then a row must not depend on how many queries a call brings.
constexpr bool is_cached(Duty duty) {
  return duty == Duty::forward_cached || duty == Duty::weights_cached;
}

/// What make_plan knows of its calls before they come: everything except their lengths.
struct Request {
  Duty duty = Duty::forward;
  ScoreKind score = ScoreKind::dot;
  DType dtype = DType::f32;
  Precision precision = Precision::full;
  /// Whether a matrix or a norm changes the rows of queries, or of keys, before the kernel. Those rows reach
  /// it in f32.
  bool queries_mapped = false, keys_mapped = false;
  std::int64_t heads_of_a_key = 1;  ///< query heads that share a head of keys
  bool values = true;               ///< value_dim is not 0
  bool mods = false, dropout = false;
  bool whole_row = false;      ///< Problem::whole_row is needed, whichever candidate runs
  bool parts_of_keys = false;  ///< a call may bring only some of the keys of its rows; the results of several
                               ///< calls are then merged
  NormalizerKind normalizer = NormalizerKind::softmax;
  double scale = 1.0;
};

/// The counts of queries from `first` to `last`, both included.
struct QueryCounts {
  std::int64_t first = 1, last = std::numeric_limits<std::int64_t>::max();
};

/// An instruction set, as PlanOptions::kernel and FOVEA_ISA name it.
struct Isa {
  const char* name = "";
  /// The instruction set whose candidates run what the candidates of this one refuse. Null: they run
  /// everything.
  const Isa* base = nullptr;
  const char* (*absence)() = nullptr;  ///< null where this CPU and system have it, else what is missing
  ModIsa mods = ModIsa::any;           ///< which of a mod's functions its candidates call
  bool multiplies_bf16 = false;        ///< the CPU has products of bf16; candidates of others widen operands
};

/// The functions of a candidate for problems of T; null where it has none. `memory` has at least the bytes
/// that the matching function asked for. A smaller problem never needs more bytes than a larger one.
template <class T>
struct Code {
  std::size_t (*forward_bytes)(const Problem<T>&, int threads) = nullptr;
  void (*forward)(const Problem<T>&, const ForwardOutputs<T>&, Executor&, std::byte* memory) = nullptr;
  std::size_t (*backward_bytes)(const Problem<T>&, int threads) = nullptr;
  void (*backward)(const Problem<T>&, const BackwardProblem<T>&, Executor&, std::byte* memory) = nullptr;
  /// Forward for `count` cached entries at once. Null if the candidate can only compute them one by one.
  std::size_t (*together_bytes)(const Problem<T>& largest, std::int64_t count, int threads) = nullptr;
  void (*forward_together)(const Together<T>&, Executor&, std::byte* memory) = nullptr;
};

struct Candidate {
  std::string name = {};  ///< "avx512 split"
  const Isa* isa = nullptr;
  /// Null where it can run such calls, whatever their lengths, else the reason.
  const char* (*refuse)(const Request&) = nullptr;
  /// The counts of queries for which it is better than every candidate after it. Null: any count.
  QueryCounts (*best_for)(const Request&) = nullptr;
  /// The most keys of the calls that it is better for. 0: any number. Calls of more keys run on the best of
  /// the other candidates.
  std::int64_t most_keys = 0;
  /// What forward reads and writes in 16 bits. Null: nothing.
  In16Bits (*in_16_bits)(const Request&) = nullptr;
  bool reads_cache = false;  ///< forward reads Problem::cached; for the others the plan gathers the rows
  bool whole_rows = false;   ///< it computes whole rows of scores, so the caller sets Problem::whole_row
  /// The queries of a block, for which the mask is asked once (0: all queries of a call), and the keys of a
  /// tile.
  std::int64_t block_queries = 0, tile_keys = 0;
  /// The keys of a chunk of forward_together. Null where there is no forward_together.
  std::int64_t (*cached_chunk_keys)(std::int64_t kv_heads) = nullptr;
  Code<float> f32 = {};
  Code<double> f64 = {};

  template <class T>
  const Code<T>& code() const {
    if constexpr (sizeof(T) == sizeof(double))
      return f64;
    else
      return f32;
  }
};

/// Refuses a score that is not a dot product of query and key. Null where it is one.
const char* refuse_other_scores(const Request& request);
/// Refuses a request that needs all scores of a row at once (Problem::whole_row). Null where it does not.
const char* refuse_whole_row(const Request& request);

/// All candidates that are compiled in, best first, the reference last.
std::span<const Candidate> candidates();

}  // namespace fovea::kernels
