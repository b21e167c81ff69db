// A trained model with its tokenizer: text in, text and alignments out.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fovea/models/decoding.h"
#include "fovea/text/alignment.h"
#include "fovea/text/tokenizer.h"

namespace fovea::train {

struct Translation {
  std::string text;
  double log_probability = 0.0, score = 0.0;
  std::vector<std::string> source_words, target_words;  ///< source_words ends with </s>
  /// [target_words, source_words], sub-words merged; empty without attention.
  text::AlignmentWeights weights;
};

/// For each target word the source word with the largest weight; no link if that is </s>. Requires attention.
text::Alignment hard_alignment(const Translation& translation);

class Translator {
 public:
  /// The folder that `fovea train` wrote, its matrices packed in this type. Throws FileError, and
  /// InvalidArgument for matrices that the type does not hold.
  static Translator load(const std::string& folder, autograd::WeightType weights = autograd::WeightType::f32);
  Translator(std::unique_ptr<models::SequenceToSequence> model, std::unique_ptr<text::Tokenizer> tokenizer);

  models::SequenceToSequence& model() noexcept { return *model_; }
  const text::Tokenizer& tokenizer() const noexcept { return *tokenizer_; }

  /// For each line its n-best translations, best first; an empty line gives one empty translation. Decoded in
  /// batches of at most `batch` lines of similar length.
  std::vector<std::vector<Translation>> translate(const std::vector<std::string>& lines,
                                                  const models::DecodeOptions& options,
                                                  std::size_t batch = 32,
                                                  models::DecodeStats* stats = nullptr);

  /// The alignment of `source` with a given `target`, as if the model had written it. Use: comparison with
  /// gold alignments, and texts of others. An empty line on either side gives no weights. Requires attention.
  Translation align(const std::string& source, const std::string& target);

  /// The attention of every layer and head under teacher forcing: the model reads `source` and is given
  /// `target`. Pieces are the labels of rows and columns.
  struct Inspection {
    std::vector<std::string> source_pieces, target_pieces;  ///< with </s>
    models::Capture maps;                                   ///< batch of one
  };
  Inspection inspect(const std::string& source, const std::string& target);

 private:
  Translation describe(const std::string& line, const std::vector<std::int32_t>& source,
                       const models::Hypothesis& hypothesis) const;
  std::unique_ptr<models::SequenceToSequence> model_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
};

}  // namespace fovea::train
