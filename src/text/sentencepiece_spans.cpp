#include "text/sentencepiece_spans.h"

#include <exception>

#include "fovea/core/error.h"
#include "text/sentencepiece_proto.h"
#include "text/utf8.h"

namespace fovea::text {

void load_model(sentencepiece::SentencePieceProcessor& processor, std::string_view bytes,
                const std::string& name) {
  check_sentencepiece_model(bytes, name);
  std::string reason;
  try {
    const auto status = processor.LoadFromSerializedProto(bytes);
    if (!status.ok()) reason = status.ToString();
  } catch (const std::exception& error) {
    reason = error.what();
  }
  if (!reason.empty()) throw FileError(name, -1, "is not a SentencePiece model: " + reason);
}

std::vector<SpannedPiece> spanned_pieces(const sentencepiece::SentencePieceProcessor& processor,
                                         const char* function, std::string_view text) {
  if (const std::size_t bad = find_invalid_utf8(text); bad != std::string_view::npos)
    throw InvalidArgument(function, "text", "UTF-8", "an invalid byte at offset " + std::to_string(bad));
  sentencepiece::ImmutableSentencePieceText encoded;
  const auto status = processor.Encode(text, encoded.mutable_proto());
  if (!status.ok()) throw Error(std::string(function) + ": " + status.ToString());
  std::vector<SpannedPiece> pieces;
  for (const auto& piece : encoded.pieces())
    pieces.push_back({piece.piece(), static_cast<std::int32_t>(piece.id()), {piece.begin(), piece.end()}});
  // The library gives all of a character to the last of its bytes.
  for (std::size_t i = pieces.size(); i-- > 1;) {
    SpannedPiece& before = pieces[i - 1];
    if (before.place.begin == before.place.end && before.place.begin == pieces[i].place.begin &&
        processor.IsByte(before.id) && processor.IsByte(pieces[i].id))
      before.place = pieces[i].place;
  }
  return pieces;
}

Encoding encoding_of(std::string_view text, const std::vector<SpannedPiece>& pieces) {
  Encoding encoding;
  std::int32_t word = -1;
  bool open = false;  // a piece behind it goes on with the word, unless a blank begins it
  for (const SpannedPiece& piece : pieces) {
    const auto [begin, end] = piece.place;
    const bool same = begin < end && !encoding.offsets.empty() && encoding.offsets.back() == piece.place;
    const std::string_view shown = text.substr(begin, end - begin);
    const bool begins = !shown.empty() && is_blank(shown.substr(0, 1));
    if (word < 0 || (!same && open && (begins || (begin > 0 && is_blank(text.substr(begin - 1, 1)))))) ++word;
    // A blank alone begins the word of the piece behind it.
    open = !is_blank(shown);
    encoding.ids.push_back(piece.id);
    encoding.offsets.push_back(piece.place);
    encoding.words.push_back(word);
  }
  encoding.special.assign(encoding.ids.size(), 0);
  encoding.types.assign(encoding.ids.size(), 0);
  encoding.texts.assign(encoding.ids.size(), 0);
  return encoding;
}

void append_special(Encoding& encoding, std::int32_t id) {
  encoding.ids.push_back(id);
  encoding.offsets.push_back({});
  encoding.special.push_back(1);
  encoding.types.push_back(0);
  encoding.texts.push_back(-1);
  encoding.words.push_back(-1);
}

}  // namespace fovea::text
