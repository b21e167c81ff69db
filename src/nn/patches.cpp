#include "fovea/nn/patches.h"

#include <algorithm>

namespace fovea::nn {

Tensor cut_patches(const Tensor& images, std::int64_t patch) {
  if (images.rank() != 4 || patch < 1 || images.size(1) % patch != 0 || images.size(2) % patch != 0) {
    throw InvalidArgument("cut_patches", "images",
                          "[B, height, width, channels], sides whole patches of " + std::to_string(patch),
                          to_string(images.shape()));
  }
  const std::int64_t batch = images.size(0), width = images.size(2), channels = images.size(3);
  const std::int64_t rows = images.size(1) / patch, columns = width / patch, line = patch * channels;
  Tensor result(DType::f32, {batch, rows * columns, patch * line});
  const float* from = images.data<float>();
  float* to = result.data<float>();
  for (std::int64_t row = 0; row < batch * rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      for (std::int64_t y = 0; y < patch; ++y, to += line)
        std::copy_n(from + (row * patch + y) * width * channels + column * line, line, to);
    }
  }
  return result;
}

Tensor grid_positions(std::int64_t rows, std::int64_t columns, std::int64_t dim) {
  if (dim < 4 || dim % 4 != 0)
    throw InvalidArgument("grid_positions", "dim", "a multiple of 4", std::to_string(dim));
  const std::int64_t half = dim / 2;
  const Tensor of_row = sinusoidal_positions(0, rows, half),
               of_column = sinusoidal_positions(0, columns, half);
  Tensor result(DType::f32, {rows * columns, dim});
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    std::copy_n(of_row.data<float>() + i / columns * half, half, result.data<float>() + i * dim);
    std::copy_n(of_column.data<float>() + i % columns * half, half, result.data<float>() + i * dim + half);
  }
  return result;
}

PatchEmbedding::PatchEmbedding(ParameterSet& set, const std::string& name, std::int64_t side,
                               std::int64_t channels, std::int64_t dim)
    : projection(set, name, side * side * channels, dim), patch(side) {}

Var PatchEmbedding::operator()(Context& context, const Tensor& images) const {
  const Var rows = projection(context, Var(cut_patches(images, patch)));
  return add_positions(rows, grid_positions(images.size(1) / patch, images.size(2) / patch, rows.size(2)));
}

}  // namespace fovea::nn
