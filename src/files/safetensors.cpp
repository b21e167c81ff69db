#include "fovea/files/safetensors.h"

#include <bit>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/input_file.h"
#include "files/safetensors_header.h"
#include "fovea/core/error.h"
#include "fovea/files/bytes.h"

namespace fovea::files {
namespace {

static_assert(std::endian::native == std::endian::little,
              "safetensors is little-endian, and so is this code");

// The format's own limit. Headers of the largest public models are below 10 MB.
constexpr std::uint64_t longest_header = 100'000'000;

}  // namespace

SafetensorsFile open_safetensors(InputFile& file, StoredTypes types) {
  std::uint64_t header_size = 0;
  const std::uint64_t size = file.size();
  if (size < 8)
    file.fail(0, "holds " + std::to_string(size) + " bytes, too few for a safetensors header size");
  file.take(&header_size, 8);
  if (header_size > longest_header || header_size > size - 8) {
    file.fail(0, "a header of " + std::to_string(header_size) + " bytes does not fit a file of " +
                     std::to_string(size) +
                     (header_size > longest_header && header_size <= size - 8
                          ? ": the format allows at most 100,000,000"
                          : ""));
  }
  SafetensorsFile result{std::string(header_size, '\0'), {}, 8 + header_size};
  file.take(result.text.data(), header_size);
  // Nothing of a tensor is allocated before the whole header has been checked: overlapping tensors could
  // ask for far more memory than the file has bytes.
  result.header = read_safetensors_header(file.name(), result.text, size - result.data_begin, types);
  return result;
}

const Tensor* TensorFile::find(const std::string& name) const {
  for (const NamedTensor& named : tensors) {
    if (named.name == name) return &named.tensor;
  }
  return nullptr;
}

TensorFile load_safetensors(const std::filesystem::path& path) {
  InputFile file(path);
  SafetensorsFile opened = open_safetensors(file, StoredTypes::tensors);
  TensorFile tensors;
  tensors.metadata = std::move(opened.header.metadata);
  tensors.tensors.reserve(opened.header.entries.size());
  for (const SafetensorsEntry& entry : opened.header.entries) {
    Tensor tensor(tensor_type(entry.type), shape_of(entry, opened.text));
    file.seek(opened.data_begin + entry.begin);
    file.take(tensor.raw(), entry.end - entry.begin);
    tensors.tensors.push_back({std::string(entry.name(opened.text)), std::move(tensor)});
  }
  return tensors;
}

void save_safetensors(const std::filesystem::path& path, const TensorFile& file) {
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
    header[named.name] = {{"dtype", to_string(stored_type(named.tensor.dtype()))},
                          {"shape", named.tensor.shape().sizes()},
                          {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  // A name that is not UTF-8 is written with replacement characters, rather than not at all.
  std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // data 8-byte aligned, as readers that map the file expect
  const std::uint64_t size = text.size();
  std::vector<std::string_view> pieces{{reinterpret_cast<const char*>(&size), 8}, text};
  for (const NamedTensor& named : file.tensors)
    pieces.emplace_back(reinterpret_cast<const char*>(named.tensor.raw()), named.tensor.bytes());
  write_file(path, pieces);
}

}  // namespace fovea::files
