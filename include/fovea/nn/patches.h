// Images as sequences: cut into square patches, each a row (Dosovitskiy et al. 2020, arXiv 2010.11929).
#pragma once

#include <cstdint>
#include <string>

#include "fovea/nn/layers.h"

namespace fovea::nn {

/// images [B, height, width, channels] -> [B, patches, window * window * channels]: patches row by row of the
/// image, the pixels of each row by row. A patch is a square of side `patch`; its window reaches `margin`
/// pixels beyond it on every side, into its neighbours, and reads 0 outside of the image. Throws
/// InvalidArgument for an image that is not whole patches.
Tensor cut_patches(const Tensor& images, std::int64_t patch, std::int64_t margin = 0);

/// Sinusoidal positions of a grid, [rows * columns, dim], row by row: the first half of the dimensions tells
/// the row, the second the column. Throws InvalidArgument for a dim that is no multiple of 4.
Tensor grid_positions(std::int64_t rows, std::int64_t columns, std::int64_t dim);

struct PatchOptions {
  std::int64_t side = 8;    ///< of a patch, in pixels
  std::int64_t margin = 0;  ///< overlapping patches (Wu et al. 2021, arXiv 2103.15808): what lies on a border
                            ///< is seen whole
  std::int64_t channels = 3, dim = 64;
};

/// One linear map of every patch, and where it stands, for images of any size. Names: those of Linear.
struct PatchEmbedding {
  Linear projection;
  PatchOptions options;
  PatchEmbedding() = default;
  PatchEmbedding(ParameterSet& set, const std::string& name, const PatchOptions& options);
  /// images [B, height, width, channels] -> [B, patches, dim].
  Var operator()(Context& context, const Tensor& images) const;
};

}  // namespace fovea::nn
