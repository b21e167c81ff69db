// Rotary position embeddings (attention/rope.h), forward and backward: applied to queries and keys before
// `attend`, and to keys as they enter a cache.
//
//   const RopeTable table({.rotary_dim = 64}, 4096, DType::f32);
//   rope_forward(table, query, query_offset, query);  // in place
//   rope_forward(table, key, 0, key);
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fovea/attention/rope.h"
#include "fovea/core/executor.h"
#include "fovea/core/tensor.h"

namespace fovea {

struct RopeFrequencies {
  /// Radians by position, one number for each of the rotary_dim / 2 pairs.
  std::vector<double> inverse;
  /// Multiplies cos and sin; 1 for every scaling except YarnScaling and LongRopeScaling.
  double attention_factor = 1.0;
};

/// The numbers of transformers' ROPE_INIT_FUNCTIONS, but in double. There they are f32, whose rounding
/// changes an angle by up to 6e-8 of itself. DynamicNtkScaling and LongRopeScaling alone read `sequence_len`.
/// Throws InvalidArgument where check_rope does, and for a sequence_len outside [0, 2^40].
RopeFrequencies rope_frequencies(const Rope& rope, std::int64_t sequence_len = 0);

/// Cosines and sines of positions [0, positions); immutable, and copies share the memory.
class RopeTable {
 public:
  /// The table of `rope`, times its attention factor, for views of `dtype`. A table for f64 is f64; one for
  /// f32, bf16 or f16 is f32 and serves all three. Angles and functions are computed in double. `positions`,
  /// in [0, 2^40], is the sequence_len of scalings that read one. Throws InvalidArgument, and std::bad_alloc.
  RopeTable(const Rope& rope, std::int64_t positions, DType dtype, Executor* executor = nullptr);
  /// The rows of tables of one rotary_dim, dtype and layout, one table behind the other: the positions of
  /// table i begin where those of the tables before it end. Each is [positions, rotary_dim / 2]. Throws
  /// InvalidArgument for none, and for others.
  explicit RopeTable(std::span<const RopeTable> tables);
  /// Borrows tables that were made elsewhere: [positions, rotary_dim / 2], or [batch, positions, rotary_dim /
  /// 2] if every batch entry has its own. Both have one shape, in f32 (f64 for views of f64), innermost axis
  /// contiguous. rotary_dim is twice the last axis and at most 65536. Throws InvalidArgument.
  RopeTable(ConstTensorView cosines, ConstTensorView sines, RopeLayout layout);

  std::int64_t rotary_dim() const noexcept { return 2 * cosines_.size(cosines_.rank() - 1); }
  RopeLayout layout() const noexcept { return layout_; }
  std::int64_t positions() const noexcept { return cosines_.size(cosines_.rank() - 2); }
  /// [positions, rotary_dim / 2] or [batch, positions, rotary_dim / 2] of f32 or f64.
  ConstTensorView cosines() const noexcept { return cosines_; }
  ConstTensorView sines() const noexcept { return sines_; }

 private:
  RopeLayout layout_;
  Tensor own_cosines_, own_sines_;  // empty if views were given
  ConstTensorView cosines_, sines_;
};

/// The position of each row of [batch, heads, length, head_dim]. It is `first` + row, or comes from a list:
/// [length] for all batch entries, or [batch, length]. In a list, packed documents can begin again at 0.
/// Borrows the list.
class RopePositions {
 public:
  RopePositions(std::int64_t first) : first_(first) {}  // NOLINT(google-explicit-constructor)
  RopePositions(std::span<const std::int64_t> list)     // NOLINT(google-explicit-constructor)
      : list_(list), listed_(true) {}

  bool listed() const noexcept { return listed_; }
  std::int64_t first() const noexcept { return first_; }
  std::span<const std::int64_t> list() const noexcept { return list_; }

 private:
  std::int64_t first_ = 0;
  std::span<const std::int64_t> list_;
  bool listed_ = false;
};

/// Rotates the first rotary_dim elements of every row by its position and copies the others. A table with a
/// batch axis has as many entries as the input. `input` and `output` are [batch, heads, length, head_dim],
/// both of one dtype that the table serves, innermost axis contiguous. They are the same view, or share no
/// memory. 16-bit elements are rotated in f32. The bits do not depend on the number of threads. Throws
/// InvalidArgument for other views and for positions that are not in the table, before anything is written.
void rope_forward(const RopeTable& table, ConstTensorView input, RopePositions positions, TensorView output,
                  Executor* executor = nullptr);

/// Computes the derivative by the input from the derivative by the output. This is the transpose: it rotates
/// back and multiplies by the attention factor again. Arguments and errors as in rope_forward.
void rope_backward(const RopeTable& table, ConstTensorView d_output, RopePositions positions,
                   TensorView d_input, Executor* executor = nullptr);

}  // namespace fovea
