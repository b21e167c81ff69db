// Reads a file piece by piece, for the readers of formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace fovea {

class InputFile {
 public:
  /// Regular files only: opening a pipe would wait for its writer. Throws FileError.
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& name() const noexcept { return name_; }
  std::uint64_t size() const noexcept { return size_; }
  /// The next `bytes` bytes of the file. Throws FileError if the file is shorter.
  void take(void* to, std::uint64_t bytes);
  void seek(std::uint64_t offset);
  /// Bytes [offset, offset + bytes), for several threads at once. Throws FileError if the file is shorter.
  void read_at(char* to, std::uint64_t bytes, std::uint64_t offset) const;
  /// The whole file, mapped read-only until the last copy of the pointer is gone. Throws FileError.
  std::shared_ptr<const std::byte> map() const;
  /// Throws FileError for this file.
  [[noreturn]] void fail(std::int64_t offset, const std::string& reason) const;

 private:
  std::string name_;
  int file_ = -1;
  std::uint64_t size_ = 0, at_ = 0;
  std::vector<char> buffer_;  // bytes of the file from buffered_ on
  std::uint64_t buffered_ = 0;
};

}  // namespace fovea
