// Masks given by a table of blocks, parents or groups.
#include "attention/mask_parts.h"
#include "fovea/attention/masks.h"
#include "fovea/core/philox.h"

namespace fovea {
namespace {

using namespace mask_parts;

class BlockTableNode final : public MaskNode {
 public:
  explicit BlockTableNode(BlockTable table) : table_(std::move(table)) {
    constexpr std::int64_t most = std::int64_t{1} << 30;  // positions are products of two such numbers
    at_least("BlockTable", "size", table_.size, 1, most);
    at_least("BlockTable", "columns", table_.columns, 1, most);
    const auto bits = static_cast<std::int64_t>(table_.visible.size());
    if (bits % table_.columns != 0)
      refuse("BlockTable", "visible", "whole rows of " + std::to_string(table_.columns) + " columns",
             std::to_string(bits) + " bits");
    rows_ = bits / table_.columns;
    for (std::int64_t row = 0; row < rows_; ++row) {
      KeySpans spans;
      for (std::int64_t column = 0; column < table_.columns; ++column) {
        if (bit(row, column)) append(spans, column * table_.size, (column + 1) * table_.size, far);
      }
      spans_.push_back(spans);
    }
  }
  bool allows(const Site& site, const QueryBlock&) const override {
    const std::int64_t row = floor_div(site.query, table_.size), column = site.key / table_.size;
    return row >= 0 && row < rows_ && column < table_.columns && bit(row, column);
  }
  BlockSpans spans(const QueryBlock& block) const override {
    const KeySpans keys = span_within(0, block.key_len, block.key_len);
    const std::int64_t first = floor_div(block.query_begin, table_.size),
                       last = floor_div(block.query_end - 1, table_.size);
    QueryBlock table_rows;
    table_rows.query_begin = first;
    table_rows.query_end = last + 1;
    return by_rows(table_rows, [&](std::int64_t row) {
      return row >= 0 && row < rows_ ? intersect(spans_[static_cast<std::size_t>(row)], keys) : KeySpans{};
    });
  }
  std::string print(int) const override {
    return "blocks(" + std::to_string(table_.size) + "," + std::to_string(table_.columns) +
           (table_.visible.empty() ? "" : ",") + list_of(table_.visible) + ")";
  }
  bool text_is_all() const override { return true; }
  void validate(const AttentionShape&) const override {}

 private:
  bool bit(std::int64_t row, std::int64_t column) const {
    return table_.visible[static_cast<std::size_t>(row * table_.columns + column)];
  }
  BlockTable table_;
  std::int64_t rows_ = 0;
  std::vector<KeySpans> spans_;
};

class TreeNode final : public MaskNode {
 public:
  explicit TreeNode(std::vector<std::int64_t> parents) : parents_(std::move(parents)) {
    for (std::size_t i = 0; i < parents_.size(); ++i) {
      if (parents_[i] < 0 || parents_[i] > static_cast<std::int64_t>(i))
        refuse("Tree", "parents",
               "a parent in [0, " + std::to_string(i) + "] of position " + std::to_string(i),
               std::to_string(parents_[i]));
    }
  }
  bool allows(const Site& site, const QueryBlock&) const override {
    if (!inside(site.query)) return false;
    std::int64_t at = site.query;
    while (at > site.key && parent(at) != at) at = parent(at);
    return at == site.key;
  }
  BlockSpans spans(const QueryBlock& block) const override {
    std::vector<std::int64_t> path;
    return by_rows(block, [&](std::int64_t query) {
      KeySpans spans;
      if (!inside(query)) return spans;
      path.assign(1, query);
      while (parent(path.back()) != path.back()) path.push_back(parent(path.back()));
      for (auto at = path.rbegin(); at != path.rend(); ++at) append(spans, *at, *at + 1, block.key_len);
      return spans;
    });
  }
  std::string print(int) const override { return "tree(" + list_of(parents_) + ")"; }
  bool text_is_all() const override { return true; }
  void validate(const AttentionShape&) const override {}

