// NumPy's .npy files (format versions 1 to 3): C order, little-endian f4 and f8.
#pragma once

#include <string>

#include "fovea/core/tensor.h"

namespace fovea::cli {

/// Throws FileError with the fault and its place: another dtype, Fortran order, a size that does not fit the
/// file.
Tensor read_npy(const std::string& path);
/// F32 and f64. Throws FileError.
void write_npy(const std::string& path, const Tensor& tensor);

}  // namespace fovea::cli
