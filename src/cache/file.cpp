// KvCache::save and KvCache::load.
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "cache/file_format.h"
#include "cache/sequence.h"
#include "core/crc32c.h"
#include "core/excerpt.h"
#include "core/input_file.h"
#include "core/replace_file.h"

namespace fovea {

using cache::BlockLayout;
using cache::FileGroup;
using cache::FileHeader;
using cache::FilePart;
using cache::Rows;
using cache::Slots;

namespace {

// Positions [begin, end).
struct Range {
  std::int64_t begin = 0, end = 0;
};

std::int64_t count_of(std::span<const Range> ranges) {
  std::int64_t count = 0;
  for (const Range& range : ranges) count += range.end - range.begin;
  return count;
}

// Calls piece(memory, bytes) for a block of the file that has room for `file_rows` rows and holds those of
// `ranges`, in the order of the file: [K|V][kv_head][row][dim] a layer. `memory` is null for padding.
template <class Piece>
void visit_block(Rows& rows, std::span<const Range> ranges, std::int64_t file_rows, const Piece& piece) {
  const BlockLayout& layout = rows.layout();
  const auto visit = [&](std::int64_t heads, std::int64_t offset, std::int64_t row_bytes) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (const Range& range : ranges) {
        for (std::int64_t at = range.begin; at < range.end;) {
          const Slots slots = rows.slots(at, range.end - at);
          piece(slots.block + offset + (h * rows.layout().rows + slots.slot) * row_bytes,
                slots.count * row_bytes);
          at += slots.count;
        }
      }
      piece(nullptr, (file_rows - count_of(ranges)) * row_bytes);
    }
    piece(nullptr, (64 - heads * file_rows * row_bytes % 64) % 64);
  };
  for (const BlockLayout::Layer& layer : layout.layers) {
    visit(layer.spec.num_kv_heads, layer.key_offset, layer.key_bytes());
    if (layer.value_bytes() > 0) visit(layer.spec.num_kv_heads, layer.value_offset, layer.value_bytes());
  }
}

// The blocks of a group in the file: its pages, or one block of the rows that a buffer keeps.
class FileBlocks {
 public:
  FileBlocks(const BlockLayout& layout, const CacheStore& store, std::int64_t length, Rows::Kept kept)
      : page_(std::holds_alternative<Paged>(store) ? layout.rows : 0),
        length_(length),
        ranges_{Range{0, kept.first}, Range{kept.begin, length}},
        layers_(layout.layers) {}

  std::int64_t rows() const { return page_ > 0 ? length_ : count_of(ranges_); }
  std::int64_t full_pages() const { return page_ > 0 ? length_ / page_ : 0; }
  std::uint64_t bytes() const {
    const std::int64_t blocks = page_ > 0 ? (length_ + page_ - 1) / page_ : 1;
    return static_cast<std::uint64_t>(blocks * BlockLayout::of(layers_, page_ > 0 ? page_ : rows()).bytes);
  }
  /// From page `first` on.
  template <class Piece>
  void visit(Rows& rows, std::int64_t first, const Piece& piece) const {
    if (page_ == 0) return visit_block(rows, ranges_, this->rows(), piece);
    for (std::int64_t begin = first * page_; begin < length_; begin += page_) {
      const Range own{begin, std::min(begin + page_, length_)};
      visit_block(rows, std::span(&own, 1), page_, piece);
    }
  }

 private:
  std::int64_t page_, length_;
  std::array<Range, 2> ranges_;
  std::vector<BlockLayout::Layer> layers_;
};

// The pieces of a file, in place, and the checksum of the present part.
class Pieces {
 public:
  void add(const void* data, std::uint64_t bytes) {
    if (bytes == 0) return;
    pieces_.emplace_back(static_cast<const char*>(data), bytes);
    checksum_ = crc32c(data, bytes, checksum_);
    part_ += bytes;
  }
  void add_zeros(std::uint64_t bytes) {
    static constexpr char zeros[cache::part_alignment] = {};
    for (; bytes > sizeof zeros; bytes -= sizeof zeros) add(zeros, sizeof zeros);
    add(zeros, bytes);
  }
  std::uint32_t end_part() {
    add_zeros(cache::padded(part_) - part_);
    part_ = 0;
    return std::exchange(checksum_, 0);
  }
  void put_first(std::string_view header) { pieces_.front() = header; }
  std::span<const std::string_view> all() const { return pieces_; }

 private:
  std::vector<std::string_view> pieces_{std::string_view()};  // the first one is the header
  std::uint64_t part_ = 0;
  std::uint32_t checksum_ = 0;
};

