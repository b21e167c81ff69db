// A mask that is given by its answers: of a function, or in a table of bytes.
#include <bit>
#include <cstring>
#include <utility>

#include "attention/mask_parts.h"
#include "fovea/attention/masks.h"
#include "fovea/attention/spec.h"

namespace fovea {
namespace {

using namespace mask_parts;

class PredicateNode final : public MaskNode {
 public:
  explicit PredicateNode(Predicate predicate) : predicate_(std::move(predicate)) {}
  bool allows(const Site& site, const QueryBlock&) const override {
    const KeySpans* row = predicate_.row(site.batch, site.head, site.query);
    if (!row) return false;
    const auto span =
        std::partition_point(row->begin(), row->end(), [&](const KeySpan& s) { return s.end <= site.key; });
    return span != row->end() && span->begin <= site.key;
  }
  BlockSpans spans(const QueryBlock& block) const override {
    const auto row_at = [&](std::int64_t query) { return predicate_.row(block.batch, block.head, query); };
    const KeySpans keys = span_within(0, block.key_len, block.key_len);
    // One query, or a table without queries (which keys are padding): the same row for all of them.
    const KeySpans* first = row_at(block.query_begin);
    if (first && first == row_at(block.query_end - 1)) {
      const KeySpans row = intersect(*first, keys);
      return {row, row};
    }
    return by_rows(block, [&](std::int64_t query) {
      const KeySpans* row = row_at(query);
      return row ? intersect(*row, keys) : KeySpans{};
    });
  }
  std::string print(int) const override { return "predicate(" + predicate_.name() + ")"; }
  void validate(const AttentionShape& shape) const override {
    const Predicate::Sites& sites = predicate_.sites();
    if (sites.batch != 1 && sites.batch != shape.batch)
      refuse("make_plan", "spec.mask", "a predicate of batch 1 or " + std::to_string(shape.batch),
             std::to_string(sites.batch));
    if (sites.heads != 1 && sites.heads != shape.num_query_heads)
      refuse("make_plan", "spec.mask",
             "a predicate of 1 head or of num_query_heads, " + std::to_string(shape.num_query_heads),
             std::to_string(sites.heads));
    if (sites.key_len < shape.key_len)
      refuse("make_plan", "spec.mask", "a predicate over at least " + std::to_string(shape.key_len) + " keys",
             std::to_string(sites.key_len));
  }
  bool by_head() const override { return predicate_.by_head(); }

