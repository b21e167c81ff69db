// What is here: what a kernel receives. Pointers and sizes that the plan has checked, and the mask, from
// which a kernel makes a schedule of its work (kernels/schedule.h).
//
// What is not here: specs, checks of shapes and types of masks. No kernel sees them, so another mask or mod
// adds nothing to compile. To read on: kernels/candidate.h, the list of kernels, then
// kernels/flash/tiled-inl.h, which runs most calls.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fovea/attention/mask.h"
#include "fovea/attention/mask_definition.h"
#include "fovea/attention/normalizer.h"
#include "fovea/attention/precision.h"
#include "fovea/core/dtype.h"
#include "fovea/core/executor.h"
#include "kernels/mods.h"
#include "kernels/operand.h"
#include "kernels/simd/cached_rows.h"

namespace fovea::kernels {

enum class ScoreKind : std::uint8_t { dot, additive, coverage };

/// What a kernel reads and writes in 16 bits where the problem is stored in bf16 or f16. `everything`
/// includes the output. The plan widens the other operands to f32 before the kernel, and rounds an f32 output
/// after it.
enum class In16Bits : std::uint8_t { nothing, keys_and_values, everything };

/// One argument of the normaliser: numbers of each query head, or of all heads together.
template <class T>
struct NormalizerArgument {
  const T* data = nullptr;       ///< null: the call has none
  std::int64_t elements = 0;     ///< the numbers of one head, one behind the other
  std::int64_t head_stride = 0;  ///< 0: the same numbers for all heads
  const T* of(std::int64_t head) const { return data ? data + head * head_stride : nullptr; }
};
inline constexpr int most_normalizer_arguments = 2;

/// T is float or double. The plan widens 16-bit operands before a kernel sees them, except those that
/// Candidate::in_16_bits names.
template <class T>
struct Problem {
  std::int64_t batch = 0, query_heads = 0, kv_heads = 0, query_len = 0, key_len = 0;
  /// The number that entry 0 has in the caller's batch, which masks, mods, dropout and samples use. The
  /// pointers of operands, arguments and offsets already begin at that entry.
  std::int64_t first_entry = 0;
  std::int64_t score_dim = 0;  ///< dot: elements of q and k after any projection; additive: the hidden size
  std::int64_t value_dim = 0;
  ScoreKind score = ScoreKind::dot;
  double scale = 1.0;
  Operand<const T*> query, key, value;
  /// Operands in 16 bits, as the caller stores them. Where they are set, key.data and value.data are null,
  /// and with In16Bits::everything query.data is null too.
  Operand<const std::uint16_t*> stored_query, stored_key, stored_value;
  DType stored_dtype = DType::f32;
  /// In the place of key and value, or of stored_key and stored_value, for candidates that read a cache in
  /// place. The batch is then 1. The mask hides the rows that the cache lacks.
  CachedRows cached;
  /// The result of a row depends on its own sequence alone: on no other query of the call, no other entry,
  /// and not on where rows lie. So tiles and chunks of keys are cut at fixed positions.
  bool by_position = false;
  DType operand_dtype = DType::f32;  ///< the type of the caller's query, key and value, also where they have
                                     ///< been widened
  Precision precision = Precision::full;
  const T* additive_vector = nullptr;  ///< v [score_dim]; W q + b and U k are already in query and key
  const T* coverage_vector = nullptr;  ///< coverage: w [score_dim]
  const Mask* mask = nullptr;          ///< never null
  std::span<const std::int64_t> key_lengths;
  std::int64_t query_offset = 0;
  const std::int64_t* query_offsets = nullptr;  ///< [batch], instead of query_offset; may be null
  NormalizerKind normalizer = NormalizerKind::softmax;
  /// In the order in which the normaliser declares them.
  std::array<NormalizerArgument<T>, most_normalizer_arguments> normalizer_arguments;
  std::int64_t normalizer_elements = 0;  ///< of all of them together, for one query head
  /// softmax: [query_heads]. Scores are multiplied by this number and by the logarithm of how many keys the
  /// query sees. The last of `mods` does so already; the reference leaves that mod out and multiplies itself.
  const T* count_scale = nullptr;
  double normalizer_number = 0.0;  ///< sigmoid's bias, entmax's alpha, gumbel's temperature
  std::uint64_t sample_seed = 0;
  /// All scores of a row are needed at once: by the normaliser, by weight mods, by coverage, by gradients of
  /// the weights, or by the candidate that runs (flash/whole_rows-inl.h). Backward then splits the queries
  /// into groups, and otherwise the keys.
  bool whole_row = false;
  /// Gradients of the mods' arguments are added to what the tensors hold. Otherwise they overwrite it.
  bool adds_mod_gradients = false;
  bool has_mods = false, has_weight_mods = false,
       shared_dense_gradient = false;  ///< facts about the mods, for code of one instruction set, which may
                                       ///< not call their members
  ProblemMods<T> mods, weight_mods;
  double dropout_rate = 0.0;  ///< attention/dropout derives the threshold and the scale of kept weights
  std::uint64_t dropout_seed = 0;
};

/// Softmax: the score whose exponential is one more term of the sum of each row of that query head. Null:
/// none.
template <class T>
const T* sink_of(const Problem<T>& p, std::int64_t head) {
  return p.normalizer == NormalizerKind::softmax ? p.normalizer_arguments[0].of(head) : nullptr;
}

/// The position of query row `row` of entry b among the keys, which masks, mods, dropout and samples use.
template <class T>
std::int64_t position_of(const Problem<T>& p, std::int64_t b, std::int64_t row) {
  return row + (p.query_offsets ? p.query_offsets[b] : p.query_offset);
}

/// The number of entry b in the caller's batch.
template <class T>
std::int64_t entry_of(const Problem<T>& p, std::int64_t b) {
  return p.first_entry + b;
}

template <class T>
struct ForwardOutputs {
  Operand<T*> output;                          ///< data null: not wanted, or written to stored_output
  Operand<std::uint16_t*> stored_output;       ///< with In16Bits::everything: the output in the problem's
                                               ///< 16-bit type
  T* log_sum_exp = nullptr;                    ///< [batch, query_heads, query_len] contiguous; may be null
  Operand<T*> weights;                         ///< [batch, slots of heads, slots of rows, key_len]; data
                                               ///< null: not wanted
  std::span<const std::int64_t> weight_heads;  ///< empty: all heads
  std::span<const std::int64_t> weight_rows;   ///< empty: all query rows
};

/// A chunk of keys by position (Problem::by_position) of the entries [first, first + count). Before position
/// `end` the same memory holds the keys of all of them.
struct SharedChunk {
  std::int64_t chunk = 0, first = 0, count = 0, end = 0;
};

/// Entries of a cache in one call. What some of them share is read once for all of these. A row has the bits
/// that it has in a call of its own. Every chunk of every entry stands in the list once.
template <class T>
struct Together {
  const Problem<T>* const* problems = nullptr;  ///< of one plan, each with a batch of 1
  const ForwardOutputs<T>* outputs = nullptr;   ///< of each problem, without weights
  std::int64_t count = 0;
  const SharedChunk* chunks = nullptr;
  std::int64_t chunk_count = 0;
};

template <class T>
struct BackwardProblem {
  Operand<const T*> output, d_output;
  const T* log_sum_exp = nullptr;       ///< [batch, query_heads, query_len]
  Operand<T*> d_query, d_key, d_value;  ///< data null: not wanted
  T* d_additive_vector = nullptr;       ///< [score_dim]; null: not wanted
  // Whole-row problems only.
  T* d_coverage_vector = nullptr;  ///< [score_dim]
  T* d_normalizer = nullptr;       ///< [query_heads, normalizer_elements]; not for softmax, whose sink's
                                   ///< gradient the plan computes
  T* mean = nullptr;               ///< [batch, query_heads, query_len]: Σ P·dP of each row, for the sink
  const T* advantage = nullptr;    ///< sample: [batch, query_heads, query_len], the loss of each row less a
                                   ///< baseline
  Operand<const T*> d_weights;     ///< derivative by the returned weights; data null: none
  std::span<const std::int64_t> weight_heads, weight_rows;  ///< the heads and rows of d_weights, as in
                                                            ///< ForwardOutputs
};

}  // namespace fovea::kernels
