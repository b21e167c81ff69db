// A SentencePiece model made of a list of pieces.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace fovea::text {

struct SpmPiece {
  std::string text;
  float score = 0;
  int kind = 1;  ///< 1: a usual one, 2: unknown, 3: control, 4: defined by the user, 6: a byte
};

/// A field of a protocol buffer with bytes as its value.
inline std::string proto_field(int number, std::string_view payload) {
  std::string bytes;
  const auto varint = [&](std::size_t value) {
    for (; value >= 128; value >>= 7) bytes.push_back(static_cast<char>(value | 128));
    bytes.push_back(static_cast<char>(value));
  };
  varint(static_cast<std::size_t>(number) << 3 | 2);
  varint(payload.size());
  return bytes + std::string(payload);
}

/// `type`: 1 for Unigram, 2 for byte-pair encoding.
inline std::string spm_file(const std::vector<SpmPiece>& pieces, char type = 1) {
  std::string bytes;
  for (const SpmPiece& piece : pieces) {
    std::string score(sizeof piece.score, '\0');
    std::memcpy(score.data(), &piece.score, sizeof piece.score);
    bytes +=
        proto_field(1, proto_field(1, piece.text) + '\x15' + score + '\x18' + static_cast<char>(piece.kind));
  }
  return bytes + proto_field(2, std::string("\x18") + type);
}

}  // namespace fovea::text
