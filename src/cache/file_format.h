// The header of a file that holds a sequence of a cache. docs/cache.md describes the format. Here are its
// numbers; cache/file.cpp writes and reads the rows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cache/blocks.h"
#include "core/input_file.h"

namespace fovea::cache {

/// Parts begin at multiples of so many bytes, and are filled up with zeros, so that rows can be mapped.
inline constexpr std::uint64_t part_alignment = 4096;
/// What stands before the other fields of the header.
inline constexpr std::uint64_t prelude_bytes = 36;
inline constexpr std::size_t longest_note = 64 * 1024;

struct FilePart {
  std::uint64_t offset = 0, bytes = 0;  // of the file; `bytes` are those of the rows or ids, without padding
  std::uint32_t checksum = 0;           // CRC32C of the part and the zeros behind it
};

/// The rows of a group at one length.
struct FileRows {
  std::int64_t length = 0;
  std::int64_t begin = 0;  // of a Ring: the first position behind the sinks that is kept
  FilePart part;
};

/// First the rows of the sequence, then those of each checkpoint, by ascending length. Only a Ring and a
/// LastRow have checkpoints of their own.
using FileGroup = std::vector<FileRows>;

struct FileHeader {
  std::vector<CacheLayer> layers;
  std::int64_t length = 0;
  std::uint64_t ids = 0;  // how many
  std::string note;
  FilePart ids_part;
  std::vector<FileGroup> groups;  // layers with equal stores, in the order of their first layers
  std::uint64_t file_bytes = 0;
};

constexpr std::uint64_t padded(std::uint64_t bytes) {
  return (bytes + part_alignment - 1) / part_alignment * part_alignment;
}

/// Sets the offset of every part, whose `bytes` are set, and the bytes of the file.
void place_parts(FileHeader& header);

/// The first bytes of the file, a multiple of part_alignment.
std::string print_header(const FileHeader& header);

/// Reads the header and checks its sizes against the file's, before anything of these sizes is allocated.
/// Throws FileError.
FileHeader read_header(InputFile& file);

/// The first field in which the layers differ, such as "layers[0].head_dim = 64, and this cache has 128";
/// empty if they are equal.
std::string difference(const std::vector<CacheLayer>& saved, const std::vector<CacheLayer>& here);

}  // namespace fovea::cache
