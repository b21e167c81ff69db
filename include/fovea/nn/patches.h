// Images as sequences: cut into square patches, each a row (Dosovitskiy et al. 2020, arXiv 2010.11929).
#pragma once

#include <cstdint>
#include <string>

#include "fovea/nn/layers.h"

namespace fovea::nn {

/// images [B, height, width, channels] -> [B, patches, patch * patch * channels]: patches row by row of the
/// image, the pixels of a patch row by row. Throws InvalidArgument for an image that is not whole patches.
Tensor cut_patches(const Tensor& images, std::int64_t patch);

/// Sinusoidal positions of a grid, [rows * columns, dim], row by row: the first half of the dimensions tells
/// the row, the second the column. Throws InvalidArgument for a dim that is no multiple of 4.
Tensor grid_positions(std::int64_t rows, std::int64_t columns, std::int64_t dim);

/// One linear map of every patch, and where it stands: images of any size, in pixels that are not learned.
/// Names: those of Linear.
struct PatchEmbedding {
  Linear projection;
  std::int64_t patch = 1;
  PatchEmbedding() = default;
  PatchEmbedding(ParameterSet& set, const std::string& name, std::int64_t patch, std::int64_t channels,
                 std::int64_t dim);
  /// images [B, height, width, channels] -> [B, patches, dim].
  Var operator()(Context& context, const Tensor& images) const;
};

}  // namespace fovea::nn
