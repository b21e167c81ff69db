#include "fovea/files/bytes.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "files/input.h"
#include "fovea/core/error.h"

namespace fovea::files {

std::string read_file(const std::filesystem::path& path, std::size_t limit) {
  InputFile file(path);
  if (file.size() > limit) {
    file.fail(-1, "holds " + std::to_string(file.size()) + " bytes, more than the " + std::to_string(limit) +
                      " allowed here");
  }
  std::string bytes(static_cast<std::size_t>(file.size()), '\0');
  file.take(bytes.data(), bytes.size());
  return bytes;
}

void write_file(const std::filesystem::path& path, std::string_view bytes) {
  write_file(path, std::span(&bytes, 1));
}

void write_file(const std::filesystem::path& path, std::span<const std::string_view> pieces) {
  const std::string partial = path.string() + ".partial";
  const int file = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  const auto fail = [&](const std::string& what) {
    const std::string reason = what + ": " + std::strerror(errno);
    if (file >= 0) ::close(file);
    ::unlink(partial.c_str());
    throw FileError(path.string(), -1, reason);
  };
  if (file < 0) fail("cannot be opened for writing");
  for (const std::string_view piece : pieces) {
    for (std::size_t done = 0; done < piece.size();) {
      const ssize_t written = ::write(file, piece.data() + done, piece.size() - done);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail("cannot be written");
      done += static_cast<std::size_t>(written);
    }
  }
  if (::fsync(file) != 0) fail("cannot be synced");
  ::close(file);
  if (::rename(partial.c_str(), path.c_str()) != 0) {
    ::unlink(partial.c_str());
    throw FileError(path.string(), -1, std::string("cannot be renamed into place: ") + std::strerror(errno));
  }
  // The new name lives in the folder: without this a power cut could bring the old file back. Some file
  // systems cannot sync a folder; the file itself is whole either way.
  const std::string folder = path.parent_path().string();
  const int opened = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (opened >= 0) {
    ::fsync(opened);
    ::close(opened);
  }
}

}  // namespace fovea::files
