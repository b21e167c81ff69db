#include "fovea/text/marian_tokenizer.h"

#include <sentencepiece_processor.h>

#include <utility>

#include "fovea/core/error.h"
#include "fovea/core/profile.h"
#include "fovea/files/bytes.h"
#include "text/pipeline/model.h"
#include "text/sentencepiece_spans.h"

namespace fovea::text {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{256} << 20;
constexpr std::string_view kMarkedBlank = "\xE2\x96\x81";
constexpr std::string_view kEnd = "</s>", kUnknown = "<unk>", kPad = "<pad>";

void load(sentencepiece::SentencePieceProcessor& processor, const std::filesystem::path& path) {
  load_model(processor, files::read_file(path, kMaxBytes), path.string());
}

}  // namespace

struct MarianTokenizer::Impl {
  explicit Impl(const std::filesystem::path& folder)
      : text(files::read_file(folder / "vocab.json", kMaxBytes)),
        where{(folder / "vocab.json").string(), ""},
        vocab({where.file, text, files::JsonScanner::Position::byte}, where) {
    load(source, folder / "source.spm");
    load(target, folder / "target.spm");
    end = id_of(kEnd);
    unknown = id_of(kUnknown);
  }
  std::int32_t id_of(std::string_view piece) const {
    const auto id = vocab.id_of(piece);
    if (!id) where.fail("has no " + std::string(piece));
    return *id;
  }

  std::string text;  // the vocabulary's pieces are views into it
  pipeline::Where where;
  pipeline::Vocab vocab;
  sentencepiece::SentencePieceProcessor source, target;
  std::int32_t end = 0, unknown = 0;
};

MarianTokenizer::MarianTokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MarianTokenizer::~MarianTokenizer() = default;
MarianTokenizer::MarianTokenizer(MarianTokenizer&&) noexcept = default;
MarianTokenizer& MarianTokenizer::operator=(MarianTokenizer&&) noexcept = default;

bool MarianTokenizer::is_in(const std::filesystem::path& folder) {
  std::error_code error;
  for (const char* name : {"source.spm", "target.spm", "vocab.json"}) {
    if (!std::filesystem::exists(folder / name, error)) return false;
  }
  return true;
}

MarianTokenizer MarianTokenizer::read(const std::filesystem::path& folder) {
  return MarianTokenizer(std::make_unique<Impl>(folder));
}

Encoding MarianTokenizer::encoding(std::string_view text) const {
  constexpr const char* function = "MarianTokenizer::encode";
  std::vector<SpannedPiece> pieces;
  std::size_t code = 0;  // the bytes of a language code
  if (const std::size_t end = text.find("<<"); text.starts_with(">>") && end != std::string_view::npos) {
    code = end + 2;
    pieces.push_back({std::string(text.substr(0, code)), 0, {0, code}});
  }
  for (SpannedPiece& piece : spanned_pieces(impl_->source, function, text.substr(code))) {
    piece.place.begin += code;
    piece.place.end += code;
    pieces.push_back(std::move(piece));
  }
  for (SpannedPiece& piece : pieces) piece.id = impl_->vocab.id_of(piece.piece).value_or(impl_->unknown);
  Encoding encoding = encoding_of(text, pieces);
  append_special(encoding, impl_->end);
  return encoding;
}

std::vector<std::int32_t> MarianTokenizer::encode(std::string_view text) const {
  static constexpr ProfileLabel label{"text to tokens", ProfilePart::data};
  const ProfileSpan span(label, {.bytes = static_cast<double>(text.size())});
  return encoding(text).ids;
}

std::vector<std::int32_t> MarianTokenizer::encode_target(std::string_view text) const {
  std::vector<std::int32_t> ids;
  for (const SpannedPiece& piece : spanned_pieces(impl_->target, "MarianTokenizer::encode_target", text))
    ids.push_back(impl_->vocab.id_of(piece.piece).value_or(impl_->unknown));
  ids.push_back(impl_->end);
  return ids;
}

std::string MarianTokenizer::token(std::int32_t id) const {
  return std::string(impl_->vocab.token(id).value_or(""));
}

std::string MarianTokenizer::decode(std::span<const std::int32_t> ids) const {
  static constexpr ProfileLabel label{"tokens to text", ProfilePart::data};
  const ProfileSpan span(label, {.bytes = 4.0 * static_cast<double>(ids.size())});
  std::vector<std::string_view> pieces;
  for (const std::int32_t id : ids) {
    const auto piece = impl_->vocab.token(id);
    if (piece && *piece != kEnd && *piece != kUnknown && *piece != kPad) pieces.push_back(*piece);
  }
  // Pieces such as <0xC3> are bytes, and the model's control pieces are no text, so joining is not enough.
  std::string joined, text;
  const auto status = impl_->target.Decode(pieces, &joined);
  if (!status.ok()) throw Error("MarianTokenizer::decode: " + status.ToString());
  // Blanks are left in pieces that the model lacks.
  std::string_view rest = joined;
  for (std::size_t at = rest.find(kMarkedBlank); at != std::string_view::npos; at = rest.find(kMarkedBlank)) {
    text += rest.substr(0, at);
    text += ' ';
    rest.remove_prefix(at + kMarkedBlank.size());
  }
  text += rest;
  const std::size_t begin = text.find_first_not_of(' '), end = text.find_last_not_of(' ');
  return begin == std::string::npos ? std::string() : text.substr(begin, end + 1 - begin);
}

std::int64_t MarianTokenizer::size() const {
  return impl_->vocab.end_id();
}

}  // namespace fovea::text
