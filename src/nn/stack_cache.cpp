#include "fovea/nn/stack_cache.h"

#include <algorithm>
#include <string>
#include <utility>

#include "fovea/core/error.h"
#include "nn/stack_memory.h"

namespace fovea::nn {

std::size_t StackCache::checked(const char* function, const char* argument, std::int64_t entry) const {
  if (entry < 0 || entry >= entries())
    throw InvalidArgument(std::string("StackCache::") + function, argument,
                          "an entry in [0, " + std::to_string(entries()) + ")", std::to_string(entry));
  return static_cast<std::size_t>(entry);
}

std::int64_t StackCache::length(std::int64_t entry) const {
  if (sequences_.empty() && entry == 0) return 0;
  return rows_->length(sequences_[checked("length", "entry", entry)]);
}

std::int64_t StackCache::rows_kept(std::int64_t entry) const {
  if (sequences_.empty() && entry == 0) return 0;
  const std::size_t number = checked("rows_kept", "entry", entry);
  const std::vector<CacheLayer>& layers = rows_->options().layers;
  const auto keeps_rows = std::find_if(layers.begin(), layers.end(), [](const CacheLayer& layer) {
    return !std::holds_alternative<LastRow>(layer.store);
  });
  if (keeps_rows == layers.end()) return 0;
  std::int64_t rows = 0;
  for (const KeyValueRun& run : rows_->view(keeps_rows - layers.begin(), sequences_[number]).runs)
    rows += run.count;
  return rows;
}

std::int64_t StackCache::bytes() const {
  return (rows_ ? rows_->bytes().used : 0) + (memory_ ? memory_->rows.bytes().used : 0);
}

StackCache StackCache::fork() const {
  StackCache copy;
  copy.blocks_ = blocks_;
  copy.rows_ = rows_;
  copy.memory_ = memory_;
  copy.reads_ = reads_;
  for (const Sequence& sequence : sequences_) copy.sequences_.push_back(copy.rows_->fork(sequence));
  return copy;
}

void StackCache::reorder(std::span<const std::int64_t> from) {
  std::vector<std::size_t> reads;
  for (const std::int64_t entry : from) {
    const std::size_t number = checked("reorder", "from", entry);
    if (!reads_.empty()) reads.push_back(reads_[number]);
  }
  if (rows_) rows_->permute(sequences_, from);
  reads_ = std::move(reads);
}

void StackCache::truncate(std::int64_t length) {
  for (Sequence& sequence : sequences_) rows_->truncate(sequence, length);
}

KvCache& StackCache::rows() {
  if (!rows_)
    throw InvalidArgument("StackCache::rows", "this", "the cache of a stack with blocks", "none of a stack");
  return *rows_;
}

Sequence& StackCache::sequence(std::int64_t entry) {
  return sequences_[checked("sequence", "entry", entry)];
}

}  // namespace fovea::nn
