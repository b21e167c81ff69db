#include "text/pipeline/charsmap.h"

#include <cstring>

#include "fovea/core/error.h"
#include "text/pipeline/normalized.h"
#include "text/sentencepiece_proto.h"
#include "text/utf8.h"

namespace fovea::text::pipeline {
namespace {

// A unit of the trie (Yata 2010, darts-clone): from unit i, whose node is i ^ offset(unit), byte b leads to
// node ^ b, if the unit there has that label.
constexpr std::uint32_t offset_of(std::uint32_t unit) {
  return (unit >> 10) << ((unit & (1u << 9)) >> 6);
}
constexpr bool has_value(std::uint32_t unit) {
  return (unit & (1u << 8)) != 0;
}

std::size_t characters_in(std::string_view text) {
  std::size_t count = 0;
  for (const char byte : text) count += (static_cast<unsigned char>(byte) & 0xC0u) != 0x80u;
  return count;
}

// `from` characters become those of `to`.
void append(std::vector<Change>& changes, std::string_view from, std::string_view to) {
  const std::size_t old_count = characters_in(from), new_count = characters_in(to);
  std::size_t i = 0;
  for (std::size_t at = 0; at < to.size(); ++i) {
    const CodePoint point = decode_utf8(to, at);
    changes.push_back({point.value, i < old_count ? 0 : 1});
    at += static_cast<std::size_t>(point.bytes);
  }
  // Nothing left: what was there is dropped with the character before.
  if (new_count < old_count && !changes.empty())
    changes.back().added -= static_cast<std::int32_t>(old_count - new_count);
}

}  // namespace

Charsmap::Charsmap(std::string blob, const std::string& file) : blob_(std::move(blob)) {
  check_charsmap(blob_, file);
  std::uint32_t bytes = 0;
  std::memcpy(&bytes, blob_.data(), sizeof bytes);
  trie_bytes_ = bytes;
  const std::string_view strings = std::string_view(blob_).substr(sizeof bytes + trie_bytes_);
  if (find_invalid_utf8(strings) != std::string_view::npos)
    throw FileError(file, -1, "normalisation trie: a replacement is not UTF-8");
  for (std::size_t i = 0; i < trie_bytes_ / 4; ++i) {
    const std::uint32_t from = unit(i);
    if ((from >> 31 != 0 && i != 0) || !has_value(from)) continue;
    const auto byte = static_cast<unsigned char>(strings[unit(i ^ offset_of(from)) & 0x7FFFFFFFu]);
    if ((byte & 0xC0u) == 0x80u)
      throw FileError(file, -1, "normalisation trie: a replacement begins inside a character");
  }
}

std::uint32_t Charsmap::unit(std::size_t index) const {
  std::uint32_t value = 0;
  std::memcpy(&value, blob_.data() + sizeof value + index * sizeof value, sizeof value);
  return value;
}

std::string_view Charsmap::replacement(std::string_view text) const {
  std::size_t node = offset_of(unit(0));
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    if (byte == 0) return {};
    node ^= byte;
    const std::uint32_t here = unit(node);
    if ((here & (1u << 31 | 0xFFu)) != byte) return {};
    node ^= offset_of(here);
    if (!has_value(here)) continue;
    const char* begin = blob_.data() + sizeof here + trie_bytes_ + (unit(node) & 0x7FFFFFFFu);
    return {begin, std::strlen(begin)};
  }
  return {};
}

std::vector<Change> Charsmap::apply(std::string_view text, std::size_t most) const {
  std::vector<Change> changes;
  std::size_t begin = 0;
  for (const std::size_t end : grapheme_ends(text)) {
    const std::string_view cluster = text.substr(begin, end - begin);
    begin = end;
    if (changes.size() > most) refuse_growth("normalizer", most);
    // Published models depend on this: a replacement of the first character replaces all of the cluster.
    const std::string_view whole = cluster.size() < 6 ? replacement(cluster) : std::string_view();
    if (whole.data() != nullptr) {
      append(changes, cluster, whole);
      continue;
    }
    for (std::size_t at = 0; at < cluster.size();) {
      const CodePoint point = decode_utf8(cluster, at);
      const std::string_view letter = cluster.substr(at, static_cast<std::size_t>(point.bytes));
      const std::string_view other = replacement(letter);
      if (other.data() != nullptr)
        append(changes, letter, other);
      else
        changes.push_back({point.value, 0});
      at += letter.size();
    }
  }
  return changes;
}

}  // namespace fovea::text::pipeline
