#include "fovea/attention/predicate.h"

#include <algorithm>
#include <utility>

#include "attention/key_bits.h"
#include "attention/mask_parts.h"
#include "fovea/attention/spec.h"

namespace fovea {
namespace {

using namespace mask_parts;

class PredicateNode final : public MaskNode {
 public:
  explicit PredicateNode(Predicate predicate) : predicate_(std::move(predicate)) {}
  bool allows(const Site& site, const QueryBlock&) const override {
    const KeyRow* row = predicate_.row(site.batch, site.head, site.query);
    return row && row->sees(site.key);
  }
  BlockSpans spans(const QueryBlock& block) const override {
    const auto row_at = [&](std::int64_t query) { return predicate_.row(block.batch, block.head, query); };
    // One query, or a table without queries (such as padding of keys): all queries have the same row.
    const KeyRow* first = row_at(block.query_begin);
    const bool same = first && first == row_at(block.query_end - 1);
    if (same && (!first->by_bits() || block.query_end - block.query_begin == 1)) {
      const KeySpans row = within(first->spans(), block.key_len);
      return {row, row};
    }
    const std::int64_t last = same ? block.query_begin + 1 : block.query_end;
    for (std::int64_t query = block.query_begin; query < last; ++query) {
      if (const KeyRow* row = row_at(query); row && row->by_bits()) return by_bits(block, last);
    }
    return by_rows(block, [&](std::int64_t query) {
      const KeyRow* row = row_at(query);
      return row ? within(row->spans(), block.key_len) : KeySpans{};
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
  std::int64_t most_keys() const override { return predicate_.sites().key_len; }
  bool by_head() const override { return predicate_.by_head(); }

 private:
  KeySpans within(KeySpans spans, std::int64_t key_len) const {
    if (key_len >= predicate_.sites().key_len) return spans;  // the usual case, which copies nothing
    return intersect(spans, span_within(0, key_len, key_len));
  }

  // For rows with many spans, of which some are stored as bits: 64 keys at a time. Kernels make tiles of
  // these spans, and a tile with one or two keys costs as much as one with a hundred. So gaps shorter than
  // `coarse` are closed in `some`, and spans shorter than `coarse` are left out of `all`. The result is still
  // correct: kernels ask row by row for the exact keys.
  BlockSpans by_bits(const QueryBlock& block, std::int64_t query_end) const {
    constexpr std::int64_t coarse = 32;
    BlockSpans result;
    SpanWriter some(result.some, coarse, 1), all(result.all, 1, coarse);
    const std::int64_t key_len = std::min(block.key_len, predicate_.sites().key_len);
    for (std::int64_t n = 0; 64 * n < key_len; ++n) {
      std::uint64_t any = 0, each = ~std::uint64_t{0};
      for (std::int64_t query = block.query_begin; query < query_end; ++query) {
        const KeyRow* row = predicate_.row(block.batch, block.head, query);
        const std::uint64_t word = row ? row->word(n) : 0;
        any |= word;
        each &= word;
      }
      some.add(any, 64 * n, key_len);
      all.add(each, 64 * n, key_len);
    }
    some.finish(key_len);
    all.finish(key_len);
    return result;
  }

  Predicate predicate_;
};

const Predicate::Sites& checked(const Predicate::Sites& sites) {
  constexpr std::int64_t most = std::int64_t{1}
                                << 30;  // a Site has 32 bits, and the number of rows is a product
  at_least("Predicate", "sites.batch", sites.batch, 1, most);
  at_least("Predicate", "sites.heads", sites.heads, 1, most);
  at_least("Predicate", "sites.batch * sites.heads", sites.batch * sites.heads, 1, most);
  at_least("Predicate", "sites.query_begin", sites.query_begin, -most, most);
  at_least("Predicate", "sites.query_end", sites.query_end, sites.query_begin, most);
  at_least("Predicate", "sites.key_len", sites.key_len, 0, most);
  return sites;
}

void check_rows(std::int64_t wanted, std::size_t got) {
  if (static_cast<std::int64_t>(got) != wanted)
    refuse("Predicate", "rows", std::to_string(wanted) + " rows", std::to_string(got));
}

}  // namespace

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
  rows_.reserve(static_cast<std::size_t>(lay_out({1, 1, 1})));
  std::vector<std::uint8_t> seen(static_cast<std::size_t>(sites.key_len));
  for (std::int64_t batch = 0; batch < sites.batch; ++batch) {
    for (std::int64_t head = 0; head < sites.heads; ++head) {
      for (std::int64_t query = sites.query_begin; query < sites.query_end; ++query) {
        for (std::int64_t key = 0; key < sites.key_len; ++key)
          seen[static_cast<std::size_t>(key)] = visible(Site::at(batch, head, query, key)) ? 1 : 0;
        rows_.emplace_back(seen.data(), sites.key_len);
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
  const auto add_row = [&](std::int64_t batch, std::int64_t head, std::int64_t query) {
    const std::int64_t offset = batch * strides.batch + head * strides.head + query * strides.query;
    rows_.emplace_back(sites.key_len == 0 ? nullptr : visible + offset, sites.key_len, strides.key);
  };
  const auto rows_along = [](std::int64_t size, std::int64_t step) { return step == 0 ? 1 : size; };
  const std::int64_t queries =
      rows == 0 ? 0 : rows_along(sites.query_end - sites.query_begin, row_step_.query);
  for (std::int64_t batch = 0; batch < rows_along(sites.batch, row_step_.batch); ++batch) {
    for (std::int64_t head = 0; head < rows_along(sites.heads, row_step_.head); ++head) {
      for (std::int64_t query = 0; query < queries; ++query) add_row(batch, head, query);
    }
  }
}

Predicate::Predicate(std::string name, const Sites& sites, const std::vector<KeySpans>& rows)
    : name_(std::move(name)), sites_(checked(sites)) {
  check_rows(lay_out({1, 1, 1}), rows.size());
  rows_.reserve(rows.size());
  for (const KeySpans& row : rows) {
    std::int64_t last = -1;
    for (const KeySpan& span : row) {
      if (span.begin <= last || span.end <= span.begin || span.end > sites.key_len)
        refuse("Predicate", "rows", "spans inside the keys: sorted, not touching, none empty",
               "[" + std::to_string(span.begin) + ", " + std::to_string(span.end) + ")");
      last = span.end;
    }
    rows_.emplace_back(row, sites.key_len);
  }
}

Predicate::Predicate(std::string name, const Sites& sites) : name_(std::move(name)), sites_(checked(sites)) {}

Predicate Predicate::of_rows(std::string name, const Sites& sites, std::vector<KeyRow> rows) {
  Predicate predicate(std::move(name), sites);
  check_rows(predicate.lay_out({1, 1, 1}), rows.size());
  predicate.rows_ = std::move(rows);
  return predicate;
}

const KeyRow* Predicate::row(std::int64_t batch, std::int64_t head, std::int64_t query) const noexcept {
  if (query < sites_.query_begin || query >= sites_.query_end) return nullptr;
  return &rows_[static_cast<std::size_t>(batch * row_step_.batch + head * row_step_.head +
                                         (query - sites_.query_begin) * row_step_.query)];
}

Mask to_mask(const Predicate& predicate) {
  return Mask(std::make_shared<PredicateNode>(predicate));
}

}  // namespace fovea
