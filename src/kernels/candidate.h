// What can run a call: an algorithm, compiled for an instruction set. make_plan chooses among candidates,
// once a duty (plan/choice.h), and nothing below it chooses again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "kernels/problem.h"

namespace fovea::kernels {

/// What a call asks for.
enum class Duty : std::uint8_t {
  forward,              ///< the output, the log-sum-exp
  weights,              ///< the weights of all rows, beside an output
  weights_alone,        ///< weights without an output, or of chosen rows, each of which is a query by itself
  backward,             ///< gradients of a loss of the output
  backward_of_weights,  ///< of a loss that depends on the weights too
};
inline constexpr std::size_t duty_count = 5;
constexpr bool is_backward(Duty duty) {
  return duty >= Duty::backward;
}

/// What make_plan knows of its calls: all but their lengths.
struct Request {
  Duty duty = Duty::forward;
  ScoreKind score = ScoreKind::dot;
  DType dtype = DType::f32;
  Precision precision = Precision::full;
  /// Queries, and keys, reach the kernel as other rows than those given, in f32.
  bool queries_mapped = false, keys_mapped = false;
  bool values = true;  ///< value_dim is not 0
  bool mods = false, dropout = false;
  bool whole_row = false;      ///< Problem::whole_row is needed, whichever candidate runs
  bool parts_of_keys = false;  ///< the keys of a call may be some of several calls'
  NormalizerKind normalizer = NormalizerKind::softmax;
  double scale = 1.0;
};

/// Counts of queries, first to last.
struct QueryCounts {
  std::int64_t first = 1, last = std::numeric_limits<std::int64_t>::max();
};

/// An instruction set, as PlanOptions::kernel and FOVEA_ISA name it.
struct Isa {
  const char* name = "";
  /// Whose candidates run what those of this one do not; null: these run everything.
  const Isa* base = nullptr;
  const char* (*absence)() = nullptr;  ///< null where this CPU and system have it, else what is missing
  ModIsa mods = ModIsa::any;           ///< which code of a mod its candidates call
};

/// The functions of a candidate for problems of T; null where it has none. `memory` has the bytes that were
/// asked for, or more; a call of a smaller problem needs no more than a larger one.
template <class T>
struct Code {
  std::size_t (*forward_bytes)(const Problem<T>&, int threads) = nullptr;
  void (*forward)(const Problem<T>&, const ForwardOutputs<T>&, Executor&, std::byte* memory) = nullptr;
  std::size_t (*backward_bytes)(const Problem<T>&, int threads) = nullptr;
  void (*backward)(const Problem<T>&, const BackwardProblem<T>&, Executor&, std::byte* memory) = nullptr;
};

struct Candidate {
  std::string name = {};  ///< "avx512 split"
  const Isa* isa = nullptr;
  /// Null where it can run such calls, whatever their lengths, else the reason why not.
  const char* (*refuse)(const Request&) = nullptr;
  /// The counts of queries for which it is better than all candidates behind it; null: any.
  QueryCounts (*best_for)(const Request&) = nullptr;
  /// What forward reads of 16-bit operands as they are stored; null: nothing.
  In16Bits (*in_16_bits)(const Request&) = nullptr;
  bool whole_rows = false;  ///< it works by whole rows, so Problem::whole_row is to be set
  /// A block of queries, for which the mask is asked at once (0: all of a call), and a tile of keys.
  std::int64_t block_queries = 0, tile_keys = 0;
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
