// Tensors on disk in the safetensors format: an 8-byte header size, a JSON header, raw little-endian data.
// The reader checks every size before it allocates. The writer writes a second file and renames it.
#pragma once

#include <cstddef>
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

/// Reads F32, F64, F16 and BF16 tensors, in the order of their names, and at most 10,000 entries of metadata.
/// Throws FileError with the byte for a file that is not well-formed: a header above the format's 100,000,000
/// bytes, JSON of another shape, repeated names, overlaps, gaps. A refused file costs memory of at most twice
/// its size plus 1 MB. A file that loads costs at most eight times its size plus 1 MB. Eight times is a file
/// of nothing but named scalars; one of real tensors costs its size. The time is n log n in the number of
/// tensors.
TensorFile load_safetensors(const std::filesystem::path& path);
/// Writes `path`.partial, syncs it and renames it, so that a crash leaves the old file or the new one. Throws
/// FileError.
void save_safetensors(const std::filesystem::path& path, const TensorFile& file);

/// Reads tensors from several files (shards), as Hugging Face's libraries write models that are too large for
/// one file. `index`, such as model.safetensors.index.json, is a JSON object of at most 100,000,000 bytes.
/// Its weight_map gives the shard of each tensor: the plain name of a .safetensors file beside the index.
/// Throws FileError for any other name, for a tensor that is named twice or missing in its shard, and for one
/// that the index does not assign to its shard. Also for more than 10,000 shards, and for what
/// load_safetensors refuses in a shard. The metadata of all shards are joined.
TensorFile load_sharded_safetensors(const std::filesystem::path& index);
/// Writes model-00001-of-0000N.safetensors and so on into `folder`, which must exist, and at the end
/// model.safetensors.index.json. Tensors keep their order. A shard has at most `shard_bytes` of tensors, or
/// one larger tensor. Each file is replaced atomically as by save_safetensors, but the set of files is not:
/// use a folder without shards. Throws FileError.
void save_sharded_safetensors(const std::filesystem::path& folder, const TensorFile& file,
                              std::size_t shard_bytes);

/// folder/model.safetensors, or if that is missing folder/model.safetensors.index.json. Throws FileError if
/// neither exists.
std::filesystem::path find_weights(const std::filesystem::path& folder);
/// Loads the result of find_weights: one file, or, if the name ends in .json, an index and its shards.
TensorFile load_weights(const std::filesystem::path& path);

}  // namespace fovea::files
