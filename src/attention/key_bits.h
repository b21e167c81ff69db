// Keys as bits, 64 a word, the lowest key lowest; and back to spans.
#pragma once

#include <bit>
#include <cstdint>

#include "fovea/attention/mask.h"

namespace fovea::mask_parts {

/// Writes the runs of ones of words that come in order. Runs less than `close` keys apart become one, and
/// those shorter than `least` keys are left out. Only the ends of a run cost more than a few operations a
/// word.
class SpanWriter {
 public:
  SpanWriter(KeySpans& spans, std::int64_t close, std::int64_t least)
      : spans_(spans), close_(close), least_(least) {}

  /// Bits of the keys [first, first + 64); those from key_len on are not looked at.
  void add(std::uint64_t word, std::int64_t first, std::int64_t key_len) {
    if (key_len - first < 64) word &= (std::uint64_t{1} << (key_len - first)) - 1;
    const std::uint64_t before = word << 1 | (inside_ ? 1u : 0u);  // whether the key before is one
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
    if (end - begin_ < least_) return;
    if (!spans_.empty() && begin_ - spans_.back().end < close_)
      spans_.back().end = end;
    else
      spans_.push_back({begin_, end});
  }

  KeySpans& spans_;
  std::int64_t close_, least_, begin_ = 0;
  bool inside_ = false;
};

}  // namespace fovea::mask_parts
