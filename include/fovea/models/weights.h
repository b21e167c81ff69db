// Tensors on disk in the safetensors format: an 8-byte header size, a JSON header, raw little-endian data.
// The reader checks every size before it allocates. The writer writes a second file and renames it.
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

/// Reads F32, F64, F16 and BF16 tensors, in the order of their names, and at most 10,000 entries of metadata.
/// Throws FileError with the byte for a file that is not well-formed: a header above the format's 100,000,000
/// bytes, JSON of another shape, repeated names, overlaps, gaps. A refused file costs memory of at most twice
/// its size plus 1 MB. A file that loads costs at most eight times its size plus 1 MB. Eight times is a file
/// of nothing but named scalars; one of real tensors costs its size. The time is n log n in the number of
/// tensors.
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
/// Copies the tensors named `prefix` + parameter name into the parameters, converted to f32. Each must be
/// there and have the parameter's shape. Throws FileError.
void assign_parameters(const std::string& path, const TensorFile& file, const std::string& prefix,
                       nn::ParameterSet& parameters);

}  // namespace fovea::models
