// Small tokenizers of each type, as JSON, and the parts that tests change.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace fovea::text {

inline nlohmann::json added_token(int id, const std::string& content, const nlohmann::json& changes = {}) {
  nlohmann::json token = {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                          {"rstrip", false}, {"normalized", false}, {"special", false}};
  if (!changes.is_null()) token.update(changes);
  return token;
}

inline nlohmann::json tokenizer_json(const nlohmann::json& model) {
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", nlohmann::json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", nullptr},
          {"post_processor", nullptr},
          {"decoder", nullptr},
          {"model", model}};
}

inline nlohmann::json special_token(int id, const std::string& token) {
  return {{"id", token}, {"ids", {id}}, {"tokens", {token}}};
}

inline nlohmann::json slot(const char* kind, const std::string& id, int type) {
  return {{kind, {{"id", id}, {"type_id", type}}}};
}

inline nlohmann::json wordpiece_json() {
  nlohmann::json json = tokenizer_json({{"type", "WordPiece"},
                                        {"unk_token", "[UNK]"},
                                        {"continuing_subword_prefix", "##"},
                                        {"max_input_chars_per_word", 100},
                                        {"vocab",
                                         {{"[UNK]", 0},
                                          {"[CLS]", 1},
                                          {"[SEP]", 2},
                                          {"[PAD]", 3},
                                          {"un", 4},
                                          {"##aff", 5},
                                          {"##able", 6},
                                          {",", 7},
                                          {"able", 8}}}});
  json["normalizer"] = {{"type", "BertNormalizer"},
                        {"clean_text", true},
                        {"handle_chinese_chars", true},
                        {"strip_accents", nullptr},
                        {"lowercase", true}};
  json["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
  json["decoder"] = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
  json["added_tokens"] = {added_token(1, "[CLS]", {{"special", true}}),
                          added_token(2, "[SEP]", {{"special", true}}),
                          added_token(9, "<mask>", {{"special", true}, {"lstrip", true}}),
                          added_token(10, "able-un", {{"single_word", true}}),
                          added_token(11, "<mask>>"),
                          added_token(12,
                                      "\xC3\x80"
                                      "XLE",
                                      {{"normalized", true}})};
  const nlohmann::json first[] = {slot("SpecialToken", "[CLS]", 0), slot("Sequence", "A", 0),
                                  slot("SpecialToken", "[SEP]", 0)};
  json["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", first},
      {"pair", {first[0], first[1], first[2], slot("Sequence", "B", 1), slot("SpecialToken", "[SEP]", 1)}},
      {"special_tokens", {{"[CLS]", special_token(1, "[CLS]")}, {"[SEP]", special_token(2, "[SEP]")}}}};
  return json;
}

