// Images as sequences: cut into square patches, each a row (Dosovitskiy et al. 2020, arXiv 2010.11929).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fovea/nn/layers.h"

namespace fovea::nn {

/// images [B, height, width, channels] -> [B, patches, window * window * channels]: patches row by row of the
/// image, the pixels of each row by row. A patch is a square of side `patch`; its window reaches `margin`
/// pixels beyond it on every side, into its neighbours, and reads 0 outside of the image. Throws
/// InvalidArgument for an image that is not whole patches.
Tensor cut_patches(const Tensor& images, std::int64_t patch, std::int64_t margin = 0);

/// The base of a grid's positions. Sides are tens of patches: with the base of sentences, 10000, three
/// dimensions in four hardly differ between two of them.
inline constexpr double grid_base = 20.0;

/// Sinusoidal positions of a grid, [rows * columns, dim], row by row: the first half of the dimensions tells
/// the row, the second the column. Throws InvalidArgument for a dim that is no multiple of 4.
Tensor grid_positions(std::int64_t rows, std::int64_t columns, std::int64_t dim);

struct PatchOptions {
  std::int64_t side = 8;    ///< of a patch, in pixels
  std::int64_t margin = 0;  ///< overlapping patches (Wu et al. 2021, arXiv 2103.15808): what lies on a border
                            ///< is seen whole
  std::int64_t channels = 3, dim = 64;
  /// Width of a layer with relu between pixels and row; 0: none. One linear map knows no "this colour in that
  /// form", and the first attention has only rows that it made (Xiao et al. 2021, arXiv 2106.14881, put
  /// layers there too, and train sooner).
  std::int64_t hidden = 0;
};

/// One linear map of every patch, or two, and where it stands, for images of any size. Names: those of
/// Linear, and "<name>.hidden" for the first of two.
struct PatchEmbedding {
  std::optional<Linear> hidden;
  Linear projection;
  PatchOptions options;
  PatchEmbedding() = default;
  PatchEmbedding(ParameterSet& set, const std::string& name, const PatchOptions& options);
  /// images [B, height, width, channels] -> [B, patches, dim].
  Var operator()(Context& context, const Tensor& images) const;
};

}  // namespace fovea::nn
