#include "fovea/train/dataset.h"

#include <utility>

#include "fovea/core/executor.h"

namespace fovea::train {

std::unique_ptr<text::Tokenizer> build_tokenizer(const text::ParallelCorpus& corpus,
                                                 const TokenizerOptions& options) {
  const std::vector<std::string> lines = text::lines_of(corpus, text::Side::both);
  if (options.kind == TokenizerKind::whitespace) {
    return text::WhitespaceTokenizer::build(lines, {.min_frequency = 1, .max_size = options.vocabulary_size});
  }
  using Pieces = text::SentencePieceOptions::Pieces;
  return text::SentencePieceTokenizer::train(
      lines, {.vocabulary_size = options.vocabulary_size,
              .pieces = options.kind == TokenizerKind::characters ? Pieces::characters : Pieces::merged});
}

std::vector<Example> encode(const text::ParallelCorpus& corpus, const text::Tokenizer& tokenizer,
                            std::int64_t max_pieces, EncodeReport* report,
                            std::vector<std::size_t>* kept_indices) {
  std::vector<Example> encoded(corpus.pairs.size()), examples;
  default_executor().parallel_for(std::ssize(encoded), [&](std::int64_t unit, int) {
    const auto i = static_cast<std::size_t>(unit);
    encoded[i] = {tokenizer.encode(corpus.pairs[i].source), tokenizer.encode(corpus.pairs[i].target)};
  });
  EncodeReport counted;
  const auto longest = static_cast<std::size_t>(max_pieces);
  for (std::size_t i = 0; i < encoded.size(); ++i) {
    Example& example = encoded[i];
    if (example.source.empty() || example.target.empty()) {
      ++counted.skipped_empty;
    } else if (max_pieces > 0 && (example.source.size() > longest || example.target.size() > longest)) {
      ++counted.skipped_too_long;
    } else {
      ++counted.kept;
      examples.push_back(std::move(example));
      if (kept_indices) kept_indices->push_back(i);
    }
  }
  if (report) *report = counted;
  return examples;
}

std::string reference_text(const std::string& target, const text::Tokenizer& tokenizer) {
  if (tokenizer.kind() != "whitespace") return target;
  std::string joined;
  for (std::size_t i = 0; i < target.size();) {
    if (target.compare(i, 3, "@@ ") == 0) {
      i += 3;
    } else {
      joined += target[i++];
    }
  }
  return joined;
}

Data make_data(const text::ParallelCorpus& train, const text::ParallelCorpus& valid,
               const text::Tokenizer& tokenizer, std::int64_t max_pieces, EncodeReport* train_report) {
  Data data;
  data.tokenizer = &tokenizer;
  data.train = encode(train, tokenizer, max_pieces, train_report);
  std::vector<std::size_t> kept;
  data.valid = encode(valid, tokenizer, max_pieces, nullptr, &kept);
  for (const std::size_t i : kept)
    data.valid_references.push_back(reference_text(valid.pairs[i].target, tokenizer));
  if (tokenizer.kind() == "whitespace") data.bleu.tokenizer = text::BleuTokenizer::none;
  return data;
}

}  // namespace fovea::train
