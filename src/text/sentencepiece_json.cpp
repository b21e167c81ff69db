#include "text/sentencepiece_json.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/excerpt.h"
#include "files/base64.h"
#include "fovea/core/error.h"
#include "fovea/files/bytes.h"
#include "text/sentencepiece_proto.h"
#include "text/sentencepiece_settings.h"
#include "text/utf8.h"

namespace fovea::text {
namespace {

using nlohmann::json;
using Class = SentencePieceClass;
using Type = SentencePieceFile::Type;
using Kind = SentencePieceFile::Piece::Kind;

constexpr std::int64_t kMostExtraIds = 100'000;
// Merges may take as many bytes for each of the file's. Gemma's take 4.
constexpr std::size_t kMostMergeBytes = 100;
constexpr const char* kBlank = "\xE2\x96\x81";
// camembert's own pieces <s> and </s> follow, and these must never be chosen.
constexpr const char kNotUsed[] = "NOTUSED";
constexpr float kNeverChosen = -100;

class Converter {
 public:
  Converter(const std::filesystem::path& path, const json& config);
  std::string text() const;

 private:
  [[noreturn]] void fail(const std::string& reason) const { throw FileError(name_, -1, reason); }

  void list_pieces();
  void add_piece(std::string_view text, float score);
  void list_added_tokens();
  void add_token(const AddedToken& token);

  std::string content(std::string_view key) const;
  std::int64_t id_of(const std::string& token) const;
  bool is_piece(const std::string& text) const {
    const auto found = ids_.find(text);
    return found != ids_.end() && found->second < static_cast<std::int64_t>(pieces_.size());
  }
  std::string language() const;
  bool puts_blank_before() const;

  json normalizer() const;
  json pre_tokenizer() const;
  json post_processor() const;
  json decoder() const;
  std::string unigram() const;
  std::string bpe() const;

