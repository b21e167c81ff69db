// Parameters of models that are read packed: their numbers go from a mapped file into packed matrices, and no
// copy of these in f32 is ever in memory.
#pragma once

#include <cstdint>
#include <functional>

#include "fovea/files/weights.h"
#include "fovea/nn/module.h"

namespace fovea::models {

/// Where the numbers of a parameter lie.
struct StoredParameter {
  const files::StoredTensor* tensor = nullptr;
  Shape shape;  ///< of the parameter
  /// The first of its rows in the tensor, where they lie one behind the other as in the parameter; else -1.
  std::int64_t first_row = 0;
  /// Copies all numbers.
  std::function<void(float* to)> copy;
  /// Copies rows [first, first + count) of a matrix; several threads call it at once.
  std::function<void(std::int64_t first, std::int64_t count, float* to)> copy_rows;
};

/// Before the parameters of a model are packed: all of it is to lie in one region of memory. With regions of
/// 64 MiB GPT-2's peak in bf16 was 3 MB higher.
void reserve_packed(const nn::ParameterSet& parameters, autograd::WeightType type);

/// Packs the parameter if it is a matrix that layers multiply by, and copies its value if it is neither that
/// nor a table of 256 KiB or more. The rows of such a table are read from the file when they are asked for.
/// So are those of a matrix that lie in order, and of a table whose matrix layers multiply by. Throws
/// FileError for a matrix that cannot be packed.
void read_packed(const StoredParameter& stored, autograd::WeightType type, nn::Parameter& parameter);

/// Throws InvalidArgument of save_model for parameters that were read so: there are no values to write.
void check_not_read_packed(const nn::ParameterSet& parameters);

}  // namespace fovea::models
