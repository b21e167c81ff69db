// The rows of a call that are left while the blocks of a stack merge them (TokenMerging in nn/blocks.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fovea/autograd/row_groups.h"
#include "fovea/core/kept_vector.h"
#include "fovea/nn/transformer.h"

namespace fovea::nn {

class RowsLeft {
 public:
  /// `lengths`: those of the call, or none.
  explicit RowsLeft(std::span<const std::int64_t> lengths) : lengths_(lengths.begin(), lengths.end()) {}
  /// Throws InvalidArgument for a call whose rows cannot be merged.
  static void check(const TransformerStack::Call& call);

  std::span<const std::int64_t> lengths() const noexcept { return lengths_; }
  /// Empty before the first merging.
  Tensor log_sizes() const;
  /// Where the attention of a block leaves its keys for `merge`.
  Tensor* keys() noexcept { return &keys_; }
  Var merge(const Var& rows, const TokenMerging& merging, std::int64_t num_kv_heads);
  /// The rows of all that were merged, in their old order.
  Var spread(Var rows) const;

 private:
  KeptVector<std::int64_t> lengths_;  // none: all rows
  std::vector<autograd::RowGroups> merged_;
  Tensor keys_;
};

}  // namespace fovea::nn
