#include "fovea/text/tokenizer_json.h"

#include <algorithm>
#include <utility>

#include "core/excerpt.h"
#include "fovea/core/error.h"
#include "fovea/core/profile.h"
#include "fovea/files/bytes.h"
#include "text/pipeline/added_tokens.h"
#include "text/pipeline/decoders.h"
#include "text/pipeline/document.h"
#include "text/pipeline/limits.h"
#include "text/pipeline/model.h"
#include "text/pipeline/normalizers.h"
#include "text/pipeline/post_processors.h"
#include "text/pipeline/pre_tokenizers.h"
#include "text/utf8.h"

namespace fovea::text {
namespace {

using namespace pipeline;
using nlohmann::json;

// The largest published file has 34 MB.
constexpr std::size_t kMaxBytes = std::size_t{256} << 20;

// Reads a part with `read`, if it is there.
template <class Read>
auto optional_part(const Document& document, const char* key, Read&& read)
    -> std::optional<decltype(read(json(), Where()))> {
  const json part = document.part(key);
  if (part.is_null()) return std::nullopt;
  return read(part, Where{document.file(), key});
}

Encoding encoding_of(const std::vector<Items>& parts) {
  Encoding encoding;
  for (const Items& part : parts) {
    for (const Item& item : part) {
      encoding.ids.push_back(item.id);
      encoding.offsets.push_back({item.place.begin, item.place.end});
      encoding.special.push_back(item.special ? 1 : 0);
      encoding.types.push_back(item.type);
      encoding.texts.push_back(item.text);
      encoding.words.push_back(item.word);
    }
  }
  return encoding;
}

}  // namespace

struct JsonTokenizer::Impl {
  explicit Impl(std::shared_ptr<Document> from);

  Items items_of(std::string_view text, std::int32_t number) const;
  void add_items(const Piece& piece, std::int32_t number, std::int32_t word, Items& items) const;
  Encoding encode(std::span<const std::string_view> texts, const EncodeOptions& options) const;
  std::optional<std::string_view> spelling(std::int32_t id) const;
  void decode(std::vector<std::string>& tokens) const;
  [[noreturn]] void rethrow(const InvalidArgument& error) const;

  std::shared_ptr<Document> document;
  std::unique_ptr<const Model> model;
  std::optional<Normalizer> normalizer;
  std::optional<PreTokenizer> pre_tokenizer;
  std::optional<PostProcessor> post_processor;
  std::optional<Decoder> decoder;
  std::optional<Truncation> truncation;
  std::optional<Padding> padding;
  AddedTokens added;
};

JsonTokenizer::Impl::Impl(std::shared_ptr<Document> from) : document(std::move(from)) {
  if (const json version = document->part("version"); version != "1.0")
    Where{document->file(), "version"}.expected("\"1.0\"", version);
  normalizer = optional_part(*document, "normalizer", read_normalizer);
  pre_tokenizer = optional_part(*document, "pre_tokenizer", read_pre_tokenizer);
  post_processor = optional_part(*document, "post_processor", read_post_processor);
  decoder = optional_part(*document, "decoder", read_decoder);
  truncation = read_truncation(document->part("truncation"), {document->file(), "truncation"});
  padding = read_padding(document->part("padding"), {document->file(), "padding"});
  model = read_model(document);
  added = AddedTokens(document->part("added_tokens"), {document->file(), "added_tokens"}, *model, normalizer);
}

// The spelling that decoders get: of a token that is searched in the normalised text its normalised one.
std::optional<std::string_view> JsonTokenizer::Impl::spelling(std::int32_t id) const {
  const auto found = added.all().find(id);
  return found == added.all().end() ? model->token(id) : found->second.spelling;
}

void JsonTokenizer::Impl::add_items(const Piece& piece, std::int32_t number, std::int32_t word,
                                    Items& items) const {
  if (piece.id) {
    items.push_back({.id = *piece.id,
                     .place = piece.place,
                     .type = number,
                     .text = number,
                     .word = word,
                     .blanks_before = piece.blanks_before,
                     .blanks_behind = piece.blanks_behind});
    return;
  }
  std::vector<Token> tokens;
  model->tokenize(piece.text.text(), tokens);
  for (const Token& token : tokens) {
    const std::string_view spelled = model->token(token.id).value_or("");
    items.push_back({.id = token.id,
                     .place = piece.text.place(token.begin, token.end),
                     .type = number,
                     .text = number,
                     .word = word,
                     .blanks_before = blanks_before(spelled),
                     .blanks_behind = blanks_behind(spelled)});
  }
}

Items JsonTokenizer::Impl::items_of(std::string_view text, std::int32_t number) const {
  if (text.size() > 0xFFFFFFFF)
    throw InvalidArgument("JsonTokenizer::encode", "text", "less than 2^32 bytes",
                          std::to_string(text.size()));
  if (const std::size_t bad = find_invalid_utf8(text); bad != std::string_view::npos)
    throw InvalidArgument("JsonTokenizer::encode", "text", "UTF-8",
                          "an invalid byte at offset " + std::to_string(bad));
  Items items;
  std::int32_t word = 0;
  for (Piece& piece : added.split(text, normalizer)) {
    if (piece.id || !pre_tokenizer) {
      add_items(piece, number, word++, items);
      continue;
    }
    std::vector<Normalized> parts;
    parts.push_back(std::move(piece.text));
    pre_tokenizer->apply(parts);
    for (Normalized& part : parts) add_items({std::move(part)}, number, word++, items);
  }
  return items;
}

// The limits of patterns and of growth are on the file.
void JsonTokenizer::Impl::rethrow(const InvalidArgument& error) const {
  if (error.function() != "Regex" && error.function() != "Growth") throw error;
  throw FileError(document->file(), -1, "expected " + error.expected() + ", got " + error.got());
}

void JsonTokenizer::Impl::decode(std::vector<std::string>& tokens) const {
  std::size_t bytes = 0;
  for (const std::string& token : tokens) bytes += token.size();
  try {
    if (decoder) decoder->apply(tokens, most_bytes(bytes));
  } catch (const InvalidArgument& error) {
    rethrow(error);
  }
}

Encoding JsonTokenizer::Impl::encode(std::span<const std::string_view> texts,
                                     const EncodeOptions& options) const {
  const bool special = options.special_tokens == EncodeOptions::SpecialTokens::add;
  const bool as_file = options.limits == EncodeOptions::Limits::apply;
  std::vector<Items> parts;
  try {
    for (const std::string_view text : texts)
      parts.push_back(items_of(text, static_cast<std::int32_t>(parts.size())));
  } catch (const InvalidArgument& error) {
    rethrow(error);
  }
  std::optional<Truncation> cut = as_file ? truncation : std::nullopt;
  if (options.max_length) {
    if (!cut) cut = Truncation{};
    cut->max_length = *options.max_length;
    if (options.cut_side)
      cut->side = *options.cut_side == EncodeOptions::CutSide::left ? Truncation::Side::left
                                                                    : Truncation::Side::right;
  }
  if (cut) {
    const auto added =
        static_cast<std::int64_t>(special && post_processor ? post_processor->added(texts.size()) : 0);
    if (cut->max_length < added)
      throw InvalidArgument("JsonTokenizer::encode", "max_length",
                            "at least " + std::to_string(added) + ", the number of special ids",
                            std::to_string(cut->max_length));
    cut->apply(parts, static_cast<std::size_t>(cut->max_length - added));
  }
  if (post_processor) post_processor->apply(parts, texts, special);
  if (as_file && padding) {
    Items all;
    for (const Items& part : parts) all.insert(all.end(), part.begin(), part.end());
    padding->apply(all);
    parts = {std::move(all)};
  }
  return encoding_of(parts);
}

JsonTokenizer::JsonTokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
JsonTokenizer::~JsonTokenizer() = default;
JsonTokenizer::JsonTokenizer(JsonTokenizer&&) noexcept = default;
JsonTokenizer& JsonTokenizer::operator=(JsonTokenizer&&) noexcept = default;

JsonTokenizer JsonTokenizer::read(const std::filesystem::path& file) {
  return from_json(files::read_file(file, kMaxBytes), file.string());
}

JsonTokenizer JsonTokenizer::from_json(std::string text, const std::string& name) {
  return JsonTokenizer(std::make_unique<Impl>(std::make_shared<Document>(name, std::move(text))));
}

Encoding JsonTokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  static constexpr ProfileLabel label{"text to tokens", ProfilePart::data};
  const ProfileSpan span(label, {.bytes = static_cast<double>(text.size())});
  return impl_->encode({&text, 1}, options);
}

