// Tensors on disk: the safetensors format (an 8-byte header size, a JSON header, raw little-endian data),
// read with every size checked before anything is allocated, written beside and renamed.
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

/// Throws FileError with the byte for anything that is not a well-formed file: a header above the format's
/// 100,000,000 bytes, JSON of another shape, names twice, overlaps, gaps. Dtypes F32, F64, F16, BF16, at most
/// 10,000 entries of metadata. A file that is refused costs at most twice its size in memory, one that loads
/// at most eight times (a file of nothing but named scalars; one of real tensors, its size), and time n log n
/// in its tensors; either plus 1 MB. Tensors come in the order of their names.
TensorFile load_safetensors(const std::filesystem::path& path);
/// Writes `path`.partial, syncs it and renames it, so that a crash leaves the old file or the new one. Throws
/// FileError.
void save_safetensors(const std::filesystem::path& path, const TensorFile& file);

/// Tensors in several files, as Hugging Face's libraries cut models that are too large for one. `index`, such
/// as model.safetensors.index.json, is a JSON object of at most 100,000,000 bytes whose weight_map gives for
/// each tensor the file that holds it: the plain name of a .safetensors file beside the index. Throws
/// FileError for any other name, a tensor that is named twice, that its shard lacks, or that a shard has and
/// the index does not give to it, for more than 10,000 shards, and for what load_safetensors refuses in a
/// shard. Metadata are those of all shards together.
TensorFile load_sharded_safetensors(const std::filesystem::path& index);
/// Writes model-00001-of-0000N.safetensors and so on into `folder`, which must exist, and at the end
/// model.safetensors.index.json. Tensors keep their order; a shard has at most `shard_bytes` of them, or one
/// that is larger. Each file is written as by save_safetensors, but not all of them at once: use a folder
/// without shards. Throws FileError.
void save_sharded_safetensors(const std::filesystem::path& folder, const TensorFile& file,
                              std::size_t shard_bytes);

/// folder/model.safetensors, or where that is missing folder/model.safetensors.index.json. Throws FileError
/// where neither is there.
std::filesystem::path find_weights(const std::filesystem::path& folder);
/// What find_weights gave: one file, or where its name ends in .json an index and its shards.
TensorFile load_weights(const std::filesystem::path& path);

}  // namespace fovea::files
