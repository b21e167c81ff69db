// NumPy's .npy files (format versions 1 to 3): C order, little-endian f4 and f8.
#pragma once

#include <filesystem>

#include "fovea/core/tensor.h"

namespace fovea::files {

/// Throws FileError naming what is wrong and where: another dtype, Fortran order, a size that does not fit
/// the file.
Tensor read_npy(const std::filesystem::path& path);
/// F32 and f64, else throws InvalidArgument. Written as write_file does. Throws FileError.
void write_npy(const std::filesystem::path& path, const Tensor& tensor);

}  // namespace fovea::files
