#include "text/sentencepiece_proto.h"

#include <cstdint>
#include <cstring>

#include "fovea/core/error.h"

namespace fovea::text {
namespace {

struct Field {
  std::uint32_t number = 0;
  std::string_view payload;  // of length-delimited fields; else empty
  std::uint64_t value = 0;   // of whole numbers
};

// Reads the fields of one message, one by one.
class MessageReader {
 public:
  MessageReader(std::string_view bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  bool next(Field& field) {
    if (at_ >= bytes_.size()) return false;
    const std::uint64_t key = varint();
    field = {static_cast<std::uint32_t>(key >> 3), {}, 0};
    switch (key & 7) {
      case 0:
        field.value = varint();
        break;
      case 1:
        take(8);
        break;
      case 2:
        field.payload = take(varint());
        break;
      case 5:
        take(4);
        break;
      default:
        fail("is not a SentencePiece model (bad wire type)");
    }
    return true;
  }

 private:
  [[noreturn]] void fail(const char* reason) const {
    throw FileError(name_, static_cast<std::int64_t>(at_), reason);
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ >= bytes_.size()) fail("ends inside a number");
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      value |= std::uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    fail("is not a SentencePiece model (number too long)");
  }
  std::string_view take(std::uint64_t size) {
    if (size > bytes_.size() - at_) fail("ends inside a field");
    const std::string_view taken = bytes_.substr(at_, static_cast<std::size_t>(size));
    at_ += static_cast<std::size_t>(size);
    return taken;
  }

  std::string_view bytes_;
  const std::string& name_;
  std::size_t at_ = 0;
};

}  // namespace

// The layout is <trie size: u32> <double-array trie: u32 units> <replacement strings, each ended by NUL>.
// From unit i with offset o and byte b the walk goes to i ^ o ^ b, and a leaf's value is an offset into the
// strings.
void check_charsmap(std::string_view blob, const std::string& name) {
  const auto fail = [&](const char* reason) {
    throw FileError(name, -1, std::string("normalisation trie: ") + reason);
  };
  std::uint32_t trie_bytes = 0;
  if (blob.size() <= sizeof trie_bytes) fail("too short");
  std::memcpy(&trie_bytes, blob.data(), sizeof trie_bytes);
  blob.remove_prefix(sizeof trie_bytes);
  if (trie_bytes >= blob.size() || trie_bytes % 4 != 0 || trie_bytes < 1024)
    fail("its size does not fit the file");
  const std::string_view strings = blob.substr(trie_bytes);
  if (strings.back() != '\0') fail("the last replacement does not end");
  const std::uint32_t units = trie_bytes / 4;
  const auto unit_at = [&](std::uint32_t i) {
    std::uint32_t unit = 0;
    std::memcpy(&unit, blob.data() + std::size_t{i} * 4, 4);
    return unit;
  };
  for (std::uint32_t i = 0; i < units; ++i) {
    const std::uint32_t unit = unit_at(i);
    if (unit >> 31 != 0 && i != 0) continue;  // a value; no byte leads here
    const std::uint32_t to = i ^ ((unit >> 10) << ((unit & (1u << 9)) >> 6));
    if ((to | 0xFFu) >= units) fail("an edge points outside");
    const bool has_value = (unit & (1u << 8)) != 0;
    if (has_value && (unit_at(to) & 0x7FFFFFFFu) >= strings.size()) fail("a value points outside");
  }
}

void check_sentencepiece_model(std::string_view bytes, const std::string& name) {
  constexpr std::uint32_t kPieces = 1, kNormalizer = 3, kDenormalizer = 5, kCharsmap = 2;
  if (bytes.empty()) throw FileError(name, 0, "is empty");
  MessageReader model(bytes, name);
  bool any_piece = false;
  for (Field field; model.next(field);) {
    any_piece = any_piece || field.number == kPieces;
    if (field.number != kNormalizer && field.number != kDenormalizer) continue;
    MessageReader normalizer(field.payload, name);
    for (Field inner; normalizer.next(inner);) {
      if (inner.number == kCharsmap && !inner.payload.empty()) check_charsmap(inner.payload, name);
    }
  }
  if (!any_piece) throw FileError(name, -1, "is not a SentencePiece model: it has no pieces");
}

bool has_character_pieces(std::string_view bytes, const std::string& name) {
  constexpr std::uint32_t kTrainer = 2, kModelType = 3, kCharacters = 4;
  MessageReader model(bytes, name);
  bool characters = false;
  for (Field field; model.next(field);) {
    if (field.number != kTrainer) continue;
    MessageReader trainer(field.payload, name);
    for (Field inner; trainer.next(inner);) {
      if (inner.number == kModelType) characters = inner.value == kCharacters;
    }
  }
  return characters;
}

}  // namespace fovea::text
