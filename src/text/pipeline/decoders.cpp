#include "text/pipeline/decoders.h"

#include <charconv>
#include <optional>

#include "core/utf8.h"
#include "text/utf8.h"

namespace fovea::text::pipeline {
namespace {

using nlohmann::json;

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// What BERT's first implementation does to English.
void clean_up(std::string& text) {
  constexpr std::pair<std::string_view, std::string_view> rules[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : rules) replace_all(text, from, to);
}

void apply(const WordPieceDecoder& decoder, std::vector<std::string>& tokens) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) {
      if (tokens[i].starts_with(decoder.prefix))
        tokens[i].erase(0, decoder.prefix.size());
      else
        tokens[i].insert(tokens[i].begin(), ' ');
    }
    if (decoder.cleanup) clean_up(tokens[i]);
  }
}

void apply(const ByteLevelDecoder&, std::vector<std::string>& tokens) {
  std::string bytes;
  for (const std::string& token : tokens) {
    std::string of_token;
    for (std::size_t at = 0; at < token.size();) {
      const CodePoint point = decode_utf8(token, at);
      at += static_cast<std::size_t>(point.bytes);
      const auto byte = byte_of(point.value);
      if (!byte) {  // an added token, which is no spelling of bytes
        of_token = token;
        break;
      }
      of_token.push_back(static_cast<char>(*byte));
    }
    bytes += of_token;
  }
  tokens = {with_valid_utf8(bytes)};
}

void apply(const Metaspace& options, std::vector<std::string>& tokens) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const bool drops = i == 0 && options.prepend != Metaspace::Prepend::never;
    replace_all(tokens[i], options.replacement, drops ? "" : " ");
  }
}

void apply(const BpeDecoder& decoder, std::vector<std::string>& tokens) {
  for (std::size_t i = 0; i < tokens.size(); ++i)
    replace_all(tokens[i], decoder.suffix, i + 1 == tokens.size() ? "" : " ");
}

// The byte of "<0x41>".
std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  unsigned value = 0;
  const char* const end = token.data() + 5;
  const auto [stopped, error] = std::from_chars(token.data() + 3, end, value, 16);
  if (error != std::errc() || stopped != end) return std::nullopt;
  return static_cast<char>(static_cast<unsigned char>(value));
}

void apply(const ByteFallback&, std::vector<std::string>& tokens) {
  std::vector<std::string> result;
  std::string bytes;
  const auto close = [&] {
    if (find_invalid_utf8(bytes) == std::string_view::npos) {
      if (!bytes.empty()) result.push_back(bytes);
    } else {
      result.insert(result.end(), bytes.size(), std::string(kReplacement));
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const auto byte = fallback_byte(token)) {
      bytes.push_back(*byte);
    } else {
      close();
      result.push_back(std::move(token));
    }
  }
  close();
  tokens = std::move(result);
}

void apply(const Replace& replace, std::vector<std::string>& tokens, std::size_t most) {
  std::size_t total = 0;
  for (std::string& token : tokens) {
    std::string result;
    for (const auto& [begin, end, match] : replace.pattern.parts(token)) {
      total += match ? replace.content.size() : end - begin;
      if (total > most) refuse_growth("decoder", most);
      if (match)
        result += replace.content;
      else
        result.append(token, begin, end - begin);
    }
    token = std::move(result);
  }
}

void apply(const Fuse&, std::vector<std::string>& tokens) {
  std::string all;
  for (const std::string& token : tokens) all += token;
  tokens = {std::move(all)};
}

void apply(const StripDecoder& decoder, std::vector<std::string>& tokens) {
  for (std::string& token : tokens) {
    std::string_view kept = token;
    std::size_t dropped = 0;
    for (; dropped < decoder.start && kept.starts_with(decoder.content); ++dropped)
      kept.remove_prefix(decoder.content.size());
    for (std::size_t i = 0; i < decoder.stop && kept.ends_with(decoder.content); ++i)
      kept.remove_suffix(decoder.content.size());
    token = std::string(kept);
  }
}

void apply(const DecoderSequence& sequence, std::vector<std::string>& tokens, std::size_t most) {
  for (const Decoder& part : sequence.parts) part.apply(tokens, most);
}

// The others add a few bytes to a token at most.
template <class Kind>
void apply(const Kind& decoder, std::vector<std::string>& tokens, std::size_t) {
  apply(decoder, tokens);
}

Decoder read_decoders(const json& value, const Where& where) {
  const Fields fields(value, where, {"type", "decoders"});
  DecoderSequence sequence;
  for (const json& part : fields.array("decoders"))
    sequence.parts.push_back(read_decoder(part, fields.where("decoders").at(sequence.parts.size())));
  return {std::move(sequence)};
}

Decoder read_bpe(const json& value, const Where& where) {
  const Fields fields(value, where, {"type", "suffix"});
  if (fields.string("suffix").empty()) fields.where("suffix").fail("is empty");
  return {BpeDecoder{fields.string("suffix")}};
}

}  // namespace

void Decoder::apply(std::vector<std::string>& tokens, std::size_t most) const {
  std::visit([&](const auto& of_kind) { pipeline::apply(of_kind, tokens, most); }, kind);
}

Decoder read_decoder(const json& value, const Where& where) {
  const std::string type = type_of(value, where);
  if (type == "Sequence") return read_decoders(value, where);
  if (type == "BPEDecoder") return read_bpe(value, where);
  if (type == "Metaspace") return {read_metaspace(value, where)};
  if (type == "Replace") return {read_replace(value, where)};
  if (type == "WordPiece") {
    const Fields fields(value, where, {"type", "prefix", "cleanup"});
    return {WordPieceDecoder{fields.string("prefix"), fields.boolean("cleanup")}};
  }
  if (type == "ByteLevel") {
    read_byte_level(value, where);
    return {ByteLevelDecoder{}};
  }
  if (type == "Strip") {
    const Fields fields(value, where, {"type", "content", "start", "stop"});
    return {StripDecoder{fields.character("content"),
                         static_cast<std::size_t>(fields.number("start", 1 << 30)),
                         static_cast<std::size_t>(fields.number("stop", 1 << 30))}};
  }
  if (type == "ByteFallback" || type == "Fuse") {
    Fields(value, where, {"type"});
    return type == "Fuse" ? Decoder{Fuse{}} : Decoder{ByteFallback{}};
  }
  where.at("type").expected(
      "WordPiece, ByteLevel, Metaspace, BPEDecoder, ByteFallback, Replace, Fuse, Strip or Sequence",
      value["type"]);
}

std::string with_valid_utf8(std::string_view bytes) {
  std::string text;
  for (std::size_t at = 0; at < bytes.size();) {
    const Utf8Character character = utf8_character(bytes, at);
    text += character.valid ? bytes.substr(at, character.bytes) : kReplacement;
    at += character.bytes;
  }
  return text;
}

}  // namespace fovea::text::pipeline
