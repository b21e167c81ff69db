#include "files/safetensors_header.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <utility>

#include "core/excerpt.h"
#include "files/json_scanner.h"

namespace fovea::files {
namespace {

constexpr std::size_t text_begin = 8;  // after the size of the header

// `"":{"dtype":"F32","shape":[],"data_offsets":[0,4]},` without the comma.
constexpr std::size_t shortest_tensor_entry = 50;

// Those of a Tensor first.
constexpr std::array stored_types{
    StoredType::f32,     StoredType::f64,     StoredType::bf16,   StoredType::f16, StoredType::f8_e4m3,
    StoredType::f8_e5m2, StoredType::f8_e8m0, StoredType::i64,    StoredType::i32, StoredType::i16,
    StoredType::i8,      StoredType::u8,      StoredType::boolean};
constexpr std::size_t tensor_types = 4;

// A member of the metadata may have 5 bytes, and costs 112 in the map. Files of models have tens of them.
constexpr std::size_t most_metadata = 10'000;

// `begin` becomes the place of the shape in the text.
Shape read_shape(JsonScanner& scanner, std::size_t& begin) {
  std::array<std::int64_t, max_rank> sizes{};
  std::size_t rank = 0;
  std::uint64_t room = std::uint64_t{1} << 59;  // what a Shape may have: no product overflows
  scanner.open_array("a shape, an array of sizes");
  for (begin = scanner.offset(); scanner.next_element(); ++rank) {
    const std::uint64_t size = scanner.number("a size");
    if (rank == sizes.size())
      scanner.fail("expected a shape of at most " + std::to_string(max_rank) + " sizes");
    if (size > room) scanner.fail("a size of " + std::to_string(size) + " does not fit the file");
    if (size > 0) room /= size;
    sizes[rank] = static_cast<std::int64_t>(size);
  }
  return Shape(std::span<const std::int64_t>(sizes.data(), rank));
}

class HeaderReader {
 public:
  HeaderReader(const std::string& path, std::string& text, std::uint64_t data_size, StoredTypes types)
      : path_(path),
        text_(text),
        data_size_(data_size),
        types_(types),
        scanner_(path, text, JsonScanner::Position::byte, text_begin) {}

  SafetensorsHeader read() {
    // Once and for all: a vector that grows holds its elements twice meanwhile.
    header_.entries.reserve(text_.size() / shortest_tensor_entry);
    bool has_metadata = false;
    scanner_.open_object("an object of tensors");
    for (std::string_view name; scanner_.next_member(name);) {
      if (name == "__metadata__") {
        if (has_metadata) scanner_.fail("two entries are named '__metadata__'");
        has_metadata = true;
        read_metadata();
      } else {
        scanner_.set_context("tensor", name);
        read_entry(name);
      }
      scanner_.set_context("", "");
    }
    scanner_.finish();
    check_names();
    check_spans();
    return std::move(header_);
  }

 private:
  using Entry = SafetensorsEntry;

  void read_metadata() {
    scanner_.open_object("an object of metadata");
    for (std::string_view key; scanner_.next_member(key);) {
      if (header_.metadata.size() == most_metadata)
        scanner_.fail("more than " + std::to_string(most_metadata) + " entries of metadata");
      scanner_.set_context("metadata", key);
      const std::string_view value = scanner_.string("text");
      if (!header_.metadata.try_emplace(std::string(key), value).second) scanner_.fail("is there twice");
      scanner_.set_context("", "");
    }
  }

  void read_entry(std::string_view name) {
    Entry entry{.name_at = static_cast<std::uint32_t>(name.data() - text_.data()),
                .name_size = static_cast<std::uint32_t>(name.size())};
    Shape shape;
    bool dtype = false, sizes = false, offsets = false;
    const auto first = [&](bool& seen, const char* key) {
      if (seen) scanner_.fail(std::string("has two values of ") + key);
      seen = true;
    };
    scanner_.open_object("an object of dtype, shape and data_offsets");
    for (std::string_view key; scanner_.next_member(key);) {
      if (key == "dtype") {
        first(dtype, "dtype");
        entry.type = read_type();
      } else if (key == "shape") {
        first(sizes, "shape");
        std::size_t begin = 0;
        shape = read_shape(scanner_, begin);
        entry.shape_at = static_cast<std::uint32_t>(begin);
      } else if (key == "data_offsets") {
        first(offsets, "data_offsets");
        read_offsets(entry);
      } else {
        scanner_.fail("expected dtype, shape or data_offsets, got '" + excerpt(key) + "'");
      }
    }
    for (const auto& [seen, key] : {std::pair{dtype, "dtype"}, {sizes, "shape"}, {offsets, "data_offsets"}}) {
      if (!seen) scanner_.fail(std::string("has no ") + key);
    }
    const auto bytes = static_cast<std::uint64_t>(shape.count()) * size_of(entry.type);
    if (entry.end - entry.begin != bytes) {
      scanner_.fail("bytes [" + std::to_string(entry.begin) + ", " + std::to_string(entry.end) +
                    ") are not the " + std::to_string(bytes) + " that its shape " + to_string(shape) +
                    " needs");
    }
    header_.entries.push_back(entry);
  }

