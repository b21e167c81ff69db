#include "plan/recurrence/sequences.h"

#include <string>

#include "core/starts.h"
#include "fovea/core/error.h"

namespace fovea {
namespace {

using kernels::TokenSequence;

[[noreturn]] void refuse_capacity(const char* function, const char* argument, const char* what,
                                  std::int64_t most, std::int64_t got) {
  throw InvalidArgument(function, argument,
                        std::string(what) + " of at most the plan's " + std::to_string(most),
                        std::to_string(got));
}

void check_packed_tokens(const char* function, const char* argument, const ConstTensorView& tokens,
                         std::span<const std::int64_t> starts, const RecurrenceSizes& sizes,
                         const SequenceCapacity& capacity) {
  if (sizes.entries != 1)
    throw InvalidArgument(function, argument, "a batch of 1 with sequence_starts", described(tokens));
  if (sizes.sequences > capacity.batch)
    refuse_capacity(function, "sequence_starts", "a number of sequences", capacity.batch, sizes.sequences);
  check_starts(function, "sequence_starts", starts, sizes.len);
  for (std::size_t n = 1; n < starts.size(); ++n) {
    if (starts[n] - starts[n - 1] > capacity.len)
      refuse_capacity(function, "sequence_starts", "sequences", capacity.len, starts[n] - starts[n - 1]);
  }
}

}  // namespace

RecurrenceSizes check_sequences(const char* function, const char* argument, const ConstTensorView& tokens,
                                std::int64_t len, const SequenceLists& lists,
                                const SequenceCapacity& capacity) {
  RecurrenceSizes sizes{tokens.size(0), len, tokens.size(0)};
  if (!lists.starts.empty()) {
    sizes.sequences = static_cast<std::int64_t>(lists.starts.size()) - 1;
    check_packed_tokens(function, argument, tokens, lists.starts, sizes, capacity);
  } else {
    if (sizes.entries > capacity.batch)
      refuse_capacity(function, argument, "a batch", capacity.batch, sizes.entries);
    if (sizes.len > capacity.len) refuse_capacity(function, argument, "a length", capacity.len, sizes.len);
  }
  if (!lists.present.empty() && static_cast<std::int64_t>(lists.present.size()) != sizes.entries * sizes.len)
    throw InvalidArgument(function, "present",
                          std::to_string(sizes.entries * sizes.len) + " numbers, one for each token",
                          std::to_string(lists.present.size()));
  return sizes;
}

std::span<const TokenSequence> make_sequences(const SequenceLists& lists, const RecurrenceSizes& sizes,
                                              Carver& carver) {
  TokenSequence* list = carver.take<TokenSequence>(sizes.sequences);
  std::int64_t* rows = carver.take<std::int64_t>(sizes.entries * sizes.len);
  if (!list) return {};
  for (std::int64_t n = 0; n < sizes.sequences; ++n) {
    const bool packed = !lists.starts.empty();
    const auto start = [&](std::int64_t at) { return lists.starts[static_cast<std::size_t>(at)]; };
    TokenSequence& sequence = list[n];
    sequence = packed ? TokenSequence{0, start(n), start(n + 1) - start(n)} : TokenSequence{n, 0, sizes.len};
    if (lists.present.empty()) continue;
    std::int64_t count = 0;
    for (std::int64_t row = sequence.begin; row < sequence.begin + sequence.count; ++row) {
      if (lists.present[static_cast<std::size_t>(sequence.entry * sizes.len + row)]) rows[count++] = row;
    }
    sequence.count = count;
    sequence.rows = rows;
    rows += count;
  }
  return {list, static_cast<std::size_t>(sizes.sequences)};
}

}  // namespace fovea