[[noreturn]] void refuse_note(const char* function, std::size_t bytes) {
  throw InvalidArgument(std::string("KvCache::") + function, "note", "at most 65536 bytes",
                        std::to_string(bytes));
}

}  // namespace

void KvCache::save(const Sequence& sequence, const std::filesystem::path& path, std::string_view note) const {
  const Sequence::State& state = state_of("save", sequence);
  if (note.size() > cache::longest_note) refuse_note("save", note.size());
  for (const auto& group : state.groups) {
    if (group->lacks_pages())
      throw InvalidArgument("KvCache::save", "sequence", "a sequence that has all its pages",
                            "one whose pages were dropped");
  }
  const std::vector<std::int32_t> ids = this->ids(sequence);
  FileHeader header;
  header.layers = impl_->options.layers;
  header.length = state.length;
  header.ids = ids.size();
  header.note = note;
  Pieces pieces;
  header.ids_part.bytes = ids.size() * sizeof(std::int32_t);
  pieces.add(ids.data(), header.ids_part.bytes);
  header.ids_part.checksum = pieces.end_part();
  for (std::size_t g = 0; g < state.groups.size(); ++g) {
    Rows& rows = *state.groups[g];
    const Rows::Kept kept = rows.kept(state.length);
    const FileBlocks blocks(rows.layout(), impl_->groups[g].store, state.length, kept);
    FileGroup group{.begin = kept.begin, .rows = {}};
    group.rows.bytes = blocks.bytes();
    blocks.visit(rows, 0, [&](const std::byte* data, std::int64_t bytes) {
      data ? pieces.add(data, static_cast<std::uint64_t>(bytes))
           : pieces.add_zeros(static_cast<std::uint64_t>(bytes));
    });
    group.rows.checksum = pieces.end_part();
    header.groups.push_back(group);
  }
  cache::place_parts(header);
  const std::string first = cache::print_header(header);
  pieces.put_first(first);
  replace_file(path, pieces.all());
}

namespace {

// Reads a part, and its checksum.
class PartReader {
 public:
  PartReader(InputFile& file, const FilePart& part) : file_(file), part_(part) {}
  void take(void* to, std::uint64_t bytes) {
    file_.take(to, bytes);
    skip(to, bytes);
  }
  /// Bytes that are read elsewhere.
  void skip(const void* bytes, std::uint64_t count) {
    checksum_ = crc32c(bytes, count, checksum_);
    done_ += count;
  }
  void take_padding(std::uint64_t bytes) {
    char to[cache::part_alignment];
    for (; bytes > sizeof to; bytes -= sizeof to) take(to, sizeof to);
    take(to, bytes);
  }
  void finish() {
    take_padding(cache::padded(part_.bytes) - done_);
    if (checksum_ != part_.checksum)
      file_.fail(static_cast<std::int64_t>(part_.offset),
                 "the " + std::to_string(part_.bytes) +
                     " bytes from here on are damaged: their CRC32C is not that of the header");
  }

