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
  /// Radians a position, one for each of the rotary_dim / 2 pairs.
  std::vector<double> inverse;
  /// Multiplies cos and sin; 1 for every scaling but YarnScaling.
  double attention_factor = 1.0;
};

/// The numbers of transformers' ROPE_INIT_FUNCTIONS, in double: there they are f32, whose rounding moves an
/// angle by up to 6e-8 of itself. `sequence_len` matters to DynamicNtkScaling alone. Throws InvalidArgument
/// where check_rope does, and for a sequence_len outside [0, 2^40].
RopeFrequencies rope_frequencies(const Rope& rope, std::int64_t sequence_len = 0);

/// Cosines and sines of positions [0, positions); immutable, and copies share the memory.
class RopeTable {
 public:
  /// Those of `rope`, times its attention factor, for views of `dtype`: f64, or any of f32, bf16 and f16,
  /// whose table is f32. Angles and functions are computed in double. `positions`, in [0, 2^40], is the
  /// sequence_len of DynamicNtkScaling. Throws InvalidArgument, and std::bad_alloc.
  RopeTable(const Rope& rope, std::int64_t positions, DType dtype, Executor* executor = nullptr);
  /// Tables that were made elsewhere, borrowed: [positions, rotary_dim / 2], or [batch, positions,
  /// rotary_dim / 2] where every batch entry has its own, both of one shape, in f32 (f64 for views of f64),
  /// innermost contiguous. rotary_dim, at most 65536, is twice their last axis. Throws InvalidArgument.
  RopeTable(ConstTensorView cosines, ConstTensorView sines, RopeLayout layout);

  std::int64_t rotary_dim() const noexcept { return 2 * cosines_.size(cosines_.rank() - 1); }
  RopeLayout layout() const noexcept { return layout_; }
  std::int64_t positions() const noexcept { return cosines_.size(cosines_.rank() - 2); }
  /// [positions, rotary_dim / 2] or [batch, positions, rotary_dim / 2] of f32 or f64.
  ConstTensorView cosines() const noexcept { return cosines_; }
  ConstTensorView sines() const noexcept { return sines_; }

 private:
  RopeLayout layout_;
  Tensor own_cosines_, own_sines_;  // where no view was given
  ConstTensorView cosines_, sines_;
};

/// The position of each row of [batch, heads, length, head_dim]: `first` + row, or one of a list [length] for
/// all batch entries or [batch, length] (packed documents begin again at 0). Borrows the list.
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

/// Turns the first rotary_dim elements of every row by its position and copies the others. A table of batch
/// entries has as many as the input. `input` and `output` are [batch, heads, length, head_dim] of one dtype
/// that the table serves, innermost contiguous; they are the same view, or share no memory. 16-bit elements
/// are turned in f32. The bits do not depend on the number of threads. Throws InvalidArgument, before
/// anything is written, for other views and for positions that are not in the table.
void rope_forward(const RopeTable& table, ConstTensorView input, RopePositions positions, TensorView output,
                  Executor* executor = nullptr);

/// The derivative by the input out of that by the output: the transpose, which turns back and multiplies by
/// the attention factor again. Arguments and errors as in rope_forward.
void rope_backward(const RopeTable& table, ConstTensorView d_output, RopePositions positions,
                   TensorView d_input, Executor* executor = nullptr);

}  // namespace fovea
