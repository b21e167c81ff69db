// NumPy's .npy files (format versions 1 to 3): C order, little-endian f4 and f8.
#pragma once

#include <filesystem>

#include "fovea/core/tensor.h"

namespace fovea::files {

/// Throws FileError with the fault and its place: another dtype, Fortran order, a size that does not fit the
/// file.
Tensor read_npy(const std::filesystem::path& path);
/// Writes f32 and f64 as write_file does. Throws InvalidArgument for other dtypes and for an empty
/// tensor, and FileError.
void write_npy(const std::filesystem::path& path, const Tensor& tensor);

}  // namespace fovea::files
