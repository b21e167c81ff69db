#include "core/input_file.h"

#include "fovea/core/error.h"

namespace fovea {

InputFile::InputFile(const std::filesystem::path& path) : name_(path.string()) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) fail(-1, "is not a file that can be read");
  stream_.open(path, std::ios::binary);
  if (!stream_) fail(-1, "cannot be opened for reading");
  size_ = std::filesystem::file_size(path, error);
  if (error) fail(-1, "cannot be measured: " + error.message());
}

void InputFile::take(void* to, std::uint64_t bytes) {
  if (!stream_.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes)))
    fail(static_cast<std::int64_t>(size_), "ends early");
}

void InputFile::seek(std::uint64_t offset) {
  stream_.seekg(static_cast<std::streamoff>(offset));
}

void InputFile::fail(std::int64_t offset, const std::string& reason) const {
  throw FileError(name_, offset, reason);
}

}  // namespace fovea
