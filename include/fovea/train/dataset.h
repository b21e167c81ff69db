// From text to ids: builds tokenizers and encodes corpora.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fovea/text/corpus.h"
#include "fovea/train/trainer.h"

namespace fovea::train {

enum class TokenizerKind : std::uint8_t { bpe, characters, whitespace };

struct TokenizerOptions {
  TokenizerKind kind = TokenizerKind::bpe;
  std::int64_t vocabulary_size = 8000;  ///< at most; for whitespace 0 means every word
};

/// One vocabulary over both sides of the corpus. Throws what WhitespaceTokenizer::build and
/// SentencePieceTokenizer::train throw.
std::unique_ptr<text::Tokenizer> build_tokenizer(const text::ParallelCorpus& corpus,
                                                 const TokenizerOptions& options);

struct EncodeReport {
  std::int64_t kept = 0, skipped_empty = 0, skipped_too_long = 0;
};
/// The ids of all pairs. Pairs with an empty side, or with more than `max_pieces` pieces on one, are left out
/// and counted; 0: no limit. `report`, if given, receives the counts. The indices of the pairs that stayed
/// are appended to `kept_indices`, if given.
std::vector<Example> encode(const text::ParallelCorpus& corpus, const text::Tokenizer& tokenizer,
                            std::int64_t max_pieces, EncodeReport* report,
                            std::vector<std::size_t>* kept_indices = nullptr);

/// The text a translation is compared with: the target line, "@@ " joined for a whitespace tokenizer.
std::string reference_text(const std::string& target, const text::Tokenizer& tokenizer);

/// Training and validation data, without the pairs that `encode` leaves out. They refer to `tokenizer`, which
/// must outlive them. BLEU uses tokenizer 13a, or none if the text is already split.
Data make_data(const text::ParallelCorpus& train, const text::ParallelCorpus& valid,
               const text::Tokenizer& tokenizer, std::int64_t max_pieces, EncodeReport* train_report);

}  // namespace fovea::train
