#include "cache/file_format.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "core/crc32c.h"

namespace fovea::cache {
namespace {

constexpr std::string_view magic = "FoveaKV\n";
constexpr std::uint32_t byte_order = 0x01020304, version = 2;
// Some 100,000 layers with the longest note.
constexpr std::uint64_t longest_header = std::uint64_t{1} << 24;

struct Prelude {
  char magic[8];
  std::uint32_t byte_order, version;
  std::uint64_t header_bytes, file_bytes;
  std::uint32_t checksum;  // CRC32C of the header without these four bytes
};
constexpr std::size_t checksum_at = 32;
static_assert(checksum_at + sizeof(std::uint32_t) == prelude_bytes);

std::uint32_t checksum_of(std::string_view header) {
  return crc32c(header.data() + prelude_bytes, header.size() - prelude_bytes,
                crc32c(header.data(), checksum_at));
}

// Writing and reading visit the same fields in the same order.
class Writer {
 public:
  explicit Writer(std::string& to) : to_(to) {}
  template <class T>
  void operator()(const T& field) {
    to_.append(reinterpret_cast<const char*>(&field), sizeof field);
  }
  void text(const std::string& field, std::size_t) { to_ += field; }

 private:
  std::string& to_;
};

class Reader {
 public:
  Reader(const InputFile& file, std::string_view from) : file_(file), from_(from), at_(prelude_bytes) {}
  template <class T>
  void operator()(T& field) {
    need(sizeof field);
    std::memcpy(&field, from_.data() + at_, sizeof field);
    at_ += sizeof field;
  }
  void text(std::string& field, std::size_t bytes) {
    need(bytes);
    field = from_.substr(at_, bytes);
    at_ += bytes;
  }
  /// Refuses a count of things of `bytes` bytes each before they are allocated.
  void need(std::uint64_t bytes, std::uint64_t count = 1) const {
    if (count > (from_.size() - at_) / std::max<std::uint64_t>(bytes, 1))
      file_.fail(static_cast<std::int64_t>(at_), "the header ends early");
  }

