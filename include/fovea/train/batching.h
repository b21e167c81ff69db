// Mini-batches by tokens. The order is a pure function of seed and epoch, so that a resumed training meets
// the same batches.
#pragma once

#include <cstdint>
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

models::Batch gather_batch(const std::vector<Example>& examples, const std::vector<std::size_t>& indices);

}  // namespace fovea::train
