// Here are datasets, batches, training loops with their checkpoints, and a translator from text to text.
// Networks are in models/, tokenizers in text/. Open trainer.h first.
//
// This header makes mini-batches of a given number of tokens. Their order is a pure function of seed and
// epoch, so that a resumed training sees the same batches.
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

/// Indices of examples, one list for each batch. A batch has at most batch_words ids: its examples times the
/// ids of the longest source or target, the end included. A longer example has a batch of its own.
/// Examples are shuffled and sorted by length within groups of `group` examples: little padding, yet
/// different batches in every epoch. Then they are cut into batches, and these are shuffled.
std::vector<std::vector<std::size_t>> make_batches(const std::vector<Example>& examples,
                                                   std::int64_t batch_words, std::uint64_t seed,
                                                   std::int64_t epoch, std::size_t group = 20000);

/// The examples that an update trains on, a pure function of seed and update. Each epoch has its own order
/// and uses every example once, except for the last ones if they do not fill a batch.
class ShuffledBatches {
 public:
  /// Throws InvalidArgument for no examples, or batches of none; a batch is at most `examples` large.
  ShuffledBatches(std::size_t examples, std::size_t batch_size, std::uint64_t seed);
  /// The indices of update `update`, counted from 1. Not thread-safe: it keeps the order of the last epoch.
  /// Throws InvalidArgument for an update below 1.
  std::span<const std::size_t> operator()(std::int64_t update);

 private:
  std::size_t batch_size_ = 0;
  std::uint64_t seed_ = 0;
  std::int64_t epoch_ = -1;
  std::vector<std::size_t> order_;
};

/// All examples in order, `batch_size` in each batch, the last batch possibly smaller: for evaluation. Throws
/// InvalidArgument for batches of none.
std::vector<std::vector<std::size_t>> batches_in_order(std::size_t examples, std::size_t batch_size);

/// The examples of these indices, padded to one batch (models::make_batch).
models::Batch gather_batch(const std::vector<Example>& examples, const std::vector<std::size_t>& indices);

}  // namespace fovea::train
