#include "fovea/models/shortlist.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "fovea/core/error.h"
#include "fovea/files/bytes.h"

namespace fovea::models {
namespace {

constexpr std::string_view magic = "FOVEASL1";
constexpr std::size_t most_bytes = std::size_t{1} << 30;

void check_id(const char* function, const char* argument, std::int32_t id, std::int64_t vocabulary) {
  if (id < 0 || id >= vocabulary)
    throw InvalidArgument(function, argument, "ids in [0, " + std::to_string(vocabulary) + ")",
                          std::to_string(id));
}

// Reads 32-bit numbers and knows where it is.
class Reader {
 public:
  Reader(std::string file, std::string_view bytes) : file_(std::move(file)), bytes_(bytes) {}
  [[noreturn]] void refuse(const std::string& reason) const {
    throw FileError(file_, static_cast<std::int64_t>(at_), reason);
  }
  void skip(std::string_view expected) {
    if (!bytes_.substr(at_).starts_with(expected)) refuse("no short-list: it does not begin with FOVEASL1");
    at_ += expected.size();
  }
  std::uint64_t left() const { return (bytes_.size() - at_) / sizeof(std::uint32_t); }
  bool at_end() const { return at_ == bytes_.size(); }
  std::uint32_t number() {
    if (left() < 1) refuse("the file ends here");
    const auto byte = [&](std::size_t n) {
      return static_cast<std::uint32_t>(static_cast<unsigned char>(bytes_[at_ + n])) << (8 * n);
    };
    const std::uint32_t value = byte(0) | byte(1) | byte(2) | byte(3);
    at_ += sizeof(std::uint32_t);
    return value;
  }
  std::vector<std::int32_t> ids(std::uint64_t count, std::uint32_t vocabulary) {
    if (count > left())
      refuse("the file ends before " + std::to_string(count) + " ids, with " + std::to_string(left()));
    std::vector<std::int32_t> result;
    result.reserve(count);
    for (std::uint64_t n = 0; n < count; ++n) {
      const std::uint32_t id = number();
      if (id >= vocabulary) {
        at_ -= sizeof(std::uint32_t);
        refuse("id " + std::to_string(id) + " of a vocabulary of " + std::to_string(vocabulary));
      }
      result.push_back(static_cast<std::int32_t>(id));
    }
    return result;
  }

 private:
  std::string file_;
  std::string_view bytes_;
  std::size_t at_ = 0;
};

void put(std::string& bytes, std::uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(value >> shift & 0xffu));
}

}  // namespace

Shortlist::Shortlist(std::vector<std::int32_t> always,
                     const std::vector<std::vector<std::int32_t>>& translations)
    : always_(std::move(always)) {
  const std::int64_t size = std::ssize(translations);
  for (const std::int32_t id : always_) check_id("Shortlist", "always", id, size);
  for (const std::vector<std::int32_t>& row : translations) {
    for (const std::int32_t id : row) check_id("Shortlist", "translations", id, size);
    ids_.insert(ids_.end(), row.begin(), row.end());
    starts_.push_back(static_cast<std::uint32_t>(ids_.size()));
  }
}

std::span<const std::int32_t> Shortlist::translations(std::int32_t piece) const {
  check_id("Shortlist::translations", "piece", piece, vocabulary());
  const auto at = static_cast<std::size_t>(piece);
  return std::span(ids_).subspan(starts_[at], starts_[at + 1] - starts_[at]);
}

std::vector<std::int32_t> Shortlist::candidates(std::span<const std::int32_t> source) const {
  std::vector<std::int32_t> result = always_;
  for (const std::int32_t piece : source) {
    check_id("Shortlist::candidates", "source", piece, vocabulary());
    const std::span<const std::int32_t> more = translations(piece);
    result.insert(result.end(), more.begin(), more.end());
    result.push_back(piece);
  }
  std::ranges::sort(result);
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

void Shortlist::save(const std::filesystem::path& file) const {
  std::string bytes(magic);
  put(bytes, static_cast<std::uint32_t>(vocabulary()));
  put(bytes, static_cast<std::uint32_t>(always_.size()));
  for (const std::int32_t id : always_) put(bytes, static_cast<std::uint32_t>(id));
  for (std::size_t n = 1; n < starts_.size(); ++n) put(bytes, starts_[n] - starts_[n - 1]);
  for (const std::int32_t id : ids_) put(bytes, static_cast<std::uint32_t>(id));
  files::write_file(file, bytes);
}

Shortlist Shortlist::load(const std::filesystem::path& file, std::int64_t vocabulary) {
  const std::string bytes = files::read_file(file, most_bytes);
  Reader reader(file.string(), bytes);
  reader.skip(magic);
  const std::uint32_t size = reader.number();
  if (size != vocabulary)
    reader.refuse("a short-list of " + std::to_string(size) + " pieces, and the model has " +
                  std::to_string(vocabulary));
  Shortlist result;
  result.always_ = reader.ids(reader.number(), size);
  if (size > reader.left())
    reader.refuse("the file ends before the counts of " + std::to_string(size) + " pieces");
  result.starts_.reserve(std::size_t{size} + 1);
  std::uint64_t total = 0;
  for (std::uint32_t piece = 0; piece < size; ++piece) {
    total += reader.number();
    if (total > most_bytes) reader.refuse("more translations than the file can hold");
    result.starts_.push_back(static_cast<std::uint32_t>(total));
  }
  result.ids_ = reader.ids(total, size);
  if (!reader.at_end()) reader.refuse("bytes behind the last id");
  return result;
}

std::filesystem::path shortlist_path(const std::filesystem::path& folder) {
  return folder / "shortlist.bin";
}

}  // namespace fovea::models
