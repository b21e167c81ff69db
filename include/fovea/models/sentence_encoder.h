// One vector for each sequence of ids, by the model of a folder of sentence-transformers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "fovea/models/model_folder.h"
#include "fovea/models/sentence_folder.h"

namespace fovea::models {

class SentenceEncoder {
 public:
  /// Throws FileError for what ModelFolder refuses, and for a translator.
  SentenceEncoder(const SentenceFolder& folder, ModelFolder::Packed weights);

  std::int64_t vocabulary() const noexcept { return vocabulary_; }
  /// The ids of a sequence at most.
  std::int64_t positions() const noexcept { return positions_; }

  /// The vectors, [sequences, dim]. Many sequences are computed at once, without padding. `prompt_ids` of
  /// each are those of a prompt, of which SentenceFolder::pools_prompt says whether they count. `before` gets
  /// the number of sequences that are done, before each batch; false ends early, and the other vectors are 0.
  /// Throws InvalidArgument for an empty sequence, an id outside the vocabulary, more than positions(), and
  /// for a sequence without an id behind a prompt that does not count.
  Tensor vectors(std::span<const std::vector<std::int32_t>> sequences, std::int64_t prompt_ids = 0,
                 const std::function<bool(std::int64_t)>& before = {}) const;

 private:
  // The last hidden states of all ids, [1, ids, dim], one sequence behind the other.
  Tensor hidden(std::span<const std::vector<std::int32_t>> sequences) const;
  // Of the `count` rows of a sequence from `begin` on those that count.
  RowRange pooled(std::int64_t begin, std::int64_t count, std::int64_t prompt_ids) const;

  SentenceFolder folder_;
  std::int64_t vocabulary_ = 0, positions_ = 0;
  std::unique_ptr<TextEncoder> encoder_;
  std::unique_ptr<LanguageModel> language_model_;
};

}  // namespace fovea::models
