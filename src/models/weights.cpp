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
#include <set>

namespace fovea::models {
namespace {

static_assert(std::endian::native == std::endian::little,
              "safetensors is little-endian, and so is this code");

// Headers of the largest public models are below 10 MB.
constexpr std::uint64_t longest_header = 64u << 20;

const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "F32";
    case DType::f64:
      return "F64";
    case DType::bf16:
      return "BF16";
    case DType::f16:
      return "F16";
  }
  return "";
}

// Only regular files: opening a pipe would wait for its writer.
std::ifstream open_regular(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    throw FileError(path, -1, "is not a file that can be read");
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw FileError(path, -1, "cannot be opened for reading");
  return stream;
}

// Finds two entries of one name, of which the parser alone would keep the last. A pass of its own, because
// the parser's callbacks look through all siblings at the end of each object: quadratic in the entries.
struct TopLevelNames final : nlohmann::json_sax<nlohmann::json> {
  std::set<std::string> seen;
  std::string twice;
  int depth = 0;

  bool key(string_t& name) override {
    if (depth == 1 && !seen.insert(name).second) twice = name;
    return true;
  }
  bool start_object(std::size_t) override { return ++depth > 0; }
  bool end_object() override { return --depth >= 0; }
  bool start_array(std::size_t) override { return ++depth > 0; }
  bool end_array() override { return --depth >= 0; }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;  // the parse that follows reports it
  }
};

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
                  std::to_string(size_));
    }
    std::string text(header_size, '\0');
    take(text.data(), header_size);
    data_begin_ = 8 + header_size;
    const auto header = parse(text);
    TensorFile file;
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") {
        read_metadata(entry, file);
      } else {
        entries_.push_back(read_entry(name, entry));
      }
    }
    // Before anything is allocated: overlapping tensors could ask for far more memory than the file has
    // bytes.
    check_spans();
    for (const Entry& entry : entries_) file.tensors.push_back({entry.name, read_data(entry)});
    return file;
  }

 private:
  struct Entry {
    std::string name;
    DType dtype;
    Shape shape;
    std::uint64_t begin, end;  // in the data
  };

  [[noreturn]] void fail(std::uint64_t offset, const std::string& reason) {
    throw FileError(path_, static_cast<std::int64_t>(offset), reason);
  }
  void take(char* to, std::uint64_t bytes) {
    if (!stream_.read(to, static_cast<std::streamsize>(bytes))) fail(size_, "ends early");
  }
  nlohmann::json parse(const std::string& text) {
    TopLevelNames names;
    nlohmann::json::sax_parse(text, &names);
    if (!names.twice.empty()) fail(8, "two entries are named '" + names.twice + "'");
    auto header = nlohmann::json::parse(text, nullptr, false);
    if (!header.is_object()) fail(8, "the header is not a JSON object");
    return header;
  }
  void read_metadata(const nlohmann::json& entry, TensorFile& file) {
    if (!entry.is_object()) fail(8, "__metadata__ is not an object");
    for (const auto& [key, value] : entry.items()) {
      if (!value.is_string()) fail(8, "metadata '" + key + "' is not text");
      file.metadata[key] = value.get<std::string>();
    }
  }
  DType dtype_of_entry(const std::string& name, const nlohmann::json& entry) {
    const auto found = entry.find("dtype");
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
      if (found != entry.end() && *found == dtype_name(dtype)) return dtype;
    }
    fail(8, "tensor '" + name + "': expected dtype F32, F64, BF16 or F16, got " +
                (found == entry.end() ? "none" : found->dump()));
  }
  Shape shape_of_entry(const std::string& name, const nlohmann::json& entry) {
    const auto found = entry.find("shape");
    std::vector<std::int64_t> sizes;
    if (found == entry.end() || !found->is_array() || found->size() > static_cast<std::size_t>(max_rank)) {
      fail(8, "tensor '" + name + "': expected a shape of at most " + std::to_string(max_rank) + " sizes");
    }
    std::uint64_t room = size_ + 1;  // no tensor has more elements than the file has bytes
    for (const auto& size : *found) {
      if (!size.is_number_unsigned() || size.get<std::uint64_t>() > room)
        fail(8, "tensor '" + name + "': a size that does not fit the file");
      sizes.push_back(size.get<std::int64_t>());
      if (sizes.back() > 0) room /= static_cast<std::uint64_t>(sizes.back());
    }
    return Shape(sizes);
  }
  Entry read_entry(const std::string& name, const nlohmann::json& entry) {
    if (!entry.is_object()) fail(8, "tensor '" + name + "': expected an object");
    const DType dtype = dtype_of_entry(name, entry);
    const Shape shape = shape_of_entry(name, entry);
    const auto offsets = entry.find("data_offsets");
    if (offsets == entry.end() || !offsets->is_array() || offsets->size() != 2 ||
        !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned()) {
      fail(8, "tensor '" + name + "': expected data_offsets [begin, end]");
    }
    const auto begin = (*offsets)[0].get<std::uint64_t>(), end = (*offsets)[1].get<std::uint64_t>();
    const auto bytes = static_cast<std::uint64_t>(shape.count()) * size_of(dtype);
    if (begin > end || end > size_ - data_begin_ || end - begin != bytes) {
      fail(data_begin_, "tensor '" + name + "': bytes [" + std::to_string(begin) + ", " +
                            std::to_string(end) + ") are not " + std::to_string(bytes) +
                            " bytes inside the file");
    }
    return {name, dtype, shape, begin, end};
  }
  Tensor read_data(const Entry& entry) {
    Tensor tensor(entry.dtype, entry.shape);
    stream_.seekg(static_cast<std::streamoff>(data_begin_ + entry.begin));
    take(reinterpret_cast<char*>(tensor.raw()), entry.end - entry.begin);
    return tensor;
  }
  // The format allows neither overlaps nor gaps: every byte of the data belongs to one tensor.
  void check_spans() {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> spans;
    for (const Entry& entry : entries_) spans.emplace_back(entry.begin, entry.end);
    std::sort(spans.begin(), spans.end());
    std::uint64_t reached = 0;
    for (const auto& [begin, end] : spans) {
      if (begin < reached) fail(data_begin_ + begin, "two tensors overlap");
      if (begin > reached) fail(data_begin_ + reached, "bytes that belong to no tensor");
      reached = end;
    }
    if (reached != size_ - data_begin_) fail(data_begin_ + reached, "bytes that belong to no tensor");
  }

  std::string path_;
  std::ifstream stream_;
  std::uint64_t size_ = 0, data_begin_ = 0;
  std::vector<Entry> entries_;
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
    header[named.name] = {{"dtype", dtype_name(named.tensor.dtype())},
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
