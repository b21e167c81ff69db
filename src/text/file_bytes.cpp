#include "text/file_bytes.h"

#include <fstream>
#include <system_error>

#include "fovea/core/error.h"

namespace fovea::text {

std::string read_bytes(const std::filesystem::path& file, std::uintmax_t max_bytes) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) {
    throw FileError(file.string(), -1, error ? error.message() : "is no regular file");
  }
  const std::uintmax_t size = std::filesystem::file_size(file, error);
  if (error) throw FileError(file.string(), -1, error.message());
  if (size > max_bytes) {
    throw FileError(
        file.string(), -1,
        std::to_string(size) + " bytes, more than the " + std::to_string(max_bytes) + " that are read");
  }
  std::ifstream stream(file, std::ios::binary);
  std::string bytes(static_cast<std::size_t>(size), '\0');
  if (!stream || !stream.read(bytes.data(), static_cast<std::streamsize>(size))) {
    throw FileError(file.string(), -1, "cannot be read");
  }
  return bytes;
}

void write_bytes(const std::filesystem::path& file, std::string_view bytes) {
  std::filesystem::path beside = file;
  beside += ".partial";
  {
    std::ofstream stream(beside, std::ios::binary | std::ios::trunc);
    stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    stream.close();
    if (!stream) throw FileError(file.string(), -1, "cannot be written");
  }
  std::error_code error;
  std::filesystem::rename(beside, file, error);
  if (error) throw FileError(file.string(), -1, "cannot be written: " + error.message());
}

}  // namespace fovea::text
