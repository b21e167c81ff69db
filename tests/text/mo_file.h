// Builds the bytes of a .mo file.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace fovea::text {

enum class ByteOrder { little, big };
using MoEntries = std::vector<std::pair<std::string, std::string>>;

inline std::string mo_header(const std::string& charset = "UTF-8") {
  return "Content-Type: text/plain; charset=" + charset + "\nPlural-Forms: nplurals=2; plural=(n > 1);\n";
}

inline std::string mo_file(const MoEntries& entries, ByteOrder order = ByteOrder::little) {
  std::string bytes;
  const auto put = [&](std::size_t value) {
    for (int i = 0; i < 4; ++i)
      bytes.push_back(static_cast<char>(value >> 8 * (order == ByteOrder::big ? 3 - i : i)));
  };
  const std::size_t count = entries.size(), ids = 28, translations = ids + 8 * count;
  for (const std::size_t value : {std::size_t{0x950412DE}, std::size_t{0}, count, ids, translations,
                                  std::size_t{0}, translations + 8 * count}) {
    put(value);
  }
  std::size_t at = translations + 8 * count;
  for (const auto& [id, translation] : entries) put(id.size()), put(at), at += id.size() + 1;
  for (const auto& [id, translation] : entries)
    put(translation.size()), put(at), at += translation.size() + 1;
  for (const auto& [id, translation] : entries) bytes += id + '\0';
  for (const auto& [id, translation] : entries) bytes += translation + '\0';
  return bytes;
}

}  // namespace fovea::text
