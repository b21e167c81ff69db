// Many texts in batches that run side by side.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace fovea::models {

/// Calls `work` with the numbers of the texts of each batch. Texts of similar length are together, `size` of
/// them at most, the shortest first; those of length 0 are left out. Batches run side by side, each on one
/// thread, because products, norms and scans of the vocabulary of one batch are too small to be shared by
/// threads. There is a multiple of four batches, whose sizes differ by one at most. Where they would have
/// fewer than four texts, there is one batch for each four texts, and one for the rest. The texts alone
/// decide how they are cut, so the bits do not depend on the number of threads. If there is only one batch,
/// all threads share its work. The batch of the longest texts begins first, so that no thread is left with it
/// at the end. After an exception of `work` no other batch begins. It is rethrown once those that run have
/// ended. Throws InvalidArgument for a size below 1.
void for_batches(std::span<const std::int64_t> lengths, std::int64_t size,
                 const std::function<void(std::span<const std::size_t> texts)>& work);

/// The same, and `done` gets the number of each text as soon as `work` has returned true for it and for all
/// before it. Texts of length 0 need no work. The calls of `done` are in the order of the texts, one at a
/// time, on any thread. Where `work` returns false, as a cancelled one does, `done` gets no more.
/// Neither does it after it has thrown: its exception is thrown here once the running batches have ended.
void for_batches_in_order(std::span<const std::int64_t> lengths, std::int64_t size,
                          const std::function<bool(std::span<const std::size_t> texts)>& work,
                          const std::function<void(std::size_t text)>& done);

}  // namespace fovea::models
