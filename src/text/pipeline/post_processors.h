// The "post_processor" of tokenizer.json: what puts special tokens around texts and trims offsets.
#pragma once

#include <string_view>
#include <variant>
#include <vector>

#include "text/pipeline/fields.h"
#include "text/pipeline/normalized.h"
#include "text/pipeline/pre_tokenizers.h"

namespace fovea::text::pipeline {

/// An id of an encoding, and what Encoding has for it.
struct Item {
  std::int32_t id = 0;
  Place place = {};
  std::int32_t type = 0, text = -1, word = -1;
  bool special = false;
  std::uint32_t blanks_before = 0, blanks_behind = 0;  ///< with which the token's spelling begins and ends
};
using Items = std::vector<Item>;

/// The number of blanks with which a token begins or ends. Byte-level tokens spell them as U+0120.
std::uint32_t blanks_before(std::string_view token);
std::uint32_t blanks_behind(std::string_view token);

struct TemplateProcessing {
  struct Slot {
    int text = -1;                       ///< 0, 1: a text; -1: the ids
    std::vector<std::int32_t> ids = {};  ///< special ones
    std::int32_t type = 0;
  };
  std::vector<Slot> single, pair;
};
/// [CLS] A [SEP] B [SEP], or of RoBERTa <s> A </s></s> B </s>.
struct ClsSepProcessing {
  std::int32_t cls = 0, sep = 0;
  bool roberta = false;
  bool trim_offsets = false, add_prefix_space = false;
};
struct PostProcessor;
struct PostProcessorSequence {
  std::vector<PostProcessor> parts;
};

struct PostProcessor {
  std::variant<TemplateProcessing, ClsSepProcessing, ByteLevel, PostProcessorSequence> kind;

  /// How many ids it adds to one text, or to two.
  std::size_t added(std::size_t texts) const;
  /// `parts` are the encodings of the texts; afterwards the parts of the whole, in order. `add_special` says
  /// whether special ids are added.
  void apply(std::vector<Items>& parts, std::span<const std::string_view> texts, bool add_special) const;
};

/// Throws FileError.
PostProcessor read_post_processor(const nlohmann::json& value, const Where& where);

}  // namespace fovea::text::pipeline
