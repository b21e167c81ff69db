// The functions of each instruction set that pack_test.cpp calls.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fovea/core/dtype.h"
#include "kernels/problem.h"

namespace fovea::kernels {

struct PackCode {
  /// n elements of f32 as `terms` bf16 terms, which are `stride` apart, with zeros up to `padded`.
  void (*row)(const float* x, std::int64_t n, std::int64_t padded, int terms, std::uint16_t* to,
              std::int64_t stride);
  void (*zip)(const std::uint16_t* from, std::int64_t rows, std::int64_t columns, std::int64_t from_stride,
              std::uint32_t* to, std::int64_t to_stride);
  bool (*wild)(const std::uint16_t* x, std::int64_t rows, std::int64_t n, std::int64_t stride);
  void (*narrow)(const float* row, std::int64_t n, bool to_bf16, std::uint16_t* to);
  /// PackKeyColumns of p.value. `at` gets the element (head, key, term, d), `wild` whether the chunk of
  /// (head, key) holds an infinity or a NaN.
  std::size_t (*columns_bytes)(const Problem<float>& p);
  void (*columns)(const Problem<float>& p, Executor& executor, std::byte* memory, std::uint16_t* at,
                  bool* wild);
  /// The tiles of p.key as the tiled kernels pack them. `at` gets the element (head, key, d), at ((head ·
  /// key_len) + key) · dim + d.
  std::size_t (*tiles_bytes)(const Problem<float>& p);
  void (*tiles)(const Problem<float>& p, Executor& executor, std::byte* memory, float* at);
  /// The chunks for `units` units of work: their count, and the keys of each.
  void (*chunks)(const Problem<float>& p, std::int64_t units, std::int64_t* count, std::int64_t* keys);
  std::int64_t (*partials)(const Problem<float>& p, std::int64_t units, std::int64_t rows);
};

}  // namespace fovea::kernels