Encoding JsonTokenizer::encode(std::string_view first, std::string_view second,
                               const EncodeOptions& options) const {
  const std::string_view texts[] = {first, second};
  return impl_->encode(texts, options);
}

std::string JsonTokenizer::decode(std::span<const std::int32_t> ids, SpecialTokens special_tokens) const {
  static constexpr ProfileLabel label{"tokens to text", ProfilePart::data};
  const ProfileSpan span(label, {.bytes = 4.0 * static_cast<double>(ids.size())});
  std::vector<std::string> tokens;
  for (const std::int32_t id : ids) {
    const auto spelling = impl_->spelling(id);
    if (!spelling) continue;
    if (special_tokens == SpecialTokens::skip && impl_->added.is_special(*spelling)) continue;
    tokens.emplace_back(*spelling);
  }
  impl_->decode(tokens);
  std::string text;
  for (const std::string& token : tokens) {
    if (!impl_->decoder && &token != tokens.data()) text += ' ';
    text += token;
  }
  return text;
}

std::int64_t JsonTokenizer::size() const {
  const auto& all = impl_->added.all();
  const std::int64_t added = all.empty() ? 0 : std::int64_t{all.rbegin()->first} + 1;
  return std::max(added, impl_->model->end_id());
}

std::optional<std::int32_t> JsonTokenizer::id_of(std::string_view token) const {
  const auto added = impl_->added.id_of(token);
  return added ? added : impl_->model->id_of(token);
}

std::string JsonTokenizer::token(std::int32_t id) const {
  const auto found = impl_->added.all().find(id);
  if (found != impl_->added.all().end()) return found->second.content;
  return std::string(impl_->model->token(id).value_or(""));
}

bool JsonTokenizer::is_special(std::int32_t id) const {
  const auto found = impl_->added.all().find(id);
  return found != impl_->added.all().end() && found->second.special;
}

std::optional<bool> JsonTokenizer::lower_cases() const {
  if (!impl_->normalizer) return std::nullopt;
  const auto* bert = std::get_if<BertNormalizer>(&impl_->normalizer->kind);
  return bert ? std::optional(bert->lowercase) : std::nullopt;
}

std::string_view JsonTokenizer::model_type() const {
  return impl_->model->type();
}

std::string JsonTokenizer::continuing_prefix() const {
  return std::string(impl_->model->continuing_prefix());
}

std::string JsonTokenizer::to_json() const {
  std::string text = "{\"version\":\"1.0\"";
  for (const char* key : {"truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                          "post_processor", "decoder", "model"}) {
    text += std::string(",\n\"") + key + "\":";
    if (std::string_view(key) == "added_tokens")
      text += impl_->added.to_json();
    else if (std::string_view(key) == "model")
      text += impl_->model->to_json();
    else
      text += impl_->document->text_of(key);
  }
  return text + "}\n";
}

}  // namespace fovea::text
