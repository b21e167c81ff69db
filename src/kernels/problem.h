// What a kernel is handed: pointers and sizes already checked by the plan, the mask already a schedule. No
// spec, no shape validation and no mask types reach a kernel, so adding a mask or a mod multiplies nothing
// here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fovea/attention/mask.h"
#include "fovea/attention/normalizer.h"
#include "fovea/attention/precision.h"
#include "fovea/core/dtype.h"
#include "fovea/core/executor.h"
#include "kernels/mods.h"

namespace fovea::kernels {

enum class ScoreKind : std::uint8_t { dot, additive, coverage };

/// A 4-D operand [batch, heads, rows, dim], innermost contiguous; strides in elements.
template <class Pointer>
struct Operand {
  Pointer data = nullptr;
  std::int64_t batch_stride = 0, head_stride = 0, row_stride = 0;
  auto* row(std::int64_t b, std::int64_t h, std::int64_t r) const {
    return data + b * batch_stride + h * head_stride + r * row_stride;
  }
};

/// What of a 16-bit problem a kernel reads as it is stored; the rest is widened for it.
enum class In16Bits : std::uint8_t { nothing, keys_and_values, everything };

/// T is float or double: 16-bit inputs are widened by the plan's caller layer before a kernel sees them, but
/// for what Candidate::in_16_bits names.
template <class T>
struct Problem {
  std::int64_t batch = 0, query_heads = 0, kv_heads = 0, query_len = 0, key_len = 0;
  /// Which entry of the caller's batch entry 0 is: for masks, mods, dropout and samples. Operands, arguments
  /// and offsets begin at it.
  std::int64_t first_entry = 0;
  std::int64_t score_dim = 0;  ///< dot: elements of q and k after any projection; additive: hidden
  std::int64_t value_dim = 0;
  ScoreKind score = ScoreKind::dot;
  double scale = 1.0;
  Operand<const T*> query, key, value;
  /// Operands as they are stored, where that is bf16 or f16: then key.data and value.data are null, and with
  /// In16Bits::everything query.data too.
  Operand<const std::uint16_t*> stored_query, stored_key, stored_value;
  DType stored_dtype = DType::f32;
  DType operand_dtype = DType::f32;  ///< what query, key and value hold, widened or not
  Precision precision = Precision::full;
  const T* additive_vector = nullptr;  ///< v [score_dim]; W q + b and U k are already in query and key
  const T* coverage_vector = nullptr;  ///< coverage: w [score_dim]
  const Mask* mask = nullptr;          ///< never null
  std::span<const std::int64_t> key_lengths;
  std::int64_t query_offset = 0;
  const std::int64_t* query_offsets = nullptr;  ///< [batch], in the place of query_offset; may be null
  NormalizerKind normalizer = NormalizerKind::softmax;
  const T* sink = nullptr;  ///< softmax: [query_heads], one more term of each row's sum; null: none
  /// softmax: [query_heads], of scores multiplied by this and the logarithm of how many keys the query sees.
  /// The last of the mods does that already; the reference leaves that mod out and multiplies itself.
  const T* count_scale = nullptr;
  double sigmoid_bias = 0.0;  ///< sigmoid: added to the score
  double entmax_alpha = 2.0;  ///< entmax; 2 is sparsemax
  double temperature = 1.0;   ///< gumbel: of the gradient's softmax
  std::uint64_t sample_seed = 0;
  const T* transitions = nullptr;  ///< chain: [2, 2] at transition_stride · head
  std::int64_t transition_stride = 0;
  /// A row's scores are all needed at once: by the normaliser, by weight mods, by coverage, by gradients of
  /// the weights, or by the candidate that runs (flash/whole_rows-inl.h). Backward then splits queries, not keys,
  /// into groups.
  bool whole_row = false;
  /// Gradients of the arguments of mods are added to what stands in them, not written over it.
  bool adds_mod_gradients = false;
  bool has_mods = false, has_weight_mods = false,
       shared_dense_gradient = false;  ///< of the mods, for code that may not call their members
  ProblemMods<T> mods, weight_mods;
  double dropout_rate = 0.0;  ///< see attention/dropout: keep threshold and scale are derived there
  std::uint64_t dropout_seed = 0;
};

/// Where query row `row` of entry b stands among the keys: for masks, mods, dropout and samples.
template <class T>
std::int64_t position_of(const Problem<T>& p, std::int64_t b, std::int64_t row) {
  return row + (p.query_offsets ? p.query_offsets[b] : p.query_offset);
}

/// Which entry of the caller's batch entry b is.
template <class T>
std::int64_t entry_of(const Problem<T>& p, std::int64_t b) {
  return p.first_entry + b;
}

template <class T>
struct ForwardOutputs {
  Operand<T*> output;                          ///< data null: not wanted, or
  Operand<std::uint16_t*> stored_output;       ///< of problems with In16Bits::everything, in their type
  T* log_sum_exp = nullptr;                    ///< [batch, query_heads, query_len] contiguous; may be null
  Operand<T*> weights;                         ///< row slot r of head slot h; data null: not wanted
  std::span<const std::int64_t> weight_heads;  ///< empty: all heads
  std::span<const std::int64_t> weight_rows;   ///< empty: all query rows
};

template <class T>
struct BackwardProblem {
  Operand<const T*> output, d_output;
  const T* log_sum_exp = nullptr;       ///< [batch, query_heads, query_len]
  Operand<T*> d_query, d_key, d_value;  ///< data null: not wanted
  T* d_additive_vector = nullptr;       ///< [score_dim]; null: not wanted
  // Whole-row problems only.
  T* d_coverage_vector = nullptr;  ///< [score_dim]
  T* d_transitions = nullptr;      ///< [query_heads, 2, 2]
  T* mean = nullptr;               ///< [batch, query_heads, query_len]: Σ P·dP of each row, for the sink
  const T* advantage = nullptr;    ///< sample: [batch, query_heads, query_len]
  Operand<const T*> d_weights;     ///< derivative by the returned weights; data null: none
  std::span<const std::int64_t> weight_heads, weight_rows;  ///< of d_weights, as in ForwardOutputs
};

}  // namespace fovea::kernels
