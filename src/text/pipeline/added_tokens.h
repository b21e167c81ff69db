// The "added_tokens" of tokenizer.json: tokens that are found in a text before anything else is done to it.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "text/pipeline/byte_trie.h"
#include "text/pipeline/fields.h"
#include "text/pipeline/model.h"
#include "text/pipeline/normalizers.h"

namespace fovea::text::pipeline {

struct AddedToken {
  std::string content;
  bool single_word = false;             ///< only where no letter stands beside it
  bool lstrip = false, rstrip = false;  ///< takes the blanks before or behind it
  bool normalized = true;               ///< found in the normalised text, by its normalised spelling
  bool special = false;
  std::string spelling = {};  ///< what it is searched by: content, or that normalised
};

/// An element of "added_tokens" in tokenizer.json.
nlohmann::ordered_json to_json(std::int64_t id, const AddedToken& token);

/// A piece of a text, or an added token in it: then `id` is its id, and `text` is empty. The blanks that
/// tokens take can be those of many others, so a token has no copy of them.
struct Piece {
  Normalized text;
  std::optional<std::int32_t> id = {};
  Place place = {};                                    ///< of an added token
  std::uint32_t blanks_before = 0, blanks_behind = 0;  ///< the same as those of Item
};

class AddedTokens {
 public:
  AddedTokens() = default;
  /// Throws FileError, also for an id that the `tokenizers` library would not give the token: it counts on
  /// from the model's ids.
  AddedTokens(const nlohmann::json& value, const Where& where, const Model& model,
              const std::optional<Normalizer>& normalizer);

  /// Cuts the added tokens out of a text, and normalises what lies between them.
  std::vector<Piece> split(std::string_view text, const std::optional<Normalizer>& normalizer) const;

  const std::map<std::int32_t, AddedToken>& all() const noexcept { return by_id_; }
  std::optional<std::int32_t> id_of(std::string_view token) const;
  bool is_special(std::string_view spelling) const { return special_.contains(spelling); }
  std::string to_json() const;

 private:
  void add(AddedToken token, std::int32_t id);
  void append_pieces(const Normalized& text, const ByteTrie& trie, std::vector<Piece>& pieces) const;

  std::map<std::int32_t, AddedToken> by_id_;
  std::map<std::string, std::int32_t, std::less<>> ids_;
  std::set<std::string, std::less<>> special_;
  ByteTrie in_source_, in_normalized_;
};

}  // namespace fovea::text::pipeline
