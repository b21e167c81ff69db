// Images as sequences: cut into square patches, each a row (Dosovitskiy et al. 2020, arXiv 2010.11929).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fovea/nn/layers.h"

namespace fovea::nn {

/// images [B, height, width, channels] -> [B, patches, window * window * channels]: patches in row-major
/// order of the image, and the pixels of each patch in row-major order. A patch is a square of side `patch`.
/// Its window reaches `margin` pixels beyond the patch on every side, into the neighbours, and is 0 outside
/// the image. Throws InvalidArgument unless the image divides into whole patches.
Tensor cut_patches(const Tensor& images, std::int64_t patch, std::int64_t margin = 0);

/// The base of a grid's positions. A side has tens of patches. With the usual base of sentences, 10000, three
/// of four dimensions would hardly differ between two patches.
inline constexpr double grid_base = 20.0;

/// Sinusoidal positions of a grid, [rows * columns, dim], row by row: the first half of the dimensions
/// encodes the row, the second half the column. Throws InvalidArgument for a dim that is no multiple of 4.
Tensor grid_positions(std::int64_t rows, std::int64_t columns, std::int64_t dim);

struct PatchOptions {
  std::int64_t side = 8;    ///< of a patch, in pixels
  std::int64_t margin = 0;  ///< overlapping patches (Wu et al. 2021, arXiv 2103.15808): what lies on a border
                            ///< is seen whole
  std::int64_t channels = 3, dim = 64;
  /// Width of a hidden layer with relu between the pixels and the row; 0: none. A single linear map cannot
  /// express "this colour in that shape", and the first attention reads nothing but its rows. Xiao et al.
  /// 2021 (arXiv 2106.14881) put layers there too, and train faster.
  std::int64_t hidden = 0;
};

/// One or two linear maps of every patch, plus the patch's position, for images of any size. Names: those of
/// Linear, and "<name>.hidden" for the first of two maps.
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
