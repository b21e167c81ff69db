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
using cache::FileRows;
using cache::Rows;
using cache::Slots;

namespace {

std::int64_t count_of(std::span<const PositionRange> ranges) {
  std::int64_t count = 0;
  for (const PositionRange& range : ranges) count += range.end - range.begin;
  return count;
}

// Calls piece(memory, bytes) for a block of the file that has room for `file_rows` rows and holds those of
// `ranges`, in the order of the file: [kv_head][K|V][row][dim] a layer. `memory` is null for padding.
template <class Piece>
void visit_block(Rows& rows, std::span<const PositionRange> ranges, std::int64_t file_rows,
                 const Piece& piece) {
  const std::vector<BlockLayout::Layer>& layers = rows.layout().layers;
  const auto visit = [&](std::size_t index, std::int64_t h, bool value) {
    const std::int64_t row_bytes = value ? layers[index].value_bytes() : layers[index].key_bytes();
    for (const PositionRange& range : ranges) {
      for (std::int64_t at = range.begin; at < range.end;) {
        const Slots slots = rows.slots(at, range.end - at);
        piece(slots.row(index, h, value), slots.count * row_bytes);
        at += slots.count;
      }
    }
    piece(nullptr, (file_rows - count_of(ranges)) * row_bytes);
  };
  for (std::size_t index = 0; index < layers.size(); ++index) {
    const BlockLayout::Layer& layer = layers[index];
    const std::int64_t heads = layer.spec.num_kv_heads;
    for (std::int64_t h = 0; h < heads; ++h) {
      visit(index, h, false);
      if (layer.value_bytes() > 0) visit(index, h, true);
    }
    piece(nullptr, (64 - heads * layer.head_bytes(file_rows) % 64) % 64);
  }
}

// The blocks of a group in the file: its pages, or one block of the rows that a buffer keeps.
class FileBlocks {
 public:
  FileBlocks(const BlockLayout& layout, const CacheStore& store, std::int64_t length, Rows::Kept kept)
      : page_(std::holds_alternative<Paged>(store) ? layout.rows : 0),
        length_(length),
        ranges_{PositionRange{0, kept.first}, PositionRange{kept.begin, length}},
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
      const PositionRange own{begin, std::min(begin + page_, length_)};
      visit_block(rows, std::span(&own, 1), page_, piece);
    }
  }

 private:
  std::int64_t page_, length_;
  std::array<PositionRange, 2> ranges_;
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

FileRows add_rows(Pieces& pieces, Rows& rows, const CacheStore& store, std::int64_t length) {
  const Rows::Kept kept = rows.kept(length);
  const FileBlocks blocks(rows.layout(), store, length, kept);
  FileRows saved{.length = length, .begin = kept.begin, .part = {}};
  saved.part.bytes = blocks.bytes();
  blocks.visit(rows, 0, [&](const std::byte* data, std::int64_t bytes) {
    data ? pieces.add(data, static_cast<std::uint64_t>(bytes))
         : pieces.add_zeros(static_cast<std::uint64_t>(bytes));
  });
  saved.part.checksum = pieces.end_part();
  return saved;
}

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
    FileGroup& group = header.groups.emplace_back();
    group.push_back(add_rows(pieces, *state.groups[g], impl_->groups[g].store, state.length));
    for (const Rows::Saved& kept : state.groups[g]->checkpoints())
      group.push_back(add_rows(pieces, *kept.rows, impl_->groups[g].store, kept.length));
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

// What is kept, which begins at `begin` behind the sinks of a Ring.
Rows::Kept checked_rows(const InputFile& file, const CacheStore& store, const FileRows& saved) {
  const auto* ring = std::get_if<Ring>(&store);
  if (std::holds_alternative<LastRow>(store)) {
    const std::int64_t begin = std::max<std::int64_t>(saved.length - 1, 0);
    if (saved.begin != begin)
      file.fail(-1, "expected the last row, at position " + std::to_string(begin) + ", got " +
                        std::to_string(saved.begin));
    return {.first = 0, .begin = begin};
  }
  if (!ring) {
    if (saved.begin != 0)
      file.fail(-1, "expected rows from position 0 on, got " + std::to_string(saved.begin));
    return {};
  }
  const std::int64_t length = saved.length, sinks = std::min(ring->sinks, length),
                     turn = ring->window + ring->slack, least = std::max(sinks, length - turn),
                     most = std::min(length, std::max(sinks, length - ring->window));
  if (saved.begin < least || saved.begin > most)
    file.fail(-1, "expected rows of a Ring from a position of " + std::to_string(least) + " to " +
                      std::to_string(most) + " on, got " + std::to_string(saved.begin));
  return {.first = sinks, .begin = saved.begin};
}

