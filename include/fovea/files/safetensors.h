// Tensors on disk: the safetensors format (an 8-byte header size, a JSON header, raw little-endian data),
// read with every size checked before anything is allocated, written beside and renamed.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "fovea/core/tensor.h"

namespace fovea::files {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

struct TensorFile {
  std::vector<NamedTensor> tensors;
  std::map<std::string, std::string> metadata;
  /// nullptr if there is none of that name.
  const Tensor* find(const std::string& name) const;
};

/// Throws FileError with the byte for anything that is not a well-formed file: a header above the format's
/// 100,000,000 bytes, JSON of another shape, names twice, overlaps, gaps. Dtypes F32, F64, F16, BF16, at most
/// 10,000 entries of metadata. A file that is refused costs at most twice its size in memory, one that loads
/// at most eight times (a file of nothing but named scalars; one of real tensors, its size), and time n log n
/// in its tensors; either plus 1 MB. Tensors come in the order of their names.
TensorFile load_safetensors(const std::filesystem::path& path);
/// Writes `path`.partial, syncs it and renames it, so that a crash leaves the old file or the new one. Throws
/// FileError.
void save_safetensors(const std::filesystem::path& path, const TensorFile& file);

}  // namespace fovea::files
