// The mask of attention to few rows of finished blocks and to the own block (nn/block_attention.h).
#pragma once

#include <cstdint>
#include <string>

#include "fovea/attention/mask_definition.h"

namespace fovea::nn {

/// The first keys, few(key_len) of them, are `kept` rows for each block of a sequence but the last, and the
/// keys behind them are all of its rows. Queries are rows too: that of row t is at position few + t. It sees
/// the few rows of all blocks before its own, and the rows of its own block up to itself. One mask serves
/// sequences of all lengths, so a layer keeps one: a mask for each call was five blocks of malloc.
class FinishedBlocks final : public MaskNode {
 public:
  FinishedBlocks(std::int64_t block, std::int64_t kept) : block_(block), kept_(kept) {}

  /// Each block but the last has `kept` + `block` keys, and the last has 1 to `block`.
  std::int64_t few(std::int64_t key_len) const {
    return key_len > 0 ? (key_len - 1) / (block_ + kept_) * kept_ : 0;
  }

  bool allows(const Site& site, const QueryBlock& queries) const override {
    const std::int64_t summaries = few(queries.key_len), own = (site.query - summaries) / block_;
    return site.key < summaries ? site.key < own * kept_
                                : site.key >= summaries + own * block_ && site.key <= site.query;
  }
  BlockSpans spans(const QueryBlock& queries) const override {
    const std::int64_t summaries = few(queries.key_len), first = (queries.query_begin - summaries) / block_,
                       last = (queries.query_end - 1 - summaries) / block_;
    BlockSpans spans;
    add(spans.some, 0, last * kept_);
    add(spans.some, summaries + first * block_, queries.query_end);
    add(spans.all, 0, first * kept_);
    if (first == last) add(spans.all, summaries + first * block_, queries.query_begin + 1);
    return spans;
  }
  std::string print(int) const override {
    return "finished-blocks(" + std::to_string(block_) + "," + std::to_string(kept_) + ")";
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

  std::int64_t block_, kept_;
};

}  // namespace fovea::nn