// The rows of the sequence, and of checkpoints of a Ring at ascending lengths.
void check_lengths(const InputFile& file, const CacheStore& store, const FileGroup& group,
                   std::int64_t length) {
  if (group.empty() || group.front().length != length)
    file.fail(-1, "expected rows of the length of the sequence, " + std::to_string(length));
  if (group.size() > 1 && !std::holds_alternative<Ring>(store) && !std::holds_alternative<LastRow>(store))
    file.fail(-1,
              "expected no checkpoints but of a Ring or LastRow, got " + std::to_string(group.size() - 1));
  for (std::size_t n = 1; n < group.size(); ++n) {
    const std::int64_t least = n == 1 ? 1 : group[n - 1].length + 1;
    if (group[n].length < least || group[n].length > length)
      file.fail(-1, "expected a checkpoint at a length from " + std::to_string(least) + " to " +
                        std::to_string(length) + ", got " + std::to_string(group[n].length));
  }
}

void check_bytes(const InputFile& file, const FileRows& saved, const BlockLayout& layout,
                 const FileBlocks& blocks) {
  // In floating point first, where nothing overflows.
  double row_bytes = 0;
  for (const BlockLayout::Layer& layer : layout.layers)
    row_bytes += static_cast<double>(layer.spec.num_kv_heads) *
                 static_cast<double>(layer.key_bytes() + layer.value_bytes());
  if (row_bytes * static_cast<double>(blocks.rows()) > static_cast<double>(file.size()) ||
      blocks.bytes() != saved.part.bytes)
    file.fail(-1, "expected the bytes of " + std::to_string(blocks.rows()) + " rows, got " +
                      std::to_string(saved.part.bytes));
}

// Rows that are read into a store that is empty yet.
struct Target {
  const FileRows* saved = nullptr;
  FileBlocks blocks;
  Rows* rows = nullptr;
  std::unique_ptr<Rows> checkpoint = {};  // the same rows, where they are a checkpoint of `of`
  Rows* of = nullptr;
};

void read_rows(InputFile& file, const Target& target, const std::shared_ptr<const std::byte>& mapping) {
  const FilePart& part = target.saved->part;
  const FileBlocks& blocks = target.blocks;
  Rows& rows = *target.rows;
  PartReader reader(file, part);
  std::int64_t pages = 0;
  if (mapping && blocks.full_pages() > 0) {
    pages = blocks.full_pages();
    const std::int64_t bytes = rows.layout().bytes;
    // Never written: a page with a mapping is no sequence's own.
    auto* data = const_cast<std::byte*>(mapping.get() + part.offset);
    for (std::int64_t n = 0; n < pages; ++n) rows.adopt(data + n * bytes, mapping);
    reader.skip(data, static_cast<std::uint64_t>(pages * bytes));
    file.seek(part.offset + static_cast<std::uint64_t>(pages * bytes));
  }
  const std::int64_t mapped = pages * rows.layout().rows;
  rows.make_room(mapped, target.saved->length - mapped);
  rows.keep_from(target.saved->begin);
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
  std::vector<Target> targets;
  std::int64_t bytes = 0;
  for (std::size_t g = 0; g < impl_->groups.size(); ++g) {
    const Impl::Group& group = impl_->groups[g];
    check_lengths(file, group.store, header.groups[g], header.length);
    for (const FileRows& saved : header.groups[g]) {
      const FileBlocks blocks(*group.layout, group.store, saved.length,
                              checked_rows(file, group.store, saved));
      check_bytes(file, saved, *group.layout, blocks);
      Target target{.saved = &saved, .blocks = blocks, .rows = state.groups[g].get()};
      if (&saved != &header.groups[g].front()) {
        target.of = target.rows;
        target.checkpoint = cache::start_rows(impl_->pool, group.layout, group.store);
        target.rows = target.checkpoint.get();
      }
      bytes += target.rows->bytes_for(0, saved.length);
      targets.push_back(std::move(target));
    }
  }
  if (bytes > 0) impl_->pool->expect_room(bytes);
  std::vector<std::int32_t> ids(header.ids);
  PartReader reader(file, header.ids_part);
  reader.take(ids.data(), header.ids_part.bytes);
  reader.finish();
  const std::shared_ptr<const std::byte> mapping =
      options.memory == CacheMemory::mapped ? file.map() : nullptr;
  for (Target& target : targets) {
    read_rows(file, target, mapping);
    if (target.of) target.of->add_checkpoint({target.saved->length, std::move(target.checkpoint)});
  }
  for (const std::int32_t id : ids) state.ids.push_back(id);
  state.length = header.length;
  if (impl_->finds_prefixes()) {
    state.root = impl_->pool->root_of(options.salt);
    state.make_pages_known(0, static_cast<std::int64_t>(ids.size()));
  }
  return sequence;
}

}  // namespace fovea
