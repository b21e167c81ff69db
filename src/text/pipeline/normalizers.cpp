#include "text/pipeline/normalizers.h"

#include <algorithm>
#include <array>

#include "files/base64.h"
#include "fovea/core/error.h"
#include "text/utf8.h"

namespace fovea::text::pipeline {
namespace {

using nlohmann::json;

// Each character becomes those that `make` appends for it.
template <class Make>
void change_each(Normalized& text, Make&& make) {
  std::vector<Change> changes;
  changes.reserve(text.text().size());
  for (std::size_t at = 0; at < text.text().size();) {
    const CodePoint point = decode_utf8(text.text(), at);
    at += static_cast<std::size_t>(point.bytes);
    make(changes, point.value);
  }
  text.transform(changes);
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

void apply_form(Normalized& text, NormalForm form) {
  if (!is_ascii(text.text())) text.transform(normal_form(text.text(), form));
}

void apply(const BertNormalizer& options, Normalized& text) {
  if (options.clean_text) {
    text.filter(
        [](char32_t c) { return c == '\t' || c == '\n' || c == '\r' || !(c == 0xFFFD || is_control(c)); });
    change_each(text, [](std::vector<Change>& changes, char32_t c) {
      changes.push_back({is_white_space(c) ? U' ' : c, 0});
    });
  }
  if (options.handle_chinese_chars) {
    change_each(text, [](std::vector<Change>& changes, char32_t c) {
      if (is_cjk_ideograph(c))
        changes.insert(changes.end(), {{U' ', 0}, {c, 1}, {U' ', 1}});
      else
        changes.push_back({c, 0});
    });
  }
  if (options.strip_accents) {
    apply_form(text, NormalForm::nfd);
    text.filter([](char32_t c) { return !is_nonspacing_mark(c); });
  }
  if (options.lowercase) change_each(text, append_lower_case);
}

void apply(NormalForm form, Normalized& text) {
  apply_form(text, form);
}

void apply(const Lowercase&, Normalized& text) {
  change_each(text, append_lower_case);
}

void apply(const StripNormalizer& options, Normalized& text) {
  const std::string& old = text.text();
  std::size_t begin = 0, end = 0, dropped = 0;  // end of the last character that is no blank
  bool any = false;
  for (std::size_t at = 0; at < old.size();) {
    const CodePoint point = decode_utf8(old, at);
    const std::size_t next = at + static_cast<std::size_t>(point.bytes);
    if (!is_white_space(point.value)) {
      end = next;
      any = true;
    } else if (!any && options.left) {
      begin = next;
      ++dropped;
    }
    at = next;
  }
  if (!options.right) end = old.size();
  std::vector<Change> changes;
  for (std::size_t at = begin; at < end;) {
    const CodePoint point = decode_utf8(old, at);
    changes.push_back({point.value, 0});
    at += static_cast<std::size_t>(point.bytes);
  }
  text.transform(changes, dropped);
}

void apply(const StripAccents&, Normalized& text) {
  text.filter([](char32_t c) { return !is_mark(c); });
}

// SentencePiece's rules of the same name, as far as they are no charsmap.
void apply(const Nmt&, Normalized& text) {
  text.filter([](char32_t c) {
    return !((c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F ||
             c == 0x9F);
  });
  change_each(text, [](std::vector<Change>& changes, char32_t c) {
    const bool blank = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
                       (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                       c == 0xFEFF || c == 0xFFFD;
    changes.push_back({blank ? U' ' : c, 0});
  });
}

void apply(const Replace& replace, Normalized& text) {
  text.replace(replace.pattern.parts(text.text()), replace.content);
}

void apply(const Prepend& prepend, Normalized& text) {
  text.prepend(prepend.text);
}

void apply(const Charsmap& charsmap, Normalized& text) {
  text.transform(charsmap.apply(text.text(), text.most()));
}

void apply(const ByteLevelNormalizer&, Normalized& text) {
  spell_bytes(text);
}

void apply(const NormalizerSequence& sequence, Normalized& text) {
  for (const Normalizer& part : sequence.parts) part.apply(text);
}

Normalizer read_bert(const json& value, const Where& where) {
  const Fields fields(value, where,
                      {"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
  BertNormalizer bert{.clean_text = fields.boolean("clean_text"),
                      .handle_chinese_chars = fields.boolean("handle_chinese_chars"),
                      .lowercase = fields.boolean("lowercase")};
  bert.strip_accents = fields.boolean("strip_accents", bert.lowercase);
  return {bert};
}

Normalizer read_charsmap(const json& value, const Where& where) {
  const Fields fields(value, where, {"type", "precompiled_charsmap"});
  const Where map = fields.where("precompiled_charsmap");
  const std::string charsmap = fields.string("precompiled_charsmap");
  try {
    return {Charsmap(files::from_base64(charsmap), map.file)};
  } catch (const InvalidArgument& error) {
    map.fail("expected " + error.expected() + ", got '" + error.got() + "'");
  } catch (const FileError& error) {
    map.fail(error.reason());
  }
}

Normalizer read_normalizers(const json& value, const Where& where) {
  const Fields fields(value, where, {"type", "normalizers"});
  NormalizerSequence sequence;
  for (const json& part : fields.array("normalizers"))
    sequence.parts.push_back(read_normalizer(part, fields.where("normalizers").at(sequence.parts.size())));
  return {std::move(sequence)};
}

}  // namespace

void Normalizer::apply(Normalized& text) const {
  std::visit([&](const auto& of_kind) { pipeline::apply(of_kind, text); }, kind);
}

Normalizer read_normalizer(const json& value, const Where& where) {
  const std::string type = type_of(value, where);
  if (type == "BertNormalizer") return read_bert(value, where);
  if (type == "Precompiled") return read_charsmap(value, where);
  if (type == "Sequence") return read_normalizers(value, where);
  if (type == "Replace") return {read_replace(value, where)};
  if (type == "Strip") {
    const Fields fields(value, where, {"type", "strip_left", "strip_right"});
    return {StripNormalizer{fields.boolean("strip_left"), fields.boolean("strip_right")}};
  }
  if (type == "Prepend") return {Prepend{Fields(value, where, {"type", "prepend"}).string("prepend")}};
  const std::pair<std::string_view, Normalizer> plain[] = {{"NFC", {NormalForm::nfc}},
                                                           {"NFD", {NormalForm::nfd}},
                                                           {"NFKC", {NormalForm::nfkc}},
                                                           {"NFKD", {NormalForm::nfkd}},
                                                           {"Lowercase", {Lowercase{}}},
                                                           {"StripAccents", {StripAccents{}}},
                                                           {"Nmt", {Nmt{}}},
                                                           {"ByteLevel", {ByteLevelNormalizer{}}}};
  for (const auto& [name, normalizer] : plain) {
    if (type != name) continue;
    Fields(value, where, {"type"});
    return normalizer;
  }
  where.at("type").expected(
      "BertNormalizer, NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Nmt, Replace, Prepend, "
      "Precompiled, ByteLevel or Sequence",
      value["type"]);
}

Regex read_pattern(const Fields& fields, std::string_view key) {
  const Fields pattern(fields.at(key), fields.where(key), {"String", "Regex"});
  const bool literal = pattern.has("String");
  if (literal == pattern.has("Regex")) pattern.where().fail("expected String or Regex");
  const std::string text = pattern.string(literal ? "String" : "Regex");
  if (text.empty()) pattern.where().fail("is empty");
  try {
    return literal ? Regex::literal(text) : Regex(text);
  } catch (const InvalidArgument& error) {
    pattern.where().fail("expected " + error.expected() + ", got " + error.got());
  }
}

Replace read_replace(const json& value, const Where& where) {
  const Fields fields(value, where, {"type", "pattern", "content"});
  return {read_pattern(fields, "pattern"), fields.string("content")};
}

// GPT-2's table: printable bytes of Latin-1 are themselves, the others are the characters from U+0100 on.
const std::string& spelling_of(unsigned char byte) {
  static const std::array<std::string, 256> all = [] {
    std::array<std::string, 256> table;
    char32_t next = 0x100;
    for (std::size_t i = 0; i < table.size(); ++i) {
      const auto c = static_cast<char32_t>(i);
      const bool printable = (c >= 0x21 && c <= 0x7E) || (c >= 0xA1 && c != 0xAD);
      append_utf8(table[i], printable ? c : next++);
    }
    return table;
  }();
  return all[byte];
}

std::optional<unsigned char> byte_of(char32_t character) {
  static const std::array<int, 0x144> all = [] {
    std::array<int, 0x144> table{};
    table.fill(-1);
    for (int byte = 0; byte < 256; ++byte)
      table[decode_utf8(spelling_of(static_cast<unsigned char>(byte)), 0).value] = byte;
    return table;
  }();
  if (character >= all.size() || all[character] < 0) return std::nullopt;
  return static_cast<unsigned char>(all[character]);
}

void spell_bytes(Normalized& text) {
  std::vector<Change> changes;
  changes.reserve(text.text().size());
  for (const char letter : text.text()) {
    const auto byte = static_cast<unsigned char>(letter);
    changes.push_back({decode_utf8(spelling_of(byte), 0).value, (byte & 0xC0u) == 0x80u ? 1 : 0});
  }
  text.transform(changes);
}

}  // namespace fovea::text::pipeline