 private:
  bool inside(std::int64_t position) const {
    return position >= 0 && position < static_cast<std::int64_t>(parents_.size());
  }
  std::int64_t parent(std::int64_t position) const { return parents_[static_cast<std::size_t>(position)]; }
  std::vector<std::int64_t> parents_;
};

class GroupsNode final : public MaskNode {
 public:
  explicit GroupsNode(std::vector<std::int64_t> groups) : groups_(std::move(groups)) {
    for (const std::int64_t group : groups_) at_least("Groups", "groups", group, 0);
  }
  bool allows(const Site& site, const QueryBlock&) const override {
    return inside(site.query) && inside(site.key) && group(site.key) <= group(site.query);
  }
  BlockSpans spans(const QueryBlock& block) const override {
    const std::int64_t first = std::max<std::int64_t>(block.query_begin, 0),
                       last = std::min(block.query_end, static_cast<std::int64_t>(groups_.size()));
    if (first >= last) return {};
    const auto [least, most] = std::minmax_element(groups_.begin() + first, groups_.begin() + last);
    const bool whole = first == block.query_begin && last == block.query_end;
    return {up_to(*most, block.key_len), whole ? up_to(*least, block.key_len) : KeySpans{}};
  }
  std::string print(int) const override { return "groups(" + list_of(groups_) + ")"; }
  bool text_is_all() const override { return true; }
  void validate(const AttentionShape&) const override {}

 private:
  bool inside(std::int64_t position) const {
    return position >= 0 && position < static_cast<std::int64_t>(groups_.size());
  }
  std::int64_t group(std::int64_t position) const { return groups_[static_cast<std::size_t>(position)]; }
  KeySpans up_to(std::int64_t highest, std::int64_t key_len) const {
    KeySpans spans;
    const std::int64_t keys = std::min(key_len, static_cast<std::int64_t>(groups_.size()));
    for (std::int64_t key = 0; key < keys; ++key) {
      if (group(key) <= highest) append(spans, key, key + 1, key_len);
    }
    return spans;
  }
  std::vector<std::int64_t> groups_;
};

}  // namespace

BlockTable block_table(const BigBird& pattern) {
  at_least("BigBird", "length", pattern.length, 0);
  at_least("BigBird", "size", pattern.size, 1);
  at_least("BigBird", "window", pattern.window, 0);
  at_least("BigBird", "global", pattern.global, 0);
  const std::int64_t blocks = std::max<std::int64_t>((pattern.length - 1) / pattern.size + 1, 1);
  at_least("BigBird", "length / size", blocks, 0, 1 << 14);  // 2^28 bits
  at_least("BigBird", "random", pattern.random, 0, blocks);
  BlockTable table{pattern.size, blocks, std::vector<bool>(static_cast<std::size_t>(blocks * blocks))};
  PhiloxStream random(pattern.seed);
  for (std::int64_t row = 0; row < blocks; ++row) {
    const auto set = [&](std::int64_t column) {
      table.visible[static_cast<std::size_t>(row * blocks + column)] = true;
    };
    for (std::int64_t column = 0; column < blocks; ++column) {
      if (std::abs(row - column) <= pattern.window || column < pattern.global || row < pattern.global)
        set(column);
    }
    for (std::int64_t n = 0; n < pattern.random; ++n)
      set(random.next_below(static_cast<std::uint32_t>(blocks)));
  }
  return table;
}

Mask to_mask(const BlockTable& table) {
  return Mask(std::make_shared<BlockTableNode>(table));
}
Mask to_mask(const BigBird& pattern) {
  return to_mask(block_table(pattern));
}
Mask to_mask(const Tree& tree) {
  return Mask(std::make_shared<TreeNode>(tree.parents));
}
Mask to_mask(const Groups& groups) {
  return Mask(std::make_shared<GroupsNode>(groups.groups));
}

}  // namespace fovea