  StoredType read_type() {
    const std::string_view name = scanner_.string("a dtype");
    const auto known = types_ == StoredTypes::tensors ? std::span(stored_types).first(tensor_types)
                                                      : std::span(stored_types);
    std::string names;
    for (const StoredType type : known) {
      if (name == to_string(type)) return type;
      names += (names.empty() ? "" : type == known.back() ? " or " : ", ") + std::string(to_string(type));
    }
    scanner_.fail("expected dtype " + names + ", got '" + excerpt(name) + "'");
  }

  void read_offsets(Entry& entry) {
    scanner_.open_array("data_offsets [begin, end]");
    std::size_t count = 0;
    for (; scanner_.next_element(); ++count) {
      if (count == 2) scanner_.fail("expected data_offsets [begin, end], got a third");
      (count == 0 ? entry.begin : entry.end) = scanner_.number("a byte offset");
    }
    if (count < 2) scanner_.fail("expected data_offsets [begin, end], got " + std::to_string(count));
    if (entry.begin > entry.end || entry.end > data_size_) {
      scanner_.fail("bytes [" + std::to_string(entry.begin) + ", " + std::to_string(entry.end) +
                    ") do not lie in the " + std::to_string(data_size_) + " bytes of data");
    }
  }

  void check_names() {
    std::vector<Entry>& entries = header_.entries;
    std::sort(entries.begin(), entries.end(),
              [&](const Entry& a, const Entry& b) { return a.name(text_) < b.name(text_); });
    const auto twice =
        std::adjacent_find(entries.begin(), entries.end(),
                           [&](const Entry& a, const Entry& b) { return a.name(text_) == b.name(text_); });
    if (twice != entries.end()) {
      throw FileError(
          path_, static_cast<std::int64_t>(text_begin + std::max(twice[0].name_at, twice[1].name_at) - 1),
          "two entries are named '" + excerpt(twice->name(text_)) + "'");
    }
  }

  // The format allows neither overlaps nor gaps: every byte of the data belongs to one tensor.
  void check_spans() {
    const std::vector<Entry>& entries = header_.entries;
    std::vector<std::uint32_t> order(entries.size());
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return std::pair(entries[a].begin, entries[a].end) < std::pair(entries[b].begin, entries[b].end);
    });
    const auto fail_at = [&](std::uint64_t offset, const std::string& reason) {
      throw FileError(path_, static_cast<std::int64_t>(text_begin + text_.size() + offset), reason);
    };
    std::uint64_t reached = 0;
    for (const std::uint32_t i : order) {
      if (entries[i].begin < reached)
        fail_at(entries[i].begin,
                "two tensors overlap, '" + excerpt(entries[i].name(text_)) + "' one of them");
      if (entries[i].begin > reached) fail_at(reached, "bytes that belong to no tensor");
      reached = entries[i].end;
    }
    if (reached != data_size_) fail_at(reached, "bytes that belong to no tensor");
  }

  const std::string& path_;
  std::string& text_;
  std::uint64_t data_size_;
  StoredTypes types_;
  JsonScanner scanner_;
  SafetensorsHeader header_;
};

}  // namespace

StoredType stored_type(DType dtype) noexcept {
  switch (dtype) {
    case DType::f64:
      return StoredType::f64;
    case DType::bf16:
      return StoredType::bf16;
    case DType::f16:
      return StoredType::f16;
    case DType::f32:
      break;
  }
  return StoredType::f32;
}

DType tensor_type(StoredType type) noexcept {
  switch (type) {
    case StoredType::f64:
      return DType::f64;
    case StoredType::bf16:
      return DType::bf16;
    case StoredType::f16:
      return DType::f16;
    default:
      return DType::f32;
  }
}

SafetensorsHeader read_safetensors_header(const std::string& path, std::string& text, std::uint64_t data_size,
                                          StoredTypes types) {
  return HeaderReader(path, text, data_size, types).read();
}

Shape shape_of(const SafetensorsEntry& entry, std::string& text) {
  JsonScanner scanner("", std::span(text).subspan(entry.shape_at), JsonScanner::Position::byte);
  std::size_t begin = 0;
  return read_shape(scanner, begin);
}

}  // namespace fovea::files