 private:
  InputFile& file_;
  const FilePart& part_;
  std::uint64_t done_ = 0;
  std::uint32_t checksum_ = 0;
};

// Checks what the header says of the sequence and of its ids. Afterwards the rows of every group fit in the
// file, so that nothing larger than the file, times the capacity of a Contiguous store, is allocated.
void check_header(const InputFile& file, const FileHeader& header, const CacheLoadOptions& options) {
  if (header.note != options.note)
    file.fail(-1, "was saved with the note '" + excerpt(header.note) + "', expected '" +
                      excerpt(options.note) + "'");
  if (header.length < 0 || header.length > cache::most_rows)
    file.fail(-1, "expected a length from 0 to 2^30, got " + std::to_string(header.length));
  if (header.ids > static_cast<std::uint64_t>(header.length) ||
      header.ids_part.bytes != header.ids * sizeof(std::int32_t))
    file.fail(-1, "expected at most one id a row, got " + std::to_string(header.ids));
}

// What is kept of a group, which begin at `begin` behind the sinks of a Ring.
Rows::Kept checked_rows(const InputFile& file, const CacheStore& store, const FileGroup& group,
                        std::int64_t length) {
  const auto* ring = std::get_if<Ring>(&store);
  if (!ring) {
    if (group.begin != 0)
      file.fail(-1, "expected rows from position 0 on, got " + std::to_string(group.begin));
    return {};
  }
  const std::int64_t sinks = std::min(ring->sinks, length), turn = ring->window + ring->slack,
                     least = std::max(sinks, length - turn),
                     most = std::min(length, std::max(sinks, length - ring->window));
  if (group.begin < least || group.begin > most)
    file.fail(-1, "expected rows of a Ring from a position of " + std::to_string(least) + " to " +
                      std::to_string(most) + " on, got " + std::to_string(group.begin));
  return {.first = sinks, .begin = group.begin};
}

void check_bytes(const InputFile& file, const FileGroup& group, const BlockLayout& layout,
                 const FileBlocks& blocks) {
  // In floating point first, where nothing overflows.
  double row_bytes = 0;
  for (const BlockLayout::Layer& layer : layout.layers)
    row_bytes += static_cast<double>(layer.spec.num_kv_heads) *
                 static_cast<double>(layer.key_bytes() + layer.value_bytes());
  if (row_bytes * static_cast<double>(blocks.rows()) > static_cast<double>(file.size()) ||
      blocks.bytes() != group.rows.bytes)
    file.fail(-1, "expected the bytes of " + std::to_string(blocks.rows()) + " rows, got " +
                      std::to_string(group.rows.bytes));
}

void read_group(InputFile& file, const FileGroup& group, const FileBlocks& blocks, std::int64_t length,
                const std::shared_ptr<const std::byte>& mapping, Rows& rows) {
  PartReader reader(file, group.rows);
  std::int64_t pages = 0;
  if (mapping && blocks.full_pages() > 0) {
    pages = blocks.full_pages();
    const std::int64_t bytes = rows.layout().bytes;
    // Never written: a page with a mapping is no sequence's own.
    auto* data = const_cast<std::byte*>(mapping.get() + group.rows.offset);
    for (std::int64_t n = 0; n < pages; ++n) rows.adopt(data + n * bytes, mapping);
    reader.skip(data, static_cast<std::uint64_t>(pages * bytes));
    file.seek(group.rows.offset + static_cast<std::uint64_t>(pages * bytes));
  }
  const std::int64_t mapped = pages * rows.layout().rows;
  rows.make_room(mapped, length - mapped);
  rows.keep_from(group.begin);
  blocks.visit(rows, pages, [&](std::byte* data, std::int64_t bytes) {
    data ? reader.take(data, static_cast<std::uint64_t>(bytes))
         : reader.take_padding(static_cast<std::uint64_t>(bytes));
  });
  reader.finish();
}

}  // namespace

std::string KvCache::note_of(const std::filesystem::path& path) {
  InputFile file(path);
  return std::string(cache::read_header(file).note);
}

Sequence KvCache::load(const std::filesystem::path& path, const CacheLoadOptions& options) {
  InputFile file(path);
  const FileHeader header = cache::read_header(file);
  if (const std::string found = cache::difference(header.layers, impl_->options.layers); !found.empty())
    file.fail(-1, "holds a sequence of a cache with " + found);
  check_header(file, header, options);
  if (header.groups.size() != impl_->groups.size())
    file.fail(-1, "expected the rows of " + std::to_string(impl_->groups.size()) + " stores, got " +
                      std::to_string(header.groups.size()));
  Sequence sequence = start();
  Sequence::State& state = *sequence.state_;
  std::vector<FileBlocks> blocks;
  std::int64_t bytes = 0;
  for (std::size_t g = 0; g < impl_->groups.size(); ++g) {
    const Impl::Group& group = impl_->groups[g];
    blocks.emplace_back(*group.layout, group.store, header.length,
                        checked_rows(file, group.store, header.groups[g], header.length));
    check_bytes(file, header.groups[g], *group.layout, blocks[g]);
    bytes += state.groups[g]->bytes_for(0, header.length);
  }
  if (bytes > 0) impl_->pool->expect_room(bytes);
  std::vector<std::int32_t> ids(header.ids);
  PartReader reader(file, header.ids_part);
  reader.take(ids.data(), header.ids_part.bytes);
  reader.finish();
  const std::shared_ptr<const std::byte> mapping =
      options.memory == CacheMemory::mapped ? file.map() : nullptr;
  for (std::size_t g = 0; g < blocks.size(); ++g)
    read_group(file, header.groups[g], blocks[g], header.length, mapping, *state.groups[g]);
  for (const std::int32_t id : ids) state.ids.push_back(id);
  state.length = header.length;
  if (impl_->finds_prefixes()) {
    state.root = impl_->pool->root_of(options.salt);
    state.make_pages_known(0, static_cast<std::int64_t>(ids.size()));
  }
  return sequence;
}

}  // namespace fovea
