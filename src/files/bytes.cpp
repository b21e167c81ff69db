#include "fovea/files/bytes.h"

#include "core/input_file.h"
#include "core/replace_file.h"

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
  replace_file(path, pieces);
}

}  // namespace fovea::files
