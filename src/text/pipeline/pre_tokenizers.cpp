#include "text/pipeline/pre_tokenizers.h"

#include "text/pipeline/normalizers.h"
#include "text/utf8.h"

namespace fovea::text::pipeline {
namespace {

using nlohmann::json;

// Each piece becomes those that `make` returns for it.
template <class Make>
void split_each(std::vector<Normalized>& pieces, Make&& make) {
  std::vector<Normalized> result;
  for (Normalized& piece : pieces) {
    for (Normalized& part : make(piece)) {
      if (!part.text().empty()) result.push_back(std::move(part));
    }
  }
  pieces = std::move(result);
}

std::vector<Normalized> one(Normalized& piece) {
  std::vector<Normalized> pieces;
  pieces.push_back(std::move(piece));
  return pieces;
}

void invert(std::vector<Part>& parts) {
  for (Part& part : parts) part.match = !part.match;
}

// Splits each piece at the characters that `accept` accepts.
template <class Accept>
void split_at(std::vector<Normalized>& pieces, SplitBehavior behavior, Accept accept) {
  split_each(pieces,
             [&](Normalized& piece) { return piece.split(parts_of(piece.text(), accept), behavior); });
}

void apply(const BertPreTokenizer&, std::vector<Normalized>& pieces) {
  split_at(pieces, SplitBehavior::removed, is_white_space);
  split_at(pieces, SplitBehavior::isolated, is_punctuation);
}

void apply(const ByteLevel& options, std::vector<Normalized>& pieces) {
  static const Regex words(
      "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+");
  split_each(pieces, [&](Normalized& piece) {
    if (options.add_prefix_space && !piece.text().starts_with(' ')) piece.prepend(" ");
    return options.use_regex ? piece.split(words.parts(piece.text()), SplitBehavior::isolated) : one(piece);
  });
  for (Normalized& piece : pieces) spell_bytes(piece);
}

void apply(const Split& split, std::vector<Normalized>& pieces) {
  split_each(pieces, [&](Normalized& piece) {
    std::vector<Part> parts = split.pattern.parts(piece.text());
    if (split.invert) invert(parts);
    return piece.split(parts, split.behavior);
  });
}

void apply(const Metaspace& options, std::vector<Normalized>& pieces) {
  const char32_t replacement = decode_utf8(options.replacement, 0).value;
  split_each(pieces, [&](Normalized& piece) {
    piece.replace(parts_of(piece.text(), [](char32_t c) { return c == ' '; }), options.replacement);
    const bool prepends = options.prepend == Metaspace::Prepend::always ||
                          (options.prepend == Metaspace::Prepend::first && piece.begin() == 0);
    if (prepends && !piece.text().starts_with(options.replacement)) piece.prepend(options.replacement);
    if (!options.split) return one(piece);
    return piece.split(parts_of(piece.text(), [&](char32_t c) { return c == replacement; }),
                       SplitBehavior::merged_with_next);
  });
}

void apply(const WhitespaceWords&, std::vector<Normalized>& pieces) {
  static const Regex words = [] {
    const std::string word(kRustWord);
    return Regex("[" + word + "]+|[^" + word + "\\s]+");
  }();
  split_each(pieces, [](Normalized& piece) {
    std::vector<Part> parts = words.parts(piece.text());
    invert(parts);
    return piece.split(parts, SplitBehavior::removed);
  });
}

void apply(const WhitespaceSplit&, std::vector<Normalized>& pieces) {
  split_at(pieces, SplitBehavior::removed, is_white_space);
}

void apply(const Punctuation& options, std::vector<Normalized>& pieces) {
  split_at(pieces, options.behavior, is_punctuation);
}

void apply(const Digits& options, std::vector<Normalized>& pieces) {
  split_at(pieces, options.individual ? SplitBehavior::isolated : SplitBehavior::contiguous, is_numeric);
}

void apply(const CharDelimiterSplit& options, std::vector<Normalized>& pieces) {
  const char32_t delimiter = decode_utf8(options.delimiter, 0).value;
  split_at(pieces, SplitBehavior::removed, [delimiter](char32_t c) { return c == delimiter; });
}

void apply(const FixedLength& options, std::vector<Normalized>& pieces) {
  split_each(pieces, [&](Normalized& piece) {
    std::size_t count = 0;
    std::vector<Part> parts;
    for (const Part& letter : parts_of(piece.text(), [](char32_t) { return true; })) {
      if (count++ % options.length == 0)
        parts.push_back(letter);
      else
        parts.back().end = letter.end;
    }
    return piece.split(parts, SplitBehavior::isolated);
  });
}

void apply(const PreTokenizerSequence& sequence, std::vector<Normalized>& pieces) {
  for (const PreTokenizer& part : sequence.parts) part.apply(pieces);
}

SplitBehavior read_behavior(const Fields& fields) {
  return static_cast<SplitBehavior>(fields.one_of(
      "behavior", {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"}));
}

PreTokenizer read_pre_tokenizers(const json& value, const Where& where) {
  const Fields fields(value, where, {"type", "pretokenizers"});
  PreTokenizerSequence sequence;
  for (const json& part : fields.array("pretokenizers"))
    sequence.parts.push_back(
        read_pre_tokenizer(part, fields.where("pretokenizers").at(sequence.parts.size())));
  return {std::move(sequence)};
}

PreTokenizer read_split(const json& value, const Where& where) {
  const Fields fields(value, where, {"type", "pattern", "behavior", "invert"});
  return {Split{read_pattern(fields, "pattern"), read_behavior(fields), fields.boolean("invert")}};
}

PreTokenizer read_fixed_length(const json& value, const Where& where) {
  const Fields fields(value, where, {"type", "length"});
  const std::int64_t length = fields.number("length", 1 << 30);
  if (length == 0) fields.where("length").fail("expected at least 1, got 0");
  return {FixedLength{static_cast<std::size_t>(length)}};
}

}  // namespace

void PreTokenizer::apply(std::vector<Normalized>& pieces) const {
  std::visit([&](const auto& of_kind) { pipeline::apply(of_kind, pieces); }, kind);
}

ByteLevel read_byte_level(const json& value, const Where& where) {
  const Fields fields(value, where, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
  return {fields.boolean("add_prefix_space"), fields.boolean("trim_offsets"),
          fields.boolean("use_regex", true)};
}

Metaspace read_metaspace(const json& value, const Where& where) {
  // Files of old versions have str_rep, which is the replacement, and add_prefix_space.
  const Fields fields(value, where,
                      {"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  Metaspace metaspace{.replacement = fields.character("replacement"), .split = fields.boolean("split", true)};
  if (fields.has("prepend_scheme"))
    metaspace.prepend =
        static_cast<Metaspace::Prepend>(fields.one_of("prepend_scheme", {"first", "never", "always"}));
  if (!fields.boolean("add_prefix_space", true)) {
    if (metaspace.prepend != Metaspace::Prepend::never)
      fields.where("add_prefix_space").fail("is false, and prepend_scheme is not never");
  }
  return metaspace;
}

PreTokenizer read_pre_tokenizer(const json& value, const Where& where) {
  const std::string type = type_of(value, where);
  if (type == "ByteLevel") return {read_byte_level(value, where)};
  if (type == "Metaspace") return {read_metaspace(value, where)};
  if (type == "Sequence") return read_pre_tokenizers(value, where);
  if (type == "Split") return read_split(value, where);
  if (type == "FixedLength") return read_fixed_length(value, where);
  if (type == "Punctuation") {
    const Fields fields(value, where, {"type", "behavior"});
    return {Punctuation{fields.has("behavior") ? read_behavior(fields) : SplitBehavior::isolated}};
  }
  if (type == "Digits")
    return {Digits{Fields(value, where, {"type", "individual_digits"}).boolean("individual_digits")}};
  if (type == "CharDelimiterSplit")
    return {CharDelimiterSplit{Fields(value, where, {"type", "delimiter"}).character("delimiter")}};
  const std::pair<std::string_view, PreTokenizer> plain[] = {{"BertPreTokenizer", {BertPreTokenizer{}}},
                                                             {"Whitespace", {WhitespaceWords{}}},
                                                             {"WhitespaceSplit", {WhitespaceSplit{}}}};
  for (const auto& [name, pre_tokenizer] : plain) {
    if (type != name) continue;
    Fields(value, where, {"type"});
    return pre_tokenizer;
  }
  where.at("type").expected(
      "BertPreTokenizer, ByteLevel, Split, Metaspace, Whitespace, WhitespaceSplit, Punctuation, Digits, "
      "CharDelimiterSplit, FixedLength or Sequence",
      value["type"]);
}

}  // namespace fovea::text::pipeline