 private:
  const InputFile& file_;
  std::string_view from_;
  std::size_t at_;
};

struct StoreFields {
  std::uint32_t kind = 0;
  std::int64_t numbers[3] = {};
};

StoreFields fields_of(const CacheStore& store) {
  if (const auto* contiguous = std::get_if<Contiguous>(&store)) return {0, {contiguous->capacity}};
  if (const auto* paged = std::get_if<Paged>(&store)) return {1, {paged->page_size}};
  if (std::holds_alternative<LastRow>(store)) return {3, {}};
  const auto& ring = std::get<Ring>(store);
  return {2, {ring.window, ring.sinks, ring.slack}};
}

CacheStore store_of(const StoreFields& fields) {
  const auto& n = fields.numbers;
  if (fields.kind == 0) return Contiguous{n[0]};
  if (fields.kind == 1) return Paged{n[0]};
  if (fields.kind == 3) return LastRow{};
  return Ring{.window = n[0], .sinks = n[1], .slack = n[2]};
}

template <class Fields>
void visit_layer(Fields& fields, CacheLayer& layer) {
  auto dtype = static_cast<std::uint32_t>(layer.dtype), values = static_cast<std::uint32_t>(layer.values);
  StoreFields store = fields_of(layer.store);
  fields(layer.num_kv_heads), fields(layer.head_dim), fields(layer.value_dim);
  fields(dtype), fields(values), fields(store.kind);
  for (std::int64_t& number : store.numbers) fields(number);
  // Numbers that nothing here knows differ from every layer of a cache, and are refused for that.
  layer.dtype = static_cast<DType>(std::min<std::uint32_t>(dtype, 255));
  layer.values = static_cast<CacheValues>(std::min<std::uint32_t>(values, 255));
  layer.store = store_of(store);
}
constexpr std::uint64_t layer_bytes = 6 * sizeof(std::int64_t) + 3 * sizeof(std::uint32_t);

template <class Fields>
void visit_part(Fields& fields, FilePart& part) {
  fields(part.offset), fields(part.bytes), fields(part.checksum);
}
constexpr std::uint64_t rows_bytes = 4 * sizeof(std::uint64_t) + sizeof(std::uint32_t);

template <class Fields>
void visit_rows(Fields& fields, FileRows& rows) {
  fields(rows.length), fields(rows.begin);
  visit_part(fields, rows.part);
}

std::string print_fields(FileHeader header) {
  std::string bytes(prelude_bytes, '\0');
  Writer fields(bytes);
  fields(std::uint64_t{header.layers.size()}), fields(std::uint64_t{header.groups.size()});
  fields(std::uint64_t{header.note.size()});
  fields(header.length), fields(header.ids);
  for (CacheLayer& layer : header.layers) visit_layer(fields, layer);
  visit_part(fields, header.ids_part);
  for (FileGroup& group : header.groups) {
    fields(std::uint64_t{group.size()});
    for (FileRows& rows : group) visit_rows(fields, rows);
  }
  fields.text(header.note, header.note.size());
  bytes.resize(padded(bytes.size()));
  return bytes;
}

void visit_parts(FileHeader& header, const auto& visit) {
  visit(header.ids_part);
  for (FileGroup& group : header.groups) {
    for (FileRows& rows : group) visit(rows.part);
  }
}

Prelude read_prelude(InputFile& file) {
  if (file.size() < part_alignment)
    file.fail(0, "holds " + std::to_string(file.size()) +
                     " bytes, too few for the header of a sequence of a cache, " +
                     std::to_string(part_alignment));
  char bytes[prelude_bytes];
  file.take(bytes, sizeof bytes);
  Prelude prelude{};
  std::memcpy(&prelude, bytes, sizeof bytes);
  if (std::memcmp(prelude.magic, magic.data(), magic.size()) != 0)
    file.fail(0, "is no sequence of a cache: expected the first bytes FoveaKV");
  if (prelude.byte_order != byte_order)
    file.fail(8, prelude.byte_order == __builtin_bswap32(byte_order)
                     ? "was saved on a machine of the other byte order"
                     : "expected the number 0x01020304, which tells the byte order");
  if (prelude.version != version)
    file.fail(12, "expected format version " + std::to_string(version) + ", got " +
                      std::to_string(prelude.version));
  if (prelude.file_bytes != file.size())
    file.fail(24, "was saved with " + std::to_string(prelude.file_bytes) + " bytes, and holds " +
                      std::to_string(file.size()));
  if (prelude.header_bytes % part_alignment != 0 || prelude.header_bytes < part_alignment ||
      prelude.header_bytes > std::min(file.size(), longest_header))
    file.fail(16, "expected a header of a multiple of 4096 bytes, at most the file's, got " +
                      std::to_string(prelude.header_bytes));
  return prelude;
}

}  // namespace

void place_parts(FileHeader& header) {
  std::uint64_t at = print_fields(header).size();
  visit_parts(header, [&](FilePart& part) {
    part.offset = at;
    at += padded(part.bytes);
  });
  header.file_bytes = at;
}

std::string print_header(const FileHeader& header) {
  std::string bytes = print_fields(header);
  Prelude prelude{{}, byte_order, version, bytes.size(), header.file_bytes, 0};
  std::memcpy(prelude.magic, magic.data(), magic.size());
  std::memcpy(bytes.data(), &prelude, prelude_bytes);
  prelude.checksum = checksum_of(bytes);
  std::memcpy(bytes.data(), &prelude, prelude_bytes);
  return bytes;
}

FileHeader read_header(InputFile& file) {
  const Prelude prelude = read_prelude(file);
  std::string bytes(prelude.header_bytes, '\0');
  std::memcpy(bytes.data(), &prelude, prelude_bytes);
  file.take(bytes.data() + prelude_bytes, bytes.size() - prelude_bytes);
  if (checksum_of(bytes) != prelude.checksum)
    file.fail(checksum_at, "the header is damaged: its CRC32C is not the one that stands here");
  FileHeader header;
  header.file_bytes = prelude.file_bytes;
  Reader fields(file, bytes);
  std::uint64_t layers = 0, groups = 0, note = 0;
  fields(layers), fields(groups), fields(note), fields(header.length), fields(header.ids);
  fields.need(layer_bytes, layers);
  header.layers.resize(layers);
  for (CacheLayer& layer : header.layers) visit_layer(fields, layer);
  visit_part(fields, header.ids_part);
  fields.need(sizeof(std::uint64_t), groups);
  header.groups.resize(groups);
  for (FileGroup& group : header.groups) {
    std::uint64_t count = 0;
    fields(count);
    fields.need(rows_bytes, count);
    group.resize(count);
    for (FileRows& rows : group) visit_rows(fields, rows);
  }
  fields.text(header.note, note);
  // Every byte of the file belongs to one part.
  std::uint64_t at = prelude.header_bytes;
  visit_parts(header, [&](const FilePart& part) {
    if (part.offset != at || part.bytes > file.size() - at || padded(part.bytes) > file.size() - at)
      file.fail(static_cast<std::int64_t>(at), "expected a part that begins here and ends in the file, got " +
                                                   std::to_string(part.bytes) + " bytes at " +
                                                   std::to_string(part.offset));
    at += padded(part.bytes);
  });
  if (at != file.size())
    file.fail(static_cast<std::int64_t>(at), "the parts end here, and the file does not");
  return header;
}

namespace {

std::string print_store(const CacheStore& store) {
  const StoreFields fields = fields_of(store);
  const auto& n = fields.numbers;
  if (fields.kind == 0) return "Contiguous{" + std::to_string(n[0]) + "}";
  if (fields.kind == 1) return "Paged{" + std::to_string(n[0]) + "}";
  if (fields.kind == 3) return "LastRow{}";
  return "Ring{" + std::to_string(n[0]) + ", " + std::to_string(n[1]) + ", " + std::to_string(n[2]) + "}";
}

std::string print_values(CacheValues values) {
  switch (values) {
    case CacheValues::own:
      return "CacheValues::own";
    case CacheValues::first_of_keys:
      return "CacheValues::first_of_keys";
    case CacheValues::none:
      return "CacheValues::none";
  }
  return "an unknown kind";
}

std::vector<std::pair<const char*, std::string>> printed(const CacheLayer& layer) {
  return {{"num_kv_heads", std::to_string(layer.num_kv_heads)},
          {"head_dim", std::to_string(layer.head_dim)},
          {"value_dim", std::to_string(layer.value_dim)},
          {"dtype", layer.dtype > DType::f16 ? "an unknown type" : std::string(to_string(layer.dtype))},
          {"values", print_values(layer.values)},
          {"store", print_store(layer.store)}};
}

}  // namespace

std::string difference(const std::vector<CacheLayer>& saved, const std::vector<CacheLayer>& here) {
  if (saved.size() != here.size())
    return std::to_string(saved.size()) + " layers, and this cache has " + std::to_string(here.size());
  for (std::size_t l = 0; l < saved.size(); ++l) {
    const auto theirs = printed(saved[l]), ours = printed(here[l]);
    for (std::size_t n = 0; n < theirs.size(); ++n) {
      if (theirs[n].second != ours[n].second)
        return "layers[" + std::to_string(l) + "]." + theirs[n].first + " = " + theirs[n].second +
               ", and this cache has " + ours[n].second;
    }
  }
  return "";
}

}  // namespace fovea::cache
