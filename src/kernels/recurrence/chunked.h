// The fast kernels of recurrences: chunks of tokens by matrix products. Written once over Highway's vectors
// and compiled for each instruction set, as kernels/flash is. Read recurrence/chunk-inl.h first, then
// chunked_forward-inl.h.
//
// A unit of work is a (sequence, state head, tile of value columns): columns of a state never mix. So the
// bits depend neither on the number of threads nor on the other sequences of a call.
#pragma once

#include <vector>

#include "kernels/recurrence/candidate.h"

namespace fovea::kernels {

/// The tokens of a chunk. In f32 larger chunks save nothing: the products of pairs grow with the chunk.
inline constexpr std::int64_t recurrence_chunk = 16;
/// The value columns of a unit, about. Each tile computes the products of pairs again. For 128 channels on
/// AVX2 two tiles of 64 columns take up to a third more time than one of 128. That one's state does not fit
/// the first-level cache.
inline constexpr std::int64_t recurrence_tile = 128;
/// Up to this many tokens of a sequence, one token after the other is faster than a chunk.
inline constexpr std::int64_t recurrence_step_tokens = 4;
/// Backward keeps the states before all chunks of a segment, as many as these bytes hold, and at least 8.
/// With several segments it keeps the state before each, and computes the others a second time.
inline constexpr std::int64_t recurrence_segment_bytes = 4 << 20, recurrence_segment_chunks = 8;

/// Best first: "avx512 step" (recurrence/step-inl.h), "avx512 chunked", then those of "avx2" and "baseline".
std::vector<RecurrenceCandidate> chunked_recurrence_candidates();

/// The code in f64 of those two algorithms for each instruction set, in the order of FOVEA_FOR_EACH_ISA.
const RecurrenceCode<double>* const* chunked_f64_codes();

/// Products of pairs of bf16 numbers (recurrence/bf16_terms-inl.h), best first: "amx chunked" and "avx512bf16
/// chunked", where AVX-512 is compiled in.
std::vector<RecurrenceCandidate> bf16_recurrence_candidates();
/// The same code over products that any CPU computes, for checks: "pairs chunked". It runs only if its
/// whole name is given. None where the build leaves the baseline out.
std::vector<RecurrenceCandidate> portable_bf16_recurrence_candidates();

}  // namespace fovea::kernels
