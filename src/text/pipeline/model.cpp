#include "text/pipeline/model.h"

#include "core/excerpt.h"

namespace fovea::text::pipeline {

Vocab::Vocab(files::JsonScanner scanner, const Where& where) {
  const std::string context = (where.key.empty() ? "" : where.key + ": ") + "the id of";
  std::vector<std::pair<std::string_view, std::uint64_t>> members;
  scanner.open_object("an object of tokens and ids");
  std::uint64_t last = 0;
  for (std::string_view token; scanner.next_member(token);) {
    scanner.set_context(context, token);
    const std::uint64_t id = scanner.number();
    if (token.size() > kMostTokenBytes)
      scanner.fail("expected a token of at most " + std::to_string(kMostTokenBytes) + " bytes, got " +
                   std::to_string(token.size()));
    // The shortest member has 6 bytes, so the bound on ids is one on memory too.
    if (id > std::uint64_t{1} << 30) scanner.fail("expected at most 2^30, got " + std::to_string(id));
    scanner.set_context("", "");
    last = std::max(last, id);
    members.emplace_back(token, id);
  }
  scanner.finish();
  if (members.empty()) where.fail("is empty");
  if (last >= 4 * (members.size() + 256))
    where.fail("the id " + std::to_string(last) + " is too large for " + std::to_string(members.size()) +
               " tokens: expected less than 4 times their number");
  tokens_.resize(last + 1);
  ids_.reserve(members.size());
  for (const auto& [token, id] : members) {
    if (tokens_[id].data() != nullptr)
      where.fail("the id " + std::to_string(id) + " is given to '" + excerpt(tokens_[id]) + "' and '" +
                 excerpt(token) + "'");
    if (!ids_.emplace(token, static_cast<std::int32_t>(id)).second)
      where.fail("'" + excerpt(token) + "' is there twice");
    tokens_[id] = token;
  }
}

std::optional<std::int32_t> Vocab::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

std::optional<std::string_view> Vocab::token(std::int32_t id) const {
  if (id < 0 || id >= end_id()) return std::nullopt;
  const std::string_view token = tokens_[static_cast<std::size_t>(id)];
  if (token.data() == nullptr) return std::nullopt;
  return token;
}

std::string Vocab::to_json() const {
  std::string text = "{";
  for (std::int32_t id = 0; id < end_id(); ++id) {
    const auto of_id = token(id);
    if (!of_id) continue;
    if (text.size() > 1) text += ',';
    text += nlohmann::json(*of_id).dump() + ':' + std::to_string(id);
  }
  return text + '}';
}

std::unique_ptr<const Model> read_model(const std::shared_ptr<Document>& document) {
  if (!document->find("model")) Where{document->file(), "model"}.fail("is missing");
  const Where where{document->file(), "model"};
  const nlohmann::json options = document->model_options();
  // Files of old versions do not name the type: their keys do.
  const std::string type = options.contains("type")                       ? type_of(options, where)
                           : document->find("model.merges")               ? "BPE"
                           : options.contains("max_input_chars_per_word") ? "WordPiece"
                           : options.contains("unk_id")                   ? "Unigram"
                                                                          : "WordLevel";
  if (type == "BPE") return read_bpe_model(document);
  if (type == "WordPiece") return read_wordpiece_model(document);
  if (type == "WordLevel") return read_word_level_model(document);
  if (type == "Unigram") return read_unigram_model(document);
  where.at("type").expected("BPE, WordPiece, WordLevel or Unigram", options["type"]);
}

}  // namespace fovea::text::pipeline
