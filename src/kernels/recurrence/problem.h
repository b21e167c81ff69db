// What a kernel of a recurrence receives: pointers and sizes that the plan has checked. The mathematics is in
// fovea/recurrence/spec.h. Features and sums of keys are made by the plan, in copies of operands, or by a
// kernel that has RecurrenceCandidate::maps.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fovea/recurrence/spec.h"
#include "kernels/operand.h"

namespace fovea::kernels {

/// One sequence of a call. Sequence n owns state n. Its tokens are `count` rows of batch entry `entry`.
struct TokenSequence {
  std::int64_t entry = 0, begin = 0, count = 0;
  /// The rows in ascending order, where padding is left out; null: begin, begin + 1, ...
  const std::int64_t* rows = nullptr;
  std::int64_t row(std::int64_t token) const { return rows ? rows[token] : begin + token; }
};

/// The states of a call's sequences: side by side in one tensor, or each where its owner keeps it.
template <class T>
struct StatePlaces {
  T* data = nullptr;         ///< [sequences, ...]
  T* const* each = nullptr;  ///< [sequences], in the place of `data`
  explicit operator bool() const { return data || each; }
  /// Sequence n's, which has `size` numbers. Null: there is none.
  T* of(std::int64_t n, std::int64_t size) const { return each ? each[n] : data ? data + n * size : nullptr; }
};

/// What rows of queries and keys become where a kernel reads them.
enum class RowFeatures : std::uint8_t { identity, elu_plus_one };

/// Operands are [batch, heads, len, dim]; `data` is null for those that the rule does not have.
template <class T>
struct RecurrenceProblem {
  WriteKind write = WriteKind::additive;
  DecayKind decay = DecayKind::none;
  ReadKind read = ReadKind::after_write;
  std::int64_t query_heads = 0, key_heads = 0, heads = 0, key_dim = 0, value_dim = 0;
  double scale = 1.0;
  RowFeatures features = RowFeatures::identity;
  bool sums_keys =
      false;  ///< states have one column more, of sums of keys, and divide outputs by what is read there
  double epsilon = 0;  ///< sums_keys: added to what is read
  const TokenSequence* sequences = nullptr;
  std::int64_t sequence_count = 0;
  std::int64_t len = 0;      ///< of the operands
  std::int64_t rows = 0;     ///< batch · len
  std::int64_t longest = 0;  ///< the most tokens of one sequence, or more

  // Rows are in T, or in 16 bits where T is float.
  StoredOperand<const std::byte> query = {};  ///< query_heads
  StoredOperand<const std::byte> key = {};    ///< key_heads
  StoredOperand<const std::byte> value = {};  ///< heads
  StoredOperand<const std::byte> erase = {};  ///< delta: heads, rows of key_dim; null: the key
  StoredOperand<const std::byte> a = {};      ///< low_rank: heads, rows of key_dim
  StoredOperand<const std::byte> b = {};      ///< likewise
  Operand<const T*> log_decay = {};    ///< heads; rows of key_dim for DecayKind::key, else of 1. A constant
                                       ///< decay has strides of 0
  Operand<const T*> beta = {};         ///< delta: heads, rows of 1; null: 1
  Operand<const T*> self_weight = {};  ///< heads, rows of 1
  const T* bonus = nullptr;            ///< before_decay: [heads, key_dim]
  /// Of a sequence: [heads, key_dim, value_dim], and a column more if sums_keys. None: zeros.
  StatePlaces<const T> initial_state = {};
  const T* initial_sums =
      nullptr;  ///< a copy of that column, which a kernel makes; null: it reads the column

  std::int64_t output_heads() const { return std::max(query_heads, heads); }
  std::int64_t key_head(std::int64_t head) const { return head / (heads / key_heads); }
  /// State head `head` is read by output heads [first, first + readers), with this query head each.
  std::int64_t readers() const { return query_heads > heads ? query_heads / heads : 1; }
  std::int64_t query_head(std::int64_t head, std::int64_t reader) const {
    return query_heads > heads ? head * readers() + reader : head / (heads / query_heads);
  }
  std::int64_t output_head(std::int64_t head, std::int64_t reader) const { return head * readers() + reader; }
  std::int64_t state_size() const { return key_dim * value_dim; }
  /// The numbers of all heads of one sequence.
  std::int64_t states_size() const { return heads * key_dim * (value_dim + (sums_keys ? 1 : 0)); }
  /// The states of sequence n; null: zeros.
  const T* initial_states(std::int64_t n) const { return initial_state.of(n, states_size()); }
};

template <class T>
struct RecurrenceResults {
  StoredOperand<std::byte> output;  ///< [batch, output_heads, len, value_dim]; data null: not wanted
  Operand<T*> denominator = {};     ///< sums_keys: output_heads, rows of 1; data null: not wanted
  StatePlaces<T> final_state = {};  ///< as initial_state, which may be the same memory; none: not wanted
  T* saved = nullptr;               ///< what backward reads instead of computing it again; null: not wanted
};

/// The derivatives by the results, and the gradients that are wanted. Both are null where there is none.
template <class T>
struct RecurrenceGradientProblem {
  StoredOperand<const std::byte> d_output;
  StoredOperand<const std::byte>
      output;  ///< what forward wrote; given with sums_keys and d_output, as is `denominator`
  Operand<const T*> denominator = {};  ///< output_heads, rows of 1
  const T* d_final_state = nullptr;
  StoredOperand<std::byte> query, key, value, erase, a, b;
  Operand<T*> log_decay, beta, self_weight;
  T* constant_log_decay = nullptr;  ///< [heads], in the place of log_decay
  T* bonus = nullptr;               ///< [heads, key_dim]
  T* initial_state = nullptr;
  const T* saved = nullptr;  ///< as forward wrote it; null: computed again
};

}  // namespace fovea::kernels