  std::string name_, bytes_;
  SentencePieceSettings settings_;
  const Class& class_;
  SentencePieceFile file_;
  std::vector<std::pair<std::string, float>> pieces_;  // by id
  std::unordered_map<std::string, std::int64_t> ids_;  // of pieces and added tokens
  std::unordered_set<std::string> listed_;
  std::int64_t next_id_ = 0;
  nlohmann::ordered_json added_ = nlohmann::ordered_json::array();
};

Converter::Converter(const std::filesystem::path& path, const json& config)
    : name_(path.string()),
      bytes_(files::read_file(path, kMaxModelBytes)),
      settings_(path.parent_path(), config),
      class_(settings_.class_of(path)) {
  check_sentencepiece_model(bytes_, name_);
  file_ = read_sentencepiece_file(bytes_, name_);
  if (file_.type != class_.type)
    fail("has pieces of another type than " + std::string(class_.name) + " knows: expected " +
         (class_.type == Type::bpe ? "byte-pair encoding" : "Unigram"));
  list_pieces();
  list_added_tokens();
}

std::string Converter::content(std::string_view key) const {
  const auto found = std::ranges::find(class_.tokens, key, &NamedToken::key);
  return found == class_.tokens.end() ? "" : settings_.named(*found).content;
}

void Converter::add_piece(std::string_view text, float score) {
  ids_.insert_or_assign(std::string(text), static_cast<std::int64_t>(pieces_.size()));
  pieces_.emplace_back(text, score);
}

void Converter::list_pieces() {
  std::size_t left_out = 0;
  const std::string pad = content("pad_token"), unknown = content("unk_token");
  if (class_.front == Class::Front::fairseq) {
    left_out = 3;
    for (const std::string& token : {content("bos_token"), pad, content("eos_token"), unknown})
      add_piece(token, 0);
  } else if (class_.front == Class::Front::camembert) {
    left_out = 1;
    for (const std::string& token :
         {std::string("<s>") + kNotUsed, pad, std::string("</s>") + kNotUsed, unknown})
      add_piece(token, 0);
    add_piece(std::string("<unk>") + kNotUsed, kNeverChosen);
  }
  if (file_.pieces.size() < left_out) fail("has less than " + std::to_string(left_out) + " pieces");
  for (std::size_t i = left_out; i < file_.pieces.size(); ++i)
    add_piece(file_.pieces[i].text, file_.pieces[i].score);
  if (class_.extra_ids) {
    for (std::int64_t i = settings_.number("extra_ids", kMostExtraIds, 100); i > 0; --i)
      add_piece("<extra_id_" + std::to_string(i - 1) + ">", 0);
  }
  for (const char* language : class_.languages) add_piece(language, 0);
  if (class_.front != Class::Front::none) add_piece(content("mask_token"), 0);
}

// A token that is there keeps its settings, and one that the pieces lack gets the next id.
void Converter::add_token(const AddedToken& token) {
  if (!listed_.insert(token.content).second) return;
  const auto [found, is_new] = ids_.try_emplace(token.content, next_id_);
  if (is_new) ++next_id_;
  added_.push_back(pipeline::to_json(found->second, token));
}

void Converter::list_added_tokens() {
  next_id_ = static_cast<std::int64_t>(pieces_.size());
  for (const AddedToken& token : settings_.added()) add_token(token);
  for (const NamedToken& named : class_.tokens) {
    const AddedToken token = settings_.named(named);
    if (token.content.empty()) continue;
    if (settings_.names(named.key) || ids_.contains(token.content)) add_token(token);
  }
  const auto special = [](std::string text) {
    return AddedToken{.content = std::move(text), .normalized = false, .special = true};
  };
  for (const auto& [text, score] : pieces_) {
    if (class_.extra_ids && text.starts_with("<extra_id_")) add_token(special(text));
  }
  for (const char* language : class_.languages) add_token(special(language));
  for (const SentencePieceFile::Piece& piece : file_.pieces) {
    const bool control = piece.kind == Kind::control;
    if (!control && piece.kind != Kind::user_defined) continue;
    if (!ids_.contains(std::string(piece.text))) continue;
    add_token({.content = std::string(piece.text), .normalized = false, .special = control});
  }
  for (const AddedToken& token : settings_.extra()) add_token(token);
  std::sort(added_.begin(), added_.end(), [](const auto& a, const auto& b) { return a["id"] < b["id"]; });
}

std::int64_t Converter::id_of(const std::string& token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end())
    fail("has no '" + excerpt(token) + "', which " + std::string(class_.name) + " needs");
  return found->second;
}

bool Converter::puts_blank_before() const {
  const bool puts = settings_.flag("add_prefix_space", true);
  const bool asks = class_.blanks == Class::Blanks::text || class_.around == Class::Template::roberta;
  if (!puts && !asks)
    settings_.refuse("add_prefix_space", "true, as " + std::string(class_.name) + " does", puts);
  return puts;
}

json metaspace(const char* scheme, bool split) {
  return {{"type", "Metaspace"}, {"replacement", kBlank}, {"prepend_scheme", scheme}, {"split", split}};
}

json replace(const char* from, const char* to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

json Converter::normalizer() const {
  json parts = json::array();
  if (!file_.charsmap.empty())
    parts.push_back({{"type", "Precompiled"}, {"precompiled_charsmap", files::to_base64(file_.charsmap)}});
  if (class_.blanks == Class::Blanks::as_they_are) parts.push_back(replace(" ", kBlank));
  if (parts.empty()) return {};
  return {{"type", "Sequence"}, {"normalizers", parts}};
}

json Converter::pre_tokenizer() const {
  if (class_.blanks == Class::Blanks::as_they_are) return {};
  const bool words = class_.blanks == Class::Blanks::words;
  const char* scheme = !puts_blank_before()                       ? "never"
                       : words || settings_.flag("legacy", false) ? "always"
                                                                  : "first";
  if (!words) return metaspace(scheme, false);
  return {{"type", "Sequence"}, {"pretokenizers", {{{"type", "WhitespaceSplit"}}, metaspace(scheme, true)}}};
}

json Converter::decoder() const {
  json parts = json::array();
  if (class_.blanks == Class::Blanks::words) {
    if (file_.byte_fallback) parts.push_back({{"type", "ByteFallback"}});
    parts.push_back(metaspace(puts_blank_before() ? "always" : "never", true));
  } else {
    parts = {replace(kBlank, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
    if (class_.blanks == Class::Blanks::text && puts_blank_before())
      parts.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  return {{"type", "Sequence"}, {"decoders", parts}};
}

// A token of the template, or a text.
struct Slot {
  std::string token;
  const char* text = nullptr;
  int type = 0;
};

json Converter::post_processor() const {
  const std::string begin = content("bos_token"), end = content("eos_token");
  const Slot a{.token = {}, .text = "A"}, b{.token = {}, .text = "B"};
  std::vector<Slot> single, pair;
  switch (class_.around) {
    case Class::Template::end:
      single = {a, {end}};
      pair = {a, {end}, b, {end}};
      break;
    case Class::Template::roberta:
      single = {{begin}, a, {end}};
      pair = {{begin}, a, {end}, {end}, b, {end}};
      break;
    case Class::Template::language_behind:
      single = {a, {end}, {language()}};
      pair = {a, b, {end}, {language()}};
      break;
    case Class::Template::language_before:
      single = {{language()}, a, {end}};
      pair = {{language()}, a, b, {end}};
      break;
    case Class::Template::as_said:
      // Published configs say both. Without them the classes of transformers 4 begin a text with <s>.
      if (settings_.flag("add_bos_token", true)) single.push_back({begin});
      single.push_back(a);
      if (settings_.flag("add_eos_token", false)) single.push_back({end});
      pair = single;
      for (Slot slot : single) {
        if (slot.text != nullptr) slot = b;
        slot.type = 1;
        pair.push_back(std::move(slot));
      }
      break;
  }
  json tokens = json::object();
  const auto listed = [&](const std::vector<Slot>& slots) {
    json list = json::array();
    for (const Slot& slot : slots) {
      const std::string name = slot.text != nullptr ? slot.text : slot.token;
      list.push_back(
          {{slot.text != nullptr ? "Sequence" : "SpecialToken", {{"id", name}, {"type_id", slot.type}}}});
      if (slot.text == nullptr) tokens[name] = {{"id", name}, {"ids", {id_of(name)}}, {"tokens", {name}}};
    }
    return list;
  };
  json result = {{"type", "TemplateProcessing"}, {"single", listed(single)}, {"pair", listed(pair)}};
  result["special_tokens"] = std::move(tokens);
  return result;
}

std::string Converter::language() const {
  const std::string code = settings_.text("src_lang");
  if (code.empty()) return "en_XX";
  if (std::ranges::find(class_.languages, code) == class_.languages.end())
    settings_.refuse("src_lang", "a language of " + std::string(class_.name) + ", such as en_XX", code);
  return code;
}

std::string Converter::unigram() const {
  std::string text = "{\"type\":\"Unigram\",\"unk_id\":" + std::to_string(id_of(content("unk_token"))) +
                     ",\"byte_fallback\":" + (file_.byte_fallback ? "true" : "false") + ",\"vocab\":[";
  for (const auto& [piece, score] : pieces_) {
    if (text.back() != '[') text += ',';
    text += json{piece, double{score}}.dump();
  }
  return text + "]}";
}

// Pieces stand in the order of their merges, but the file does not say which pair each was made of: it is any
// two pieces, and of several pairs that with the shorter first one comes first.
std::string Converter::bpe() const {
  const json unknown = content("unk_token");
  std::string vocab, merges;
  for (std::size_t id = 0; id < pieces_.size(); ++id) {
    const std::string& piece = pieces_[id].first;
    vocab += (id == 0 ? "" : ",") + json(piece).dump() + ':' + std::to_string(id);
    for (std::size_t at = 1; at < piece.size(); ++at) {
      if ((static_cast<unsigned char>(piece[at]) & 0xC0u) == 0x80u) continue;
      const std::string first = piece.substr(0, at), second = piece.substr(at);
      if (!is_piece(first) || !is_piece(second)) continue;
      merges += (merges.empty() ? "" : ",") + json{first, second}.dump();
      if (merges.size() > kMostMergeBytes * (bytes_.size() + 1024))
        fail("has pieces that are made of each other in too many ways");
    }
  }
  return "{\"type\":\"BPE\",\"unk_token\":" + unknown.dump() +
         ",\"fuse_unk\":true,\"byte_fallback\":" + (file_.byte_fallback ? "true" : "false") + ",\"vocab\":{" +
         vocab + "},\"merges\":[" + merges + "]}";
}

std::string Converter::text() const {
  return "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":" + added_.dump() +
         ",\"normalizer\":" + normalizer().dump() + ",\"pre_tokenizer\":" + pre_tokenizer().dump() +
         ",\"post_processor\":" + post_processor().dump() + ",\"decoder\":" + decoder().dump() +
         ",\"model\":" + (class_.type == Type::bpe ? bpe() : unigram()) + "}";
}

}  // namespace

std::optional<std::filesystem::path> sentencepiece_file_in(const std::filesystem::path& folder) {
  std::error_code error;
  for (const char* name : sentencepiece_files()) {
    if (std::filesystem::exists(folder / name, error)) return folder / name;
  }
  return std::nullopt;
}

std::string sentencepiece_json(const std::filesystem::path& model, const json& config) {
  return Converter(model, config).text();
}

}  // namespace fovea::text
