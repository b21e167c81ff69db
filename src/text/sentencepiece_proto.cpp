#include "text/sentencepiece_proto.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "fovea/core/error.h"
#include "text/utf8.h"

namespace fovea::text {
namespace {

// Fields of the model's messages.
constexpr std::uint32_t kPieces = 1, kTrainer = 2, kNormalizer = 3, kDenormalizer = 5;
constexpr std::uint32_t kPieceText = 1, kPieceScore = 2, kPieceKind = 3;
constexpr std::uint32_t kTrainerType = 3, kTrainerByteFallback = 35;
constexpr std::uint32_t kCharsmap = 2;

struct Field {
  std::uint32_t number = 0;
  std::string_view payload;  // of length-delimited fields and of floats; else empty
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
        field.payload = take(4);
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

SentencePieceFile::Piece read_piece(std::string_view bytes, std::size_t number, const std::string& name) {
  const auto fail = [&](const std::string& reason) {
    throw FileError(name, -1, "piece " + std::to_string(number) + " " + reason);
  };
  using Kind = SentencePieceFile::Piece::Kind;
  SentencePieceFile::Piece piece;
  MessageReader reader(bytes, name);
  for (Field field; reader.next(field);) {
    if (field.number == kPieceText) {
      piece.text = field.payload;
    } else if (field.number == kPieceScore && field.payload.size() == sizeof piece.score) {
      std::memcpy(&piece.score, field.payload.data(), sizeof piece.score);
    } else if (field.number == kPieceKind) {
      if (field.value < 1 || field.value > static_cast<std::uint64_t>(Kind::byte))
        fail("is of a kind that is not known: " + std::to_string(field.value));
      piece.kind = static_cast<Kind>(field.value);
    }
  }
  if (piece.text.empty()) fail("is empty");
  if (find_invalid_utf8(piece.text) != std::string_view::npos) fail("is not UTF-8");
  if (!std::isfinite(piece.score)) fail("has a score that is no number");
  return piece;
}

void read_trainer(std::string_view bytes, const std::string& name, SentencePieceFile& file) {
  using Type = SentencePieceFile::Type;
  MessageReader reader(bytes, name);
  for (Field field; reader.next(field);) {
    if (field.number == kTrainerByteFallback) file.byte_fallback = field.value != 0;
    if (field.number != kTrainerType) continue;
    if (field.value < 1 || field.value > static_cast<std::uint64_t>(Type::character))
      throw FileError(name, -1, "model_type is not known: " + std::to_string(field.value));
    file.type = static_cast<Type>(field.value);
  }
}

std::string_view charsmap_of(std::string_view bytes, const std::string& name) {
  std::string_view charsmap;
  MessageReader reader(bytes, name);
  for (Field field; reader.next(field);) {
    if (field.number == kCharsmap) charsmap = field.payload;
  }
  return charsmap;
}

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

SentencePieceFile read_sentencepiece_file(std::string_view bytes, const std::string& name) {
  SentencePieceFile file;
  MessageReader model(bytes, name);
  for (Field field; model.next(field);) {
    if (field.number == kPieces)
      file.pieces.push_back(read_piece(field.payload, file.pieces.size(), name));
    else if (field.number == kTrainer)
      read_trainer(field.payload, name, file);
    else if (field.number == kNormalizer)
      file.charsmap = charsmap_of(field.payload, name);
  }
  return file;
}

bool has_character_pieces(std::string_view bytes, const std::string& name) {
  return read_sentencepiece_file(bytes, name).type == SentencePieceFile::Type::character;
}

}  // namespace fovea::text
