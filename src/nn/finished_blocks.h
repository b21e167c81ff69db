// The mask of attention to few rows of finished blocks and to the own block (nn/block_attention.h).
#pragma once

#include <cstdint>
#include <string>

#include "fovea/attention/mask_definition.h"

namespace fovea::nn {

/// Keys [0, few) are `kept` rows for each of the first blocks of a sequence, and the keys behind them are all
/// of its rows. Queries are rows too: that of row t is at position few + t. It sees the few rows of all
/// blocks before its own, and the rows of its own block up to itself.
class FinishedBlocks final : public MaskNode {
 public:
  FinishedBlocks(std::int64_t few, std::int64_t block, std::int64_t kept)
      : few_(few), block_(block), kept_(kept) {}

  bool allows(const Site& site, const QueryBlock&) const override {
    const std::int64_t own = (site.query - few_) / block_;
    return site.key < few_ ? site.key < own * kept_
                           : site.key >= few_ + own * block_ && site.key <= site.query;
  }
  BlockSpans spans(const QueryBlock& queries) const override {
    const std::int64_t first = (queries.query_begin - few_) / block_,
                       last = (queries.query_end - 1 - few_) / block_;
    BlockSpans spans;
    add(spans.some, 0, last * kept_);
    add(spans.some, few_ + first * block_, queries.query_end);
    add(spans.all, 0, first * kept_);
    if (first == last) add(spans.all, few_ + first * block_, queries.query_begin + 1);
    return spans;
  }
  std::string print(int) const override {
    return "finished-blocks(" + std::to_string(few_) + "," + std::to_string(block_) + "," +
           std::to_string(kept_) + ")";
  }
  bool text_is_all() const override { return true; }
  void validate(const AttentionShape&) const override {}

 private:
  // Joins spans that touch.
  static void add(KeySpans& to, std::int64_t begin, std::int64_t end) {
    if (begin >= end) return;
    if (!to.empty() && to.back().end >= begin)
      to.back().end = end;
    else
      to.push_back({begin, end});
  }

  std::int64_t few_, block_, kept_;
};

}  // namespace fovea::nn
