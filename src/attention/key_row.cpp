// One row of a predicate: as spans if they are few, as bits if they are many.
#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "attention/key_bits.h"
#include "fovea/attention/predicate.h"

namespace fovea {
namespace {

using mask_parts::SpanWriter;

// Eight bytes as one number, the first byte lowest.
std::uint64_t word_of(const std::uint8_t* bytes, std::int64_t count) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, static_cast<std::size_t>(std::min<std::int64_t>(count, 8)));
  if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
  return word;
}

// One bit for each of eight bytes: 1 if the byte is not 0.
std::uint64_t bits_of(std::uint64_t bytes) {
  constexpr std::uint64_t low = 0x7f7f7f7f7f7f7f7f, ones = 0x0101010101010101;
  const std::uint64_t seen = ((((bytes & low) + low) | bytes) >> 7) & ones;
  return seen * 0x0102040810204080 >> 56;  // byte i times 2^(56 - 7i) has its bit at 56 + i
}

std::vector<std::uint64_t> packed(const std::uint8_t* bytes, std::int64_t count) {
  std::vector<std::uint64_t> words(static_cast<std::size_t>((count + 63) / 64));
  for (std::int64_t j = 0; j + 8 <= count; j += 8)
    words[static_cast<std::size_t>(j / 64)] |= bits_of(word_of(bytes + j, 8)) << j % 64;
  if (const std::int64_t j = count / 8 * 8; j < count)
    words[static_cast<std::size_t>(j / 64)] |= bits_of(word_of(bytes + j, count - j)) << j % 64;
  return words;
}

std::vector<std::uint64_t> packed(const std::uint8_t* bytes, std::int64_t count, std::int64_t stride) {
  if (stride == 1) return packed(bytes, count);
  std::vector<std::uint8_t> gathered(static_cast<std::size_t>(count));
  for (std::int64_t key = 0; key < count; ++key)
    gathered[static_cast<std::size_t>(key)] = bytes[key * stride];
  return packed(gathered.data(), count);
}

std::int64_t count_runs(const std::vector<std::uint64_t>& words) {
  std::int64_t turns = 0;
  std::uint64_t before = 0;
  for (const std::uint64_t word : words) {
    turns += std::popcount(word ^ (word << 1 | before));
    before = word >> 63;
  }
  return (turns + 1) / 2;
}

KeySpans runs_of(const std::vector<std::uint64_t>& words) {
  KeySpans spans;
  spans.reserve(static_cast<std::size_t>(count_runs(words)));
  SpanWriter writer(spans, 1, 1);
  const auto end = static_cast<std::int64_t>(64 * words.size());  // bits beyond the keys are 0
  for (std::size_t n = 0; n < words.size(); ++n) writer.add(words[n], static_cast<std::int64_t>(64 * n), end);
  writer.finish(end);
  return spans;
}

// The most spans to store as spans. Those inside the KeySpans object need no further memory. Others take 16
// bytes each, where bits take key_len / 8 in all.
std::int64_t most_spans(std::int64_t key_len) {
  return std::max<std::int64_t>(6, key_len / 128);
}

}  // namespace

KeyRow::KeyRow(const std::uint8_t* visible, std::int64_t key_len, std::int64_t stride) {
  keep(packed(visible, key_len, stride), key_len);
}

KeyRow::KeyRow(const KeySpans& spans, std::int64_t key_len) {
  if (static_cast<std::int64_t>(spans.size()) <= most_spans(key_len)) {
    spans_ = spans;
    return;
  }
  bits_.resize(static_cast<std::size_t>((key_len + 63) / 64));
  for (const KeySpan& span : spans) {
    for (std::int64_t key = span.begin; key < span.end; ++key)
      bits_[static_cast<std::size_t>(key / 64)] |= std::uint64_t{1} << key % 64;
  }
}

void KeyRow::keep(std::vector<std::uint64_t> bits, std::int64_t key_len) {
  if (count_runs(bits) > most_spans(key_len))
    bits_ = std::move(bits);
  else
    spans_ = runs_of(bits);
}

bool KeyRow::sees(std::int64_t key) const noexcept {
  if (by_bits()) {
    const auto n = static_cast<std::size_t>(key / 64);
    return key >= 0 && n < bits_.size() && (bits_[n] >> key % 64 & 1) != 0;
  }
  const auto span =
      std::partition_point(spans_.begin(), spans_.end(), [&](const KeySpan& s) { return s.end <= key; });
  return span != spans_.end() && span->begin <= key;
}

KeySpans KeyRow::spans() const {
  return by_bits() ? runs_of(bits_) : spans_;
}

std::uint64_t KeyRow::word(std::int64_t n) const noexcept {
  if (by_bits()) return n < static_cast<std::int64_t>(bits_.size()) ? bits_[static_cast<std::size_t>(n)] : 0;
  const std::int64_t first = 64 * n;
  std::uint64_t word = 0;
  auto span =
      std::partition_point(spans_.begin(), spans_.end(), [&](const KeySpan& s) { return s.end <= first; });
  for (; span != spans_.end() && span->begin < first + 64; ++span) {
    const std::int64_t begin = std::max(span->begin - first, std::int64_t{0}),
                       end = std::min(span->end - first, std::int64_t{64});
    word |= (~std::uint64_t{0} >> (64 - (end - begin))) << begin;
  }
  return word;
}

KeySpans spans_of(const std::uint8_t* visible, std::int64_t count, std::int64_t stride) {
  return runs_of(packed(visible, count, stride));
}

}  // namespace fovea
