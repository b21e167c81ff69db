// The kernels of recurrences, as candidates of make_recurrence_plan: an algorithm compiled for an instruction
// set. kernels/candidate.h has those of attention, and the instruction sets.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "kernels/candidate.h"
#include "kernels/recurrence/problem.h"

namespace fovea::kernels {

/// What the plan knows of its calls before they come.
struct RecurrenceRequest {
  WriteKind write = WriteKind::additive;
  DecayKind decay = DecayKind::none;
  ReadKind read = ReadKind::after_write;
  std::int64_t len = 0;  ///< the most tokens of a sequence
};

/// The functions of a candidate for problems of T. `memory` has at least the bytes that the matching function
/// asked for.
template <class T>
struct RecurrenceCode {
  std::size_t (*forward_bytes)(const RecurrenceProblem<T>&, int threads) = nullptr;
  void (*forward)(const RecurrenceProblem<T>&, const RecurrenceResults<T>&, Executor&,
                  std::byte* memory) = nullptr;
  std::size_t (*backward_bytes)(const RecurrenceProblem<T>&, int threads) = nullptr;
  void (*backward)(const RecurrenceProblem<T>&, const RecurrenceGradientProblem<T>&, Executor&,
                   std::byte* memory) = nullptr;
};

struct RecurrenceCandidate {
  std::string name = {};  ///< "avx2 chunked"
  const Isa* isa = nullptr;
  /// Null where it can run such calls, else the reason.
  const char* (*refuse)(const RecurrenceRequest&) = nullptr;
  /// Null where no candidate behind it is faster, else the reason. A plan that names this candidate does not
  /// ask. If there is no function, it is always the better one.
  const char* (*slower)(const RecurrenceRequest&) = nullptr;
  std::int64_t chunk = 1;  ///< a sequence cut at multiples of this many tokens keeps its bits
  RecurrenceCode<float> f32 = {};
  RecurrenceCode<double> f64 = {};

  template <class T>
  const RecurrenceCode<T>& code() const {
    if constexpr (sizeof(T) == sizeof(double))
      return f64;
    else
      return f32;
  }
};

/// All candidates that are compiled in, best first, the reference last.
std::span<const RecurrenceCandidate> recurrence_candidates();

}  // namespace fovea::kernels
