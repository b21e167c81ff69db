// Tokenizers of other libraries: tokenizer.json, as Hugging Face's `tokenizers` writes it. A text goes
// through added tokens, normaliser, pre-tokeniser, model and template, and every id knows the bytes that it
// stands for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/text/encoding.h"

namespace fovea::text {

struct EncodeOptions {
  /// Whether the template adds its ids, such as [CLS] and [SEP].
  enum class SpecialTokens : std::uint8_t { add, leave_out };
  SpecialTokens special_tokens = SpecialTokens::add;
  /// Whether the file's fields "truncation" and "padding" are applied. Files often have those of the last
  /// call before they were written.
  enum class Limits : std::uint8_t { ignore, apply };
  Limits limits = Limits::ignore;
  /// Ids at most, special ones included; of two texts the longer one is cut. It replaces the file's own
  /// limit.
  std::optional<std::int64_t> max_length = {};
  /// The end at which max_length cuts; without it that of the file if its limits are applied, else the right.
  enum class CutSide : std::uint8_t { right, left };
  std::optional<CutSide> cut_side = {};
};

/// Immutable after construction; const calls may come from several threads at once.
class JsonTokenizer {
 public:
  /// Reads a tokenizer.json. Throws FileError, which names the key, for a file of another form and for parts
  /// that are not known: they might change the ids. A file costs memory of at most 100 times its size and
  /// 16 MB.
  static JsonTokenizer read(const std::filesystem::path& file);
  /// The same from its text; `name` is used in errors.
  static JsonTokenizer from_json(std::string text, const std::string& name);
  ~JsonTokenizer();
  JsonTokenizer(JsonTokenizer&&) noexcept;
  JsonTokenizer& operator=(JsonTokenizer&&) noexcept;

  /// Throws InvalidArgument for a text that is not UTF-8 or has 2^32 bytes or more, and for a max_length
  /// below the number of special ids. Throws FileError if the text needs an unknown token that the file
  /// lacks. The same is thrown if a pattern of the file takes too long, or if the normalizer makes the text
  /// many times longer.
  Encoding encode(std::string_view text, const EncodeOptions& options = {}) const;
  /// The same for a pair of texts, which the template joins.
  Encoding encode(std::string_view first, std::string_view second, const EncodeOptions& options = {}) const;

  enum class SpecialTokens : std::uint8_t { keep, skip };
  /// The text of ids. An id without a token is left out. Throws FileError if the decoder makes the text many
  /// times longer.
  std::string decode(std::span<const std::int32_t> ids,
                     SpecialTokens special_tokens = SpecialTokens::skip) const;

  /// The largest id and 1. Ids below may be missing.
  std::int64_t size() const;
  /// The id with this spelling; nothing if there is none.
  std::optional<std::int32_t> id_of(std::string_view token) const;
  /// The spelling of an id, such as "##ing", "Ġthe" or "▁the"; "" for an id without a token.
  std::string token(std::int32_t id) const;
  /// Whether an id belongs to an added token that is marked as special.
  bool is_special(std::int32_t id) const;
  /// For each id of `encoding`, which is of `text` alone, whether it begins a word. Where pieces inside a
  /// word have a prefix, such as "##", it shows them. Otherwise words are what blanks divide.
  std::vector<bool> word_begins(std::string_view text, const Encoding& encoding) const;
  /// Whether a BertNormalizer makes letters small; nothing without one.
  std::optional<bool> lower_cases() const;
  /// "BPE", "WordPiece", "Unigram" or "WordLevel".
  std::string_view model_type() const;
  /// A tokenizer.json of the same content. Merges are pairs, as newer versions of the library write them.
  std::string to_json() const;

 private:
  std::string continuing_prefix() const;

  struct Impl;
  explicit JsonTokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// The tokenizer of a model's folder.
struct FolderTokenizer {
  JsonTokenizer tokenizer;
  std::optional<std::int64_t> max_length;  ///< model_max_length of tokenizer_config.json, if it is a limit
  EncodeOptions::CutSide cut_side = EncodeOptions::CutSide::right;  ///< its truncation_side
  /// Its mask_token, or else "[MASK]" or "<mask>" if the tokenizer has that special token.
  std::optional<std::int32_t> mask_id;
  /// Whether transformers gives Encoding::types to the model: its model_input_names say so, or its class
  /// does.
  bool gives_types = true;
};

/// Whether the folder has a tokenizer of another library: a tokenizer.json, or a SentencePiece model named
/// spiece.model, sentencepiece.bpe.model or tokenizer.model.
bool has_folder_tokenizer(const std::filesystem::path& folder);
/// folder/tokenizer.json, and tokenizer_config.json if it is there. Without a tokenizer.json a SentencePiece
/// model is read as the class that the folder names reads it in transformers: T5, XLM-RoBERTa, CamemBERT,
/// mBART, mBART-50, Llama or Gemma. Throws FileError for what JsonTokenizer::read refuses, for a model of
/// another class, if do_lower_case of the config contradicts the tokenizer, and for a model_max_length or a
/// truncation_side that is none. Without both files the error says that token ids may be given instead.
FolderTokenizer read_folder_tokenizer(const std::filesystem::path& folder);

}  // namespace fovea::text
