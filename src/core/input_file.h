// Reads a file piece by piece, for the readers of formats.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

namespace fovea {

class InputFile {
 public:
  /// Regular files only: opening a pipe would wait for its writer. Throws FileError.
  explicit InputFile(const std::filesystem::path& path);

  const std::string& name() const noexcept { return name_; }
  std::uint64_t size() const noexcept { return size_; }
  /// The next `bytes` bytes of the file. Throws FileError if the file is shorter.
  void take(void* to, std::uint64_t bytes);
  void seek(std::uint64_t offset);
  /// Throws FileError for this file.
  [[noreturn]] void fail(std::int64_t offset, const std::string& reason) const;

 private:
  std::string name_;
  std::ifstream stream_;
  std::uint64_t size_ = 0;
};

}  // namespace fovea