/// GPT-2's: ids 0..255 are the bytes in the order of their characters, 256 is "ab", 257 "Ġab".
inline nlohmann::json byte_bpe_json() {
  nlohmann::json vocab = nlohmann::json::object();
  int id = 0;
  const auto add = [&](std::uint32_t c) {
    std::string text;
    if (c < 0x80) {
      text.push_back(static_cast<char>(c));
    } else {
      text.push_back(static_cast<char>(0xC0 | c >> 6));
      text.push_back(static_cast<char>(0x80 | (c & 0x3F)));
    }
    vocab[text] = id++;
  };
  for (std::uint32_t c = 0x21; c < 0x144; ++c) {
    if (c < 0x7F || (c >= 0xA1 && c != 0xAD)) add(c);
  }
  vocab["ab"] = id++;
  vocab
      ["\xC4\xA0"
       "ab"] = id++;
  nlohmann::json json =
      tokenizer_json({{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", nullptr},
                      {"continuing_subword_prefix", nullptr},
                      {"end_of_word_suffix", nullptr},
                      {"fuse_unk", false},
                      {"byte_fallback", false},
                      {"ignore_merges", false},
                      {"vocab", vocab},
                      {"merges", nlohmann::json::array({nlohmann::json::array({"a", "b"}),
                                                        nlohmann::json::array({"\xC4\xA0", "ab"})})}});
  const nlohmann::json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  for (const char* part : {"pre_tokenizer", "post_processor", "decoder"}) json[part] = byte_level;
  return json;
}

/// Llama 2's, with the bytes of é alone.
inline nlohmann::json char_bpe_json() {
  nlohmann::json json =
      tokenizer_json({{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", "<unk>"},
                      {"continuing_subword_prefix", nullptr},
                      {"end_of_word_suffix", nullptr},
                      {"fuse_unk", true},
                      {"byte_fallback", true},
                      {"ignore_merges", false},
                      {"vocab",
                       {{"<unk>", 0},
                        {"\xE2\x96\x81", 1},
                        {"a", 2},
                        {"<0xC3>", 3},
                        {"<0xA9>", 4},
                        {"\xE2\x96\x81"
                         "a",
                         5}}},
                      {"merges", nlohmann::json::array({nlohmann::json::array({"\xE2\x96\x81", "a"})})}});
  const auto replace = [](const char* from, const char* to) {
    return nlohmann::json{{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
  };
  json["normalizer"] = {
      {"type", "Sequence"},
      {"normalizers", {{{"type", "Prepend"}, {"prepend", "\xE2\x96\x81"}}, replace(" ", "\xE2\x96\x81")}}};
  json["decoder"] = {{"type", "Sequence"},
                     {"decoders",
                      {replace("\xE2\x96\x81", " "),
                       {{"type", "ByteFallback"}},
                       {{"type", "Fuse"}},
                       {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
  return json;
}

inline nlohmann::json unigram_json() {
  const std::string blank = "\xE2\x96\x81";
  const auto piece = [](const std::string& token, double score) {
    return nlohmann::json::array({token, score});
  };
  nlohmann::json json = tokenizer_json(
      {{"type", "Unigram"},
       {"unk_id", 0},
       {"vocab", nlohmann::json::array({piece("<unk>", 0.0), piece("</s>", 0.0), piece(blank + "ab", -1.0),
                                        piece(blank + "a", -1.25), piece("bc", -1.25), piece("c", -2.0),
                                        piece(blank, -3.0)})},
       {"byte_fallback", false}});
  const nlohmann::json metaspace = {
      {"type", "Metaspace"}, {"replacement", blank}, {"prepend_scheme", "always"}, {"split", true}};
  json["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers", {{{"type", "WhitespaceSplit"}}, metaspace}}};
  json["decoder"] = metaspace;
  json["added_tokens"] = nlohmann::json::array({added_token(1, "</s>", {{"special", true}})});
  json["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single", {slot("Sequence", "A", 0), slot("SpecialToken", "</s>", 0)}},
                            {"pair",
                             {slot("Sequence", "A", 0), slot("SpecialToken", "</s>", 0),
                              slot("Sequence", "B", 0), slot("SpecialToken", "</s>", 0)}},
                            {"special_tokens", {{"</s>", special_token(1, "</s>")}}}};
  return json;
}

inline std::string base64(const std::string& bytes) {
  constexpr const char* letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k)
      bits = bits << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (std::size_t k = 0; k < 4; ++k)
      text.push_back(i + k > bytes.size() ? '=' : letters[bits >> (18 - 6 * k) & 63]);
  }
  return text;
}

/// A charsmap of one rule, as base64; `value` is the offset of its replacement, which is 0.
inline std::string charsmap_base64(char from, const std::string& to, std::uint32_t value = 0,
                                   std::uint32_t first = 256u << 10) {
  // Nodes: the children of the root are at 256 + byte; the leaf of the one letter is at 512.
  std::vector<std::uint32_t> units(768, 0x80000000u);
  units[0] = first;
  const auto letter = static_cast<std::uint32_t>(static_cast<unsigned char>(from));
  units[256 + letter] = ((256 + letter) ^ 512u) << 10 | 1u << 8 | letter;
  units[512] = 0x80000000u | value;
  std::string blob;
  const auto put = [&](std::uint32_t unit) {
    for (int i = 0; i < 4; ++i) blob.push_back(static_cast<char>(unit >> 8 * i));
  };
  put(static_cast<std::uint32_t>(units.size() * 4));
  for (const std::uint32_t unit : units) put(unit);
  return base64(blob + to + '\0');
}

}  // namespace fovea::text
