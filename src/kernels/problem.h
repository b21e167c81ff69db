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

/// Blocks of the fused kernels: tiled ones take 48 queries (eight register tiles of 6 rows) by 128 keys, the
/// ones for few queries and additive scores 16.
inline constexpr std::int64_t tiled_queries = 48, direct_queries = 16, tile_keys = 128;
/// Up to so many queries are not worth packing the keys for in backward.
inline constexpr std::int64_t most_direct_queries = 4;
/// And in forward, where four rows share what is read of a key: of f32 (16 heads of 64, 4,096 keys, two
/// threads: 8 queries take 1.0 ms so and 1.1 packed, 16 take 1.8 and 1.7), of 16 bits, which would have to be
/// widened before (f16: 32 take 3.3 and 5), and by dot products of bf16 (16: 0.8 and 1.1; 32: 1.6 and 1.5).
inline constexpr std::int64_t most_split_queries = 8, most_split_16_bit = 32, most_split_dots = 16;

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
enum class Stored : std::uint8_t { none, keys_and_values, all };

/// T is float or double: 16-bit inputs are widened by the plan's caller layer before a kernel sees them, but
/// for what reads_stored names.
template <class T>
struct Problem {
  std::int64_t batch = 0, query_heads = 0, kv_heads = 0, query_len = 0, key_len = 0;
  std::int64_t score_dim = 0;  ///< dot: elements of q and k after any projection; additive: hidden
  std::int64_t value_dim = 0;
  ScoreKind score = ScoreKind::dot;
  double scale = 1.0;
  Operand<const T*> query, key, value;
  /// Operands as they are stored, where that is bf16 or f16: then key.data and value.data are null, and with
  /// Stored::all query.data too.
  Operand<const std::uint16_t*> stored_query, stored_key, stored_value;
  DType stored = DType::f32;
  DType operands = DType::f32;  ///< what query, key and value hold, widened or not
  Precision precision = Precision::full;
  const T* additive_vector = nullptr;  ///< v [score_dim]; W q + b and U k are already in query and key
  const T* coverage_vector = nullptr;  ///< coverage: w [score_dim]
  const Mask* mask = nullptr;          ///< never null
  std::span<const std::int64_t> key_lengths;
  std::int64_t query_offset = 0;
  NormalizerKind normalizer = NormalizerKind::softmax;
  const T* sink = nullptr;    ///< softmax: [query_heads], one more term of each row's sum; null: none
  double sigmoid_bias = 0.0;  ///< sigmoid: added to the score
  double entmax_alpha = 2.0;  ///< entmax; 2 is sparsemax
  double temperature = 1.0;   ///< gumbel: of the gradient's softmax
  std::uint64_t sample_seed = 0;
  const T* transitions = nullptr;  ///< chain: [2, 2] at transition_stride · head
  std::int64_t transition_stride = 0;
  /// A row's scores are all needed at once: by the normaliser, by weight mods, by coverage, or by gradients
  /// of the weights. Such problems have kernels of their own (flash_rows-inl.h), whose backward splits
  /// queries, not keys, into groups.
  bool whole_row = false;
  bool has_mods = false, has_weight_mods = false,
       shared_dense_gradient = false;  ///< of the mods, for code that may not call their members
  ProblemMods<T> mods, weight_mods;
  double dropout_rate = 0.0;  ///< see attention/dropout: keep threshold and scale are derived there
  std::uint64_t dropout_seed = 0;
};

template <class T>
struct ForwardOutputs {
  Operand<T*> output;                          ///< data null: not wanted, or
  Operand<std::uint16_t*> stored_output;       ///< of problems with Stored::all, in their type
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

/// What make_plan knows of a call.
struct Request {
  ScoreKind score = ScoreKind::dot;
  DType dtype = DType::f32;
  Precision precision = Precision::full;
  bool projected = false;  ///< queries or keys reach the kernel through a matrix, in f32
  bool mods = false, whole_row = false, dropout = false;
  NormalizerKind normalizer = NormalizerKind::softmax;
  double scale = 1.0;
};

/// One kernel: a name and what it can do. Candidates stand in one ordered list (candidates.cpp), best first,
/// reference last.
struct KernelTable {
  const char* name = "";  ///< "avx512 flash", "reference"
  const char* isa = "";   ///< what FOVEA_ISA calls it: "avx512", "avx2", "baseline", "reference"
  std::size_t (*forward_workspace)(const Problem<float>&, int threads) = nullptr;
  std::size_t (*backward_workspace)(const Problem<float>&, int threads) = nullptr;
  std::size_t (*forward_workspace_f64)(const Problem<double>&, int threads) = nullptr;
  std::size_t (*backward_workspace_f64)(const Problem<double>&, int threads) = nullptr;
  void (*forward)(const Problem<float>&, const ForwardOutputs<float>&, Executor&,
                  std::span<std::byte>) = nullptr;
  void (*backward)(const Problem<float>&, const BackwardProblem<float>&, Executor&,
                   std::span<std::byte>) = nullptr;
  void (*forward_f64)(const Problem<double>&, const ForwardOutputs<double>&, Executor&,
                      std::span<std::byte>) = nullptr;
  void (*backward_f64)(const Problem<double>&, const BackwardProblem<double>&, Executor&,
                       std::span<std::byte>) = nullptr;
  /// What forward takes of such a problem as it is stored. nullptr: nothing.
  Stored (*reads_stored)(const Problem<float>&) = nullptr;
  const char* (*absence)() = nullptr;  ///< null where this CPU runs it, else what is missing
  /// nullptr when accepted, else the reason for the refusal.
  const char* (*refuse)(const Request&) = nullptr;
  /// Where this kernel is forced, what takes the requests that it refuses; nullptr: it refuses none.
  const KernelTable* otherwise = nullptr;
  /// Blocks of queries and tiles of keys of calls with many queries.
  std::int64_t block_queries = tiled_queries, block_keys = tile_keys;
  /// Up to so many queries of this type are one block, by tiles of tile_keys; null: none.
  std::int64_t (*few_queries)(DType) = nullptr;
};

/// All kernels compiled in, best first.
std::span<const KernelTable* const> candidates();

}  // namespace fovea::kernels