 private:
  Predicate predicate_;
};

const Predicate::Sites& checked(const Predicate::Sites& sites) {
  constexpr std::int64_t most = std::int64_t{1} << 30;  // the number of rows is a product
  at_least("Predicate", "sites.batch", sites.batch, 1, most);
  at_least("Predicate", "sites.heads", sites.heads, 1, most);
  at_least("Predicate", "sites.batch * sites.heads", sites.batch * sites.heads, 1, most);
  at_least("Predicate", "sites.query_begin", sites.query_begin, -most, most);
  at_least("Predicate", "sites.query_end", sites.query_end, sites.query_begin, most);
  at_least("Predicate", "sites.key_len", sites.key_len, 0);
  return sites;
}

// Eight bytes as a number whose lowest byte is the first.
std::uint64_t word_of(const std::uint8_t* bytes, std::int64_t count) {
  std::uint64_t word = 0;
  if (count >= 8)
    std::memcpy(&word, bytes, 8);
  else
    std::memcpy(&word, bytes, static_cast<std::size_t>(count));
  if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
  return word;
}

// Eight bytes at a time: only the ends of a run cost more than a few operations a word.
KeySpans contiguous_spans(const std::uint8_t* bytes, std::int64_t count) {
  constexpr std::uint64_t low = 0x7f7f7f7f7f7f7f7f, high = ~low;
  KeySpans spans;
  std::int64_t begin = 0;
  bool inside = false;
  for (std::int64_t j = 0; j < count; j += 8) {
    const std::uint64_t word = word_of(bytes + j, count - j);
    const std::uint64_t seen =
        (((word & low) + low) | word) & high;                        // the top bit of each byte that is not 0
    const std::uint64_t before = seen << 8 | (inside ? 0x80u : 0u);  // whether the byte before was one
    for (std::uint64_t turns = seen ^ before; turns != 0; turns &= turns - 1) {
      const std::int64_t key = j + std::countr_zero(turns) / 8;
      if (inside)
        spans.push_back({begin, key});
      else
        begin = key;
      inside = !inside;
    }
  }
  if (inside) spans.push_back({begin, count});
  return spans;
}

}  // namespace

KeySpans spans_of(const std::uint8_t* visible, std::int64_t count, std::int64_t stride) {
  if (stride == 1) return contiguous_spans(visible, count);
  std::vector<std::uint8_t> gathered(static_cast<std::size_t>(count));
  for (std::int64_t key = 0; key < count; ++key)
    gathered[static_cast<std::size_t>(key)] = visible[key * stride];
  return contiguous_spans(gathered.data(), count);
}

std::int64_t Predicate::lay_out(const Strides& strides) {
  std::int64_t rows = 1;
  const auto step = [&](std::int64_t size, std::int64_t stride) {
    if (size == 1 || stride == 0) return std::int64_t{0};
    return std::exchange(rows, rows * size);
  };
  const std::int64_t queries = sites_.query_end - sites_.query_begin;
  if (queries == 0) return 0;
  row_step_.query = step(queries, strides.query);
  row_step_.head = step(sites_.heads, strides.head);
  row_step_.batch = step(sites_.batch, strides.batch);
  return rows;
}

Predicate::Predicate(std::string name, const Sites& sites, const Visible& visible)
    : name_(std::move(name)), sites_(checked(sites)) {
  lay_out({1, 1, 1});
  for (std::int64_t batch = 0; batch < sites.batch; ++batch) {
    for (std::int64_t head = 0; head < sites.heads; ++head) {
      for (std::int64_t query = sites.query_begin; query < sites.query_end; ++query) {
        KeySpans& row = rows_.emplace_back();
        for (std::int64_t key = 0; key < sites.key_len; ++key) {
          if (visible(Site{batch, head, query, key})) append(row, key, key + 1, sites.key_len);
        }
      }
    }
  }
}

Predicate::Predicate(std::string name, const Sites& sites, const std::uint8_t* visible,
                     const Strides& strides)
    : name_(std::move(name)), sites_(checked(sites)) {
  const std::int64_t rows = lay_out(strides);
  if (!visible && rows > 0 && sites.key_len > 0) refuse("Predicate", "visible", "a table", "a null pointer");
  rows_.reserve(static_cast<std::size_t>(rows));
  const auto row_at = [&](std::int64_t batch, std::int64_t head, std::int64_t query) {
    if (sites.key_len == 0) return KeySpans{};
    const std::uint8_t* from = visible + batch * strides.batch + head * strides.head + query * strides.query;
    return spans_of(from, sites.key_len, strides.key);
  };
  const auto rows_along = [](std::int64_t size, std::int64_t step) { return step == 0 ? 1 : size; };
  const std::int64_t queries =
      rows == 0 ? 0 : rows_along(sites.query_end - sites.query_begin, row_step_.query);
  for (std::int64_t batch = 0; batch < rows_along(sites.batch, row_step_.batch); ++batch) {
    for (std::int64_t head = 0; head < rows_along(sites.heads, row_step_.head); ++head) {
      for (std::int64_t query = 0; query < queries; ++query) rows_.push_back(row_at(batch, head, query));
    }
  }
}

Predicate::Predicate(std::string name, const Sites& sites, std::vector<KeySpans> rows)
    : name_(std::move(name)), sites_(checked(sites)), rows_(std::move(rows)) {
  const std::int64_t wanted = lay_out({1, 1, 1});
  if (static_cast<std::int64_t>(rows_.size()) != wanted)
    refuse("Predicate", "rows", std::to_string(wanted) + " rows", std::to_string(rows_.size()));
  for (const KeySpans& row : rows_) {
    std::int64_t last = -1;
    for (const KeySpan& span : row) {
      if (span.begin <= last || span.end <= span.begin || span.end > sites.key_len)
        refuse("Predicate", "rows", "spans inside the keys, sorted, apart and none empty",
               "[" + std::to_string(span.begin) + ", " + std::to_string(span.end) + ")");
      last = span.end;
    }
  }
}

const KeySpans* Predicate::row(std::int64_t batch, std::int64_t head, std::int64_t query) const noexcept {
  if (query < sites_.query_begin || query >= sites_.query_end) return nullptr;
  return &rows_[static_cast<std::size_t>(batch * row_step_.batch + head * row_step_.head +
                                         (query - sites_.query_begin) * row_step_.query)];
}

Mask to_mask(const Predicate& predicate) {
  return Mask(std::make_shared<PredicateNode>(predicate));
}

}  // namespace fovea
