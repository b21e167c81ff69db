#include "core/replace_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "fovea/core/error.h"

namespace fovea {
namespace {

constexpr std::size_t most_together = 256 * 1024;

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& what) {
  throw FileError(path.string(), -1, what + ": " + std::strerror(errno));
}

// A link stays one, and what it leads to is written, which need not be there yet. Links of the system lead to
// open files of a process, which keeps the file that is there.
std::filesystem::path followed(std::filesystem::path path) {
  constexpr int most_links = 40;
  std::error_code error;
  for (int link = 0; link < most_links && std::filesystem::is_symlink(path, error); ++link) {
    const std::string name = path.lexically_normal().string();
    if (name.starts_with("/dev/") || name.starts_with("/proc/")) break;
    const std::filesystem::path target = std::filesystem::read_symlink(path, error);
    if (error) break;
    path = path.parent_path() / target;
  }
  return path;
}

// What cannot be replaced by a file: a pipe, a terminal, or a link of the system to one.
bool is_device(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::symlink_status(path, error);
  return std::filesystem::exists(status) && !std::filesystem::is_regular_file(status) &&
         !std::filesystem::is_directory(status);
}

// Errors name `path`, whatever it is that is opened.
void write_to(const std::filesystem::path& path, const std::filesystem::path& opened, int flags,
              std::span<const std::string_view> pieces) {
  const int file = ::open(opened.c_str(), flags, 0644);
  if (file < 0) fail(path, "cannot be opened for writing");
  const auto close_and_fail = [&](const char* what) {
    const int reason = errno;
    ::close(file);
    errno = reason;
    fail(path, what);
  };
  const auto write_all = [&](std::string_view bytes) {
    for (std::size_t done = 0; done < bytes.size();) {
      const ssize_t written = ::write(file, bytes.data() + done, bytes.size() - done);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) close_and_fail("cannot be written");
      done += static_cast<std::size_t>(written);
    }
  };
  std::string small;  // small pieces are written together: a file may have one a row
  for (const std::string_view piece : pieces) {
    if (small.size() + piece.size() <= most_together) {
      small += piece;
      continue;
    }
    write_all(small);
    small.clear();
    if (piece.size() <= most_together) {
      small += piece;
    } else {
      write_all(piece);
    }
  }
  write_all(small);
  // A pipe cannot be synced, and says so by EINVAL.
  if (::fsync(file) != 0 && errno != EINVAL && errno != ENOTSUP) close_and_fail("cannot be synced");
  ::close(file);
}

}  // namespace

void check_replaceable(const std::filesystem::path& path) {
  const std::filesystem::path target = followed(path);
  if (is_device(target)) {
    if (::access(target.c_str(), W_OK) != 0) fail(path, "cannot be opened for writing");
    return;
  }
  // A folder cannot be replaced, though one can write beside it.
  std::error_code error;
  if (std::filesystem::is_directory(target, error)) {
    errno = EISDIR;
    fail(path, "cannot be opened for writing");
  }
  std::filesystem::path partial = target;
  partial += ".partial";
  write_to(path, partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, {});
  ::unlink(partial.c_str());
}

void replace_file(const std::filesystem::path& path, std::span<const std::string_view> pieces) {
  const std::filesystem::path target = followed(path);
  if (is_device(target)) return write_to(path, target, O_WRONLY | O_TRUNC | O_CLOEXEC, pieces);
  std::filesystem::path partial = target;
  partial += ".partial";
  try {
    write_to(path, partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, pieces);
    if (::rename(partial.c_str(), target.c_str()) != 0) fail(path, "cannot be renamed into place");
  } catch (const FileError&) {
    ::unlink(partial.c_str());
    throw;
  }
  // The new name lives in the folder: without this a power cut could bring the old file back. Some file
  // systems cannot sync a folder; the file itself is whole either way.
  const std::string folder = target.parent_path().string();
  const int opened = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (opened >= 0) {
    ::fsync(opened);
    ::close(opened);
  }
}

}  // namespace fovea
