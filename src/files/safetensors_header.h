// The header of a safetensors file: {name: {"dtype", "shape", "data_offsets"}, "__metadata__": {text: text}}.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/input_file.h"
#include "fovea/core/tensor.h"
#include "fovea/files/weights.h"

namespace fovea::files {

/// One tensor, in 32 bytes: a header of nothing but tensors has 52 bytes for each, and reading it should cost
/// memory near its own size. Name and shape therefore stay in the text.
struct SafetensorsEntry {
  std::uint64_t begin = 0, end = 0;  ///< in the data
  std::uint32_t name_at = 0, name_size = 0, shape_at = 0;
  StoredType type = StoredType::f32;

  std::string_view name(std::string_view text) const { return text.substr(name_at, name_size); }
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< in the order of their names
  std::map<std::string, std::string> metadata;
};

/// Which types of elements a reader can take.
enum class StoredTypes : std::uint8_t {
  tensors,  ///< those of a Tensor: F32, F64, F16, BF16
  all
};

/// Reads `text`, which begins at byte 8 of `path` and is smaller than 4 GB; escapes in it are resolved in
/// place. The entries have distinct names and shapes that fit their bytes. They cover the `data_size` bytes
/// after the header without overlaps and gaps. Apart from the metadata, they take at most the size of the
/// text. Throws FileError with the byte.
SafetensorsHeader read_safetensors_header(const std::string& path, std::string& text, std::uint64_t data_size,
                                          StoredTypes types = StoredTypes::tensors);

/// An opened file, whose data has not been read.
struct SafetensorsFile {
  std::string text;  ///< of the header, which the entries refer to
  SafetensorsHeader header;
  std::uint64_t data_begin = 0;
};
/// Reads and checks the header of `file`. Throws FileError.
SafetensorsFile open_safetensors(InputFile& file, StoredTypes types);
Shape shape_of(const SafetensorsEntry& entry, std::string& text);

/// The type of a Tensor's elements as a file has them, and back: for StoredTypes::tensors alone.
StoredType stored_type(DType dtype) noexcept;
DType tensor_type(StoredType type) noexcept;

}  // namespace fovea::files
