#include "core/input_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fovea/core/error.h"
#include "fovea/core/profile.h"

namespace fovea {

namespace {

// Shorter reads are served from a buffer: a header is read in pieces of some bytes. The buffer is this small
// behind a seek, because a folder's tensors are read in the order of the layers and many are short. It
// doubles with each buffer that follows another.
constexpr std::uint64_t least_buffer = 4 * 1024, most_buffer = 64 * 1024;

}  // namespace

InputFile::InputFile(const std::filesystem::path& path) : name_(path.string()) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    fail(-1, std::filesystem::exists(path, error) ? "is not a file that can be read" : "does not exist");
  // Without blocking, in case that the file is a pipe by now.
  file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file_ < 0) fail(-1, "cannot be opened for reading");
  struct stat status {};
  if (::fstat(file_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(file_);
    fail(-1, "is not a file that can be read");
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::~InputFile() {
  ::close(file_);
}

void InputFile::take(void* to, std::uint64_t bytes) {
  if (at_ > size_ || bytes > size_ - at_) fail(static_cast<std::int64_t>(size_), "ends early");
  ProfileSpan::add({.bytes = static_cast<double>(bytes)});
  auto* out = static_cast<char*>(to);
  while (bytes > 0) {
    const bool hit = at_ >= buffered_ && at_ < buffered_ + buffer_.size();
    if (!hit && bytes >= least_buffer) {
      read_at(out, bytes, at_);
      at_ += bytes;
      return;
    }
    if (!hit) {
      const bool follows = !buffer_.empty() && at_ == buffered_ + buffer_.size();
      const std::uint64_t wanted = follows ? std::min(most_buffer, 2 * buffer_.size()) : least_buffer;
      buffer_.resize(std::min(wanted, size_ - at_));
      buffered_ = at_;
      read_at(buffer_.data(), buffer_.size(), at_);
    }
    const std::uint64_t count = std::min(bytes, buffered_ + buffer_.size() - at_);
    std::memcpy(out, buffer_.data() + (at_ - buffered_), count);
    out += count;
    at_ += count;
    bytes -= count;
  }
}

void InputFile::read_at(char* to, std::uint64_t bytes, std::uint64_t offset) const {
  for (std::uint64_t done = 0; done < bytes;) {
    const ssize_t got = ::pread(file_, to + done, bytes - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      fail(static_cast<std::int64_t>(offset + done), "cannot be read: " + std::string(std::strerror(errno)));
    if (got == 0) fail(static_cast<std::int64_t>(offset + done), "ends early");
    done += static_cast<std::uint64_t>(got);
  }
}

void InputFile::seek(std::uint64_t offset) {
  at_ = offset;
}

std::shared_ptr<const std::byte> InputFile::map() const {
  void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file_, 0);
  if (mapped == MAP_FAILED) fail(-1, "cannot be mapped: " + std::string(std::strerror(errno)));
  const auto unmap = [bytes = size_](const std::byte* data) {
    ::munmap(const_cast<std::byte*>(data), bytes);
  };
  return {static_cast<const std::byte*>(mapped), unmap};
}

void InputFile::fail(std::int64_t offset, const std::string& reason) const {
  throw FileError(name_, offset, reason);
}

}  // namespace fovea
