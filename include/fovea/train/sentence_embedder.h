// Texts to vectors by a folder of sentence-transformers: its tokenizer, its prompts and its model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fovea/models/sentence_encoder.h"
#include "fovea/text/tokenizer_json.h"

namespace fovea::train {

class SentenceEmbedder {
 public:
  /// Throws FileError for a folder without modules.json, and for what read_sentence_folder and
  /// SentenceEncoder refuse. The tokenizer is read when the first text needs it.
  SentenceEmbedder(const std::filesystem::path& folder, autograd::WeightType weights);

  const models::SentenceFolder& folder() const noexcept { return folder_; }
  const models::SentenceEncoder& encoder() const noexcept { return encoder_; }

  /// The ids of `prompt` and the text behind it, cut where the folder says. Throws what
  /// text::read_folder_tokenizer and JsonTokenizer::encode throw, and InvalidArgument for a token that the
  /// model does not have.
  std::vector<std::int32_t> ids(const std::string& text, const std::string& prompt = "");
  /// How many of these ids come before those of the text, [CLS] included.
  std::int64_t prompt_ids(const std::string& prompt);
  /// The vectors of texts behind `prompt`, [texts, dim]. `before`: as in SentenceEncoder::vectors. Throws
  /// what `ids` and SentenceEncoder::vectors throw.
  Tensor vectors(std::span<const std::string> texts, const std::string& prompt,
                 const std::function<bool(std::int64_t)>& before = {});

 private:
  const text::FolderTokenizer& read();
  text::Encoding encoding(const std::string& text);

  models::SentenceFolder folder_;
  models::SentenceEncoder encoder_;
  std::optional<text::FolderTokenizer> read_;
};

}  // namespace fovea::train
