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
  DType dtype = DType::f32;
  std::int64_t len = 0;  ///< the most tokens of a sequence
};

/// The functions of a candidate for one type of numbers. `memory` has at least the bytes that the matching
/// function asked for.
template <class Problem, class Results, class GradientProblem>
struct KernelCode {
  std::size_t (*forward_bytes)(const Problem&, int threads) = nullptr;
  void (*forward)(const Problem&, const Results&, Executor&, std::byte* memory) = nullptr;
  std::size_t (*backward_bytes)(const Problem&, int threads) = nullptr;
  void (*backward)(const Problem&, const GradientProblem&, Executor&, std::byte* memory) = nullptr;
  /// The elements of what forward can save for backward; null: this kernel saves nothing.
  std::int64_t (*saved_count)(const Problem&) = nullptr;
};

/// An algorithm for an instruction set, in f32 and f64.
template <template <class> class Code>
struct CompiledKernel {
  std::string name = {};  ///< "avx2 chunked"
  const Isa* isa = nullptr;
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

template <class T>
using RecurrenceCode = KernelCode<RecurrenceProblem<T>, RecurrenceResults<T>, RecurrenceGradientProblem<T>>;

struct RecurrenceCandidate : CompiledKernel<RecurrenceCode> {
  /// Null where it can run such calls, else the reason.
  const char* (*refuse)(const RecurrenceRequest&) = nullptr;
  /// Null where no candidate behind it is faster, else the reason. A plan that names this candidate does not
  /// ask. If there is no function, it is always the better one.
  const char* (*slower)(const RecurrenceRequest&) = nullptr;
  std::int64_t chunk = 1;  ///< a sequence cut at multiples of this many tokens keeps its bits
  /// Whether the kernel makes features and sums of keys of additive writes, in place of the plan's copies.
  bool maps = false;
};

/// All candidates that are compiled in, best first, the reference last.
std::span<const RecurrenceCandidate> recurrence_candidates();

}  // namespace fovea::kernels
