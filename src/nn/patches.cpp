#include "fovea/nn/patches.h"

#include <algorithm>

#include "core/pieces.h"

namespace fovea::nn {

Tensor cut_patches(const Tensor& images, std::int64_t patch, std::int64_t margin) {
  if (images.rank() != 4 || patch < 1 || images.size(1) % patch != 0 || images.size(2) % patch != 0) {
    throw InvalidArgument("cut_patches", "images",
                          "[B, height, width, channels], sides whole patches of " + std::to_string(patch),
                          to_string(images.shape()));
  }
  if (margin < 0) throw InvalidArgument("cut_patches", "margin", "at least 0", std::to_string(margin));
  const std::int64_t batch = images.size(0), height = images.size(1), width = images.size(2);
  const std::int64_t channels = images.size(3), window = patch + 2 * margin;
  const std::int64_t rows = height / patch, columns = width / patch;
  const std::int64_t count = batch * rows * columns, run = window * channels, size = window * run;
  Tensor result(DType::f32, {batch, rows * columns, size});
  for_pieces(
      count,
      [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first; i < last; ++i) {
          const float* image = images.data<float>() + i / (rows * columns) * height * width * channels;
          const std::int64_t top = i / columns % rows * patch - margin, left = i % columns * patch - margin,
                             begin = std::max<std::int64_t>(left, 0), end = std::min(left + window, width);
          float* to = result.data<float>() + i * size;
          if (margin > 0) std::fill_n(to, size, 0.0f);  // what lies outside the picture
          for (std::int64_t y = std::max<std::int64_t>(top, 0); y < std::min(top + window, height); ++y)
            std::copy_n(image + (y * width + begin) * channels, (end - begin) * channels,
                        to + (y - top) * run + (begin - left) * channels);
        }
      },
      size);
  return result;
}

Tensor grid_positions(std::int64_t rows, std::int64_t columns, std::int64_t dim) {
  if (dim < 4 || dim % 4 != 0)
    throw InvalidArgument("grid_positions", "dim", "a multiple of 4", std::to_string(dim));
  const std::int64_t half = dim / 2;
  const Tensor of_row = sinusoidal_positions(0, rows, half, grid_base),
               of_column = sinusoidal_positions(0, columns, half, grid_base);
  Tensor result(DType::f32, {rows * columns, dim});
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    std::copy_n(of_row.data<float>() + i / columns * half, half, result.data<float>() + i * dim);
    std::copy_n(of_column.data<float>() + i % columns * half, half, result.data<float>() + i * dim + half);
  }
  return result;
}

PatchEmbedding::PatchEmbedding(ParameterSet& set, const std::string& name, const PatchOptions& with)
    : options(with) {
  const std::int64_t window = with.side + 2 * with.margin;
  std::int64_t values = window * window * with.channels;
  if (with.hidden > 0) {
    hidden.emplace(set, name + ".hidden", values, with.hidden);
    values = with.hidden;
  }
  projection = Linear(set, name, values, with.dim);
}

Var PatchEmbedding::operator()(Context& context, const Tensor& images) const {
  Var rows(cut_patches(images, options.side, options.margin));
  if (hidden) rows = autograd::relu((*hidden)(context, rows));
  rows = projection(context, rows);
  return add_positions(
      rows, grid_positions(images.size(1) / options.side, images.size(2) / options.side, options.dim));
}

}  // namespace fovea::nn
