// Tensors on disk: the safetensors format (an 8-byte header size, a JSON header, raw little-endian data),
// read with every size checked before anything is allocated, written beside and renamed.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "fovea/core/tensor.h"
#include "fovea/models/sequence_to_sequence.h"

namespace fovea::models {

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
TensorFile load_safetensors(const std::string& path);
/// Writes `path`.partial, syncs it and renames it, so that a crash leaves the old file or the new one. Throws
/// FileError.
void save_safetensors(const std::string& path, const TensorFile& file);
/// The same for any bytes.
void write_file_atomically(const std::string& path, const std::string& bytes);
/// Throws FileError when the file cannot be read or is larger than `limit` bytes.
std::string read_file(const std::string& path, std::size_t limit);

/// folder/config.json and folder/model.safetensors.
void save_model(const std::string& folder, const SequenceToSequence& model);
/// Throws FileError: missing, unexpected or wrongly shaped tensors are named.
std::unique_ptr<SequenceToSequence> load_model(const std::string& folder);
/// Copies tensors named `prefix` + parameter name into the parameters, converted to f32; each must be there,
/// of the right shape. Throws FileError.
void assign_parameters(const std::string& path, const TensorFile& file, const std::string& prefix,
                       nn::ParameterSet& parameters);

}  // namespace fovea::models
