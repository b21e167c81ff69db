// Here are the nodes of masks and mods, the parsers of their text forms, and the definitions of scores and
// normalisers. Kernels, which compute them, are in kernels/. Open mask.cpp first.
//
// This header stores keys as bits, 64 a word, the lowest key in the lowest bit, and turns them back to spans.
#pragma once

#include <bit>
#include <cstdint>

#include "fovea/attention/mask.h"
#include "fovea/attention/mask_definition.h"

namespace fovea::mask_parts {

/// Writes the runs of ones as spans. Words come in order. Runs fewer than `smallest_gap` keys apart are
/// joined; runs of fewer than `shortest` keys are left out. Costs a few operations a word, and more only at
/// the ends of runs.
class SpanWriter {
 public:
  SpanWriter(KeySpans& spans, std::int64_t smallest_gap, std::int64_t shortest)
      : spans_(spans), smallest_gap_(smallest_gap), shortest_(shortest) {}

  /// `word` has the bits of keys [first, first + 64); bits from key_len on are ignored.
  void add(std::uint64_t word, std::int64_t first, std::int64_t key_len) {
    if (key_len - first < 64) word &= (std::uint64_t{1} << (key_len - first)) - 1;
    const std::uint64_t before = word << 1 | (inside_ ? 1u : 0u);  // bit k: whether key k - 1 is in a run
    for (std::uint64_t turns = word ^ before; turns != 0; turns &= turns - 1) {
      const std::int64_t key = first + std::countr_zero(turns);
      if (inside_)
        write(key);
      else
        begin_ = key;
      inside_ = !inside_;
    }
  }
  void finish(std::int64_t key_len) {
    if (inside_) write(key_len);
    inside_ = false;
  }

 private:
  void write(std::int64_t end) {
    if (end - begin_ < shortest_) return;
    if (!spans_.empty() && begin_ - spans_.back().end < smallest_gap_)
      spans_.back().end = end;
    else
      spans_.push_back({begin_, end});
  }

  KeySpans& spans_;
  std::int64_t smallest_gap_, shortest_, begin_ = 0;
  bool inside_ = false;
};

}  // namespace fovea::mask_parts
