// Mini-batches by tokens. The order is a pure function of seed and epoch, so that a resumed training meets
// the same batches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fovea/models/sequence_to_sequence.h"

namespace fovea::train {

/// Ids without BOS and EOS.
struct Example {
  std::vector<std::int32_t> source, target;
};

/// Indices of examples, one list a batch: rows × (longest source or target of the batch + 1) <= batch_words,
/// one example at least. Examples are shuffled, sorted by length within groups of `group` examples (little
/// padding, yet different batches every epoch), cut, and the batches shuffled.
std::vector<std::vector<std::size_t>> make_batches(const std::vector<Example>& examples,
                                                   std::int64_t batch_words, std::uint64_t seed,
                                                   std::int64_t epoch, std::size_t group = 20000);

/// Which examples an update trains on: all of them once an epoch, in an order of its own each epoch, a pure
/// function of seed and update. The last examples of an epoch that fill no batch are left out of it.
class ShuffledBatches {
 public:
  /// Throws InvalidArgument for no examples, or batches of none; a batch is at most `examples` large.
  ShuffledBatches(std::size_t examples, std::size_t batch_size, std::uint64_t seed);
  /// Indices of update `update`, counted from 1. Not thread-safe: keeps the order of the epoch asked last.
  std::span<const std::size_t> operator()(std::int64_t update);

 private:
  std::size_t batch_size_ = 0;
  std::uint64_t seed_ = 0;
  std::int64_t epoch_ = -1;
  std::vector<std::size_t> order_;
};

/// All examples in order, `batch_size` a batch, the last one shorter: what is evaluated. Throws
/// InvalidArgument for batches of none.
std::vector<std::vector<std::size_t>> batches_in_order(std::size_t examples, std::size_t batch_size);

models::Batch gather_batch(const std::vector<Example>& examples, const std::vector<std::size_t>& indices);

}  // namespace fovea::train
