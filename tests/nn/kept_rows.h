// The keys and values of one attention layer in a cache of its own.
#pragma once

#include <vector>

#include "fovea/nn/attention.h"

namespace fovea::nn {

class KeptRows {
 public:
  KeptRows(const MultiHeadAttention& layer, std::int64_t entries)
      : layer_(layer), cache_({.layers = {layer.cache_layer(Paged{16})}}) {
    for (std::int64_t e = 0; e < entries; ++e) sequences_.push_back(cache_.start());
  }
  void append(Context& context, const Var& rows) {
    std::vector<Sequence*> entries;
    for (Sequence& sequence : sequences_) {
      cache_.reserve(sequence, rows.size(1));
      entries.push_back(&sequence);
    }
    layer_.append(context, rows, {cache_, 0, entries});
    for (Sequence& sequence : sequences_) cache_.commit(sequence);
  }
  std::vector<KeyValueView> views() const {
    std::vector<KeyValueView> views;
    for (const Sequence& sequence : sequences_) views.push_back(cache_.view(0, sequence));
    return views;
  }

 private:
  const MultiHeadAttention& layer_;
  KvCache cache_;
  std::vector<Sequence> sequences_;
};

}  // namespace fovea::nn
