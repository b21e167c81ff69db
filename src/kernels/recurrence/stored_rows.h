// Reads and writes rows of tensors in the type in which they are stored, one at a time. And blocks of tokens,
// the units of kernels that go channel by channel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/recurrence/problem.h"

namespace fovea::kernels {

/// to[i] = element first + i of the row. f64 is read as double, every other type as float.
void read_stored(const StoredRows<const std::byte>& rows, std::int64_t entry, std::int64_t row,
                 std::int64_t first, std::int64_t count, float* to);
void read_stored(const StoredRows<const std::byte>& rows, std::int64_t entry, std::int64_t row,
                 std::int64_t first, std::int64_t count, double* to);
/// The reverse; numbers are rounded to the nearest.
void write_stored(const float* from, std::int64_t first, std::int64_t count,
                  const StoredRows<std::byte>& rows, std::int64_t entry, std::int64_t row);
void write_stored(const double* from, std::int64_t first, std::int64_t count,
                  const StoredRows<std::byte>& rows, std::int64_t entry, std::int64_t row);

/// Tokens [begin, end) of a sequence.
struct TokenBlock {
  std::int64_t sequence, begin, end;
};

/// No call with that many rows and sequences has more blocks of `size` tokens.
inline std::int64_t most_blocks(std::int64_t rows, std::int64_t sequences, std::int64_t size) {
  return rows / size + sequences;
}
/// Writes the blocks of all sequences in order, and gives their number.
inline std::int64_t make_blocks(const TokenSequence* sequences, std::int64_t count, std::int64_t size,
                                TokenBlock* blocks) {
  std::int64_t made = 0;
  for (std::int64_t n = 0; n < count; ++n) {
    for (std::int64_t begin = 0; begin < sequences[n].count; begin += size) {
      const std::int64_t end = begin + size < sequences[n].count ? begin + size : sequences[n].count;
      blocks[made++] = {n, begin, end};
    }
  }
  return made;
}

}  // namespace fovea::kernels
