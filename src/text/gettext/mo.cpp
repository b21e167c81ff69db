#include <algorithm>
#include <cctype>
#include <utility>

#include "fovea/core/error.h"
#include "fovea/text/gettext.h"

namespace fovea::text {
namespace {

constexpr std::uint32_t kMagic = 0x950412DE, kSwappedMagic = 0xDE120495;
constexpr std::size_t kHeaderBytes = 20;

// Words and strings of the file, every access checked.
class MoBytes {
 public:
  MoBytes(std::string_view bytes, const std::string& name) : bytes_(bytes), name_(name) {
    if (bytes.size() < kHeaderBytes) fail(bytes.size(), "ends inside its header");
    const std::uint32_t magic = word(0);
    swapped_ = magic == kSwappedMagic;
    if (magic != kMagic && !swapped_) fail(0, "is not a gettext catalogue (wrong magic number)");
  }

  [[noreturn]] void fail(std::size_t offset, const std::string& reason) const {
    throw FileError(name_, static_cast<std::int64_t>(offset), reason);
  }
  std::uint32_t word(std::size_t offset) const {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      const auto byte = static_cast<unsigned char>(bytes_[offset + i]);
      value |= std::uint32_t{byte} << 8 * (swapped_ ? 3 - i : i);
    }
    return value;
  }
  void check_table(std::uint32_t offset, std::uint32_t count) const {
    if (std::uint64_t{offset} + std::uint64_t{count} * 8 > bytes_.size()) {
      fail(offset, "its table of " + std::to_string(count) + " strings does not fit the file");
    }
  }
  std::string_view string(std::size_t entry) {
    const std::uint32_t size = word(entry), offset = word(entry + 4);
    if (std::uint64_t{offset} + size >= bytes_.size()) fail(entry, "a string lies outside the file");
    if (bytes_[std::size_t{offset} + size] != '\0') fail(entry, "a string is not ended by NUL");
    // Strings do not share bytes; a file of 1 MB whose 100,000 entries all claim half of it would fill the
    // memory.
    total_ += size;
    if (total_ > bytes_.size()) fail(entry, "its strings are longer than the file");
    return bytes_.substr(offset, size);
  }

 private:
  std::string_view bytes_;
  const std::string& name_;
  bool swapped_ = false;
  std::uint64_t total_ = 0;
};

// The value of "key: value\n" up to `end`, or nothing.
std::string header_value(std::string_view header, std::string_view key, std::string_view end) {
  const std::size_t at = header.find(key);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = header.substr(at + key.size());
  return std::string(rest.substr(0, rest.find_first_of(end)));
}

void read_header(std::string_view header, GettextCatalogue& catalogue) {
  catalogue.charset = header_value(header, "charset=", " ;\r\n");
  for (char& c : catalogue.charset) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  catalogue.plural_forms = header_value(header, "Plural-Forms: ", "\r\n");
}

GettextMessage read_message(std::string_view id, std::string_view translation) {
  GettextMessage message;
  if (const std::size_t mark = id.find('\4'); mark != std::string_view::npos) {
    message.context = id.substr(0, mark);
    id.remove_prefix(mark + 1);
  }
  const std::size_t nul = id.find('\0');
  message.singular = id.substr(0, nul);
  if (nul == std::string_view::npos) {
    message.translations.emplace_back(translation);
    return message;
  }
  message.plural = id.substr(nul + 1);
  for (std::size_t begin = 0; begin <= translation.size();) {
    const std::size_t end = std::min(translation.find('\0', begin), translation.size());
    message.translations.emplace_back(translation.substr(begin, end - begin));
    begin = end + 1;
  }
  return message;
}

}  // namespace

GettextCatalogue parse_mo(std::string_view bytes, const std::string& name) {
  MoBytes file(bytes, name);
  if (const std::uint32_t major = file.word(4) >> 16; major > 1) {
    file.fail(4, "has format revision " + std::to_string(major) + ", known are 0 and 1");
  }
  const std::uint32_t count = file.word(8), ids = file.word(12), translations = file.word(16);
  file.check_table(ids, count);
  file.check_table(translations, count);
  GettextCatalogue catalogue;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::string_view id = file.string(ids + std::size_t{i} * 8);
    const std::string_view translation = file.string(translations + std::size_t{i} * 8);
    if (id.empty()) {
      read_header(translation, catalogue);
    } else {
      catalogue.messages.push_back(read_message(id, translation));
    }
  }
  return catalogue;
}

}  // namespace fovea::text
