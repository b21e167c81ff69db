#include "fovea/models/weights.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "models/safetensors_header.h"

namespace fovea::models {
namespace {

static_assert(std::endian::native == std::endian::little,
              "safetensors is little-endian, and so is this code");

// The format's own limit. Headers of the largest public models are below 10 MB.
constexpr std::uint64_t longest_header = 100'000'000;

// Only regular files: opening a pipe would wait for its writer.
std::ifstream open_regular(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    throw FileError(path, -1, "is not a file that can be read");
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw FileError(path, -1, "cannot be opened for reading");
  return stream;
}

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path), stream_(open_regular(path)) {
    std::error_code error;
    size_ = std::filesystem::file_size(path, error);
    if (error) throw FileError(path, -1, "cannot be measured: " + error.message());
  }

  TensorFile read() {
    std::uint64_t header_size = 0;
    if (size_ < 8)
      fail(0, "holds " + std::to_string(size_) + " bytes, too few for a safetensors header size");
    take(reinterpret_cast<char*>(&header_size), 8);
    if (header_size > longest_header || header_size > size_ - 8) {
      fail(0, "a header of " + std::to_string(header_size) + " bytes does not fit a file of " +
                  std::to_string(size_) +
                  (header_size > longest_header && header_size <= size_ - 8
                       ? ": the format allows at most 100,000,000"
                       : ""));
    }
    std::string text(header_size, '\0');
    take(text.data(), header_size);
    const std::uint64_t data_begin = 8 + header_size;
    // Nothing of a tensor is allocated before the whole header has been checked: overlapping tensors could
    // ask for far more memory than the file has bytes.
    SafetensorsHeader header = read_safetensors_header(path_, text, size_ - data_begin);
    TensorFile file;
    file.metadata = std::move(header.metadata);
    file.tensors.reserve(header.entries.size());
    for (const SafetensorsEntry& entry : header.entries) {
      Tensor tensor(entry.dtype, shape_of(entry, text));
      stream_.seekg(static_cast<std::streamoff>(data_begin + entry.begin));
      take(reinterpret_cast<char*>(tensor.raw()), entry.end - entry.begin);
      file.tensors.push_back({std::string(entry.name(text)), std::move(tensor)});
    }
    return file;
  }

 private:
  [[noreturn]] void fail(std::uint64_t offset, const std::string& reason) {
    throw FileError(path_, static_cast<std::int64_t>(offset), reason);
  }
  void take(char* to, std::uint64_t bytes) {
    if (!stream_.read(to, static_cast<std::streamsize>(bytes))) fail(size_, "ends early");
  }

  std::string path_;
  std::ifstream stream_;
  std::uint64_t size_ = 0;
};

// Writes pieces to `path`.partial, syncs, renames.
void write_atomically(const std::string& path,
                      const std::vector<std::pair<const void*, std::size_t>>& pieces) {
  const std::string partial = path + ".partial";
  const int file = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  const auto fail = [&](const std::string& what) {
    const std::string reason = what + ": " + std::strerror(errno);
    if (file >= 0) ::close(file);
    ::unlink(partial.c_str());
    throw FileError(path, -1, reason);
  };
  if (file < 0) fail("cannot be opened for writing");
  for (const auto& [data, size] : pieces) {
    const char* from = static_cast<const char*>(data);
    for (std::size_t done = 0; done < size;) {
      const ssize_t written = ::write(file, from + done, size - done);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail("cannot be written");
      done += static_cast<std::size_t>(written);
    }
  }
  if (::fsync(file) != 0) fail("cannot be synced");
  ::close(file);
  if (::rename(partial.c_str(), path.c_str()) != 0) {
    ::unlink(partial.c_str());
    throw FileError(path, -1, std::string("cannot be renamed into place: ") + std::strerror(errno));
  }
  // The new name lives in the folder: without this a power cut could bring the old file back. Some file
  // systems cannot sync a folder; the file itself is whole either way.
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const int opened = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (opened >= 0) {
    ::fsync(opened);
    ::close(opened);
  }
}

}  // namespace

const Tensor* TensorFile::find(const std::string& name) const {
  for (const NamedTensor& named : tensors) {
    if (named.name == name) return &named.tensor;
  }
  return nullptr;
}

TensorFile load_safetensors(const std::string& path) {
  return Reader(path).read();
}

void save_safetensors(const std::string& path, const TensorFile& file) {
  auto header = nlohmann::json::object();
  if (!file.metadata.empty()) header["__metadata__"] = file.metadata;
  std::uint64_t offset = 0;
  for (const NamedTensor& named : file.tensors) {
    const std::uint64_t bytes = named.tensor.bytes();
    if (!named.tensor)
      throw InvalidArgument("save_safetensors", "file.tensors", "tensors that are set",
                            named.name + " empty");
    if (header.contains(named.name) || named.name == "__metadata__")
      throw InvalidArgument("save_safetensors", "file.tensors", "distinct names", named.name + " again");
    header[named.name] = {{"dtype", safetensors_name(named.tensor.dtype())},
                          {"shape", named.tensor.shape().sizes()},
                          {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  // A name that is not UTF-8 is written with replacement characters, rather than not at all.
  std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // data 8-byte aligned, as readers that map the file expect
  const std::uint64_t size = text.size();
  std::vector<std::pair<const void*, std::size_t>> pieces{{&size, 8}, {text.data(), text.size()}};
  for (const NamedTensor& named : file.tensors) pieces.emplace_back(named.tensor.raw(), named.tensor.bytes());
  write_atomically(path, pieces);
}

void write_file_atomically(const std::string& path, const std::string& bytes) {
  write_atomically(path, {{bytes.data(), bytes.size()}});
}

std::string read_file(const std::string& path, std::size_t limit) {
  std::ifstream stream = open_regular(path);
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error || size > limit)
    throw FileError(path, -1, "larger than the " + std::to_string(limit) + " bytes allowed here");
  std::string bytes(size, '\0');
  if (!stream.read(bytes.data(), static_cast<std::streamsize>(size))) throw FileError(path, -1, "ends early");
  return bytes;
}

}  // namespace fovea::models
