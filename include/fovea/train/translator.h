// A trained model with its tokenizer: text in, text and alignments out.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
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

/// Gets the texts of lines[number], best first. An empty line has one text that is empty. `error` is what
/// ended this line alone, such as its length; there are no texts then. The calls are in the order of the
/// lines, one at a time, on any thread.
using TranslationDone = std::function<void(std::size_t number, const std::vector<Translation>& texts,
                                           const std::exception_ptr& error)>;

struct TranslateOptions {
  models::DecodeOptions search = {};
  std::int64_t batch = 32;   ///< lines that are read together, at least 1
  std::int64_t longest = 0;  ///< pieces of a line at most; a longer line is an error of its own; 0: any
};

/// For each target word the source word with the largest weight; no link if that is </s>. Throws
/// InvalidArgument for a translation without weights.
text::Alignment hard_alignment(const Translation& translation);

class Translator {
 public:
  /// The folder that `fovea train` wrote, its matrices packed in this type. Throws FileError, and
  /// InvalidArgument for matrices that the type does not hold.
  static Translator load(const std::string& folder, autograd::WeightType weights = autograd::WeightType::f32);
  Translator(std::unique_ptr<models::SequenceToSequence> model, std::unique_ptr<text::Tokenizer> tokenizer);

  models::SequenceToSequence& model() noexcept { return *model_; }
  const text::Tokenizer& tokenizer() const noexcept { return *tokenizer_; }

  /// Calls `done` for each line as soon as it and all before it are translated. Lines are sorted by length
  /// and cut into batches, which run side by side (models::for_batches_in_order). With packed matrices, as
  /// `load` reads them, a line has the same bits in any batch. Once options.search.cancelled returns true,
  /// lines that are not done have no call. A model whose numbers are NaN is an error of each line. The
  /// peak_state_bytes of `stats` are the sum of the largest batches, as many as run side by side. Throws
  /// InvalidArgument for a batch below 1.
  void translate(const std::vector<std::string>& lines, const TranslateOptions& options,
                 const TranslationDone& done, models::DecodeStats* stats = nullptr);
  /// The texts of all lines. Throws the error of the first line that has one.
  std::vector<std::vector<Translation>> translate(const std::vector<std::string>& lines,
                                                  const models::DecodeOptions& options,
                                                  std::size_t batch = 32,
                                                  models::DecodeStats* stats = nullptr);

  /// The alignment of `source` with a given `target`, as if the model had written it. Use: comparison with
  /// gold alignments, and texts of others. An empty line on either side gives no weights. Throws
  /// InvalidArgument for a model without attention.
  Translation align(const std::string& source, const std::string& target);

  /// The attention of every layer and head under teacher forcing: the model reads `source` and is given
  /// `target`. Pieces are the labels of rows and columns. Throws InvalidArgument for an empty source.
  struct Inspection {
    std::vector<std::string> source_pieces, target_pieces;  ///< with </s>
    models::Capture maps;                                   ///< batch of one
  };
  Inspection inspect(const std::string& source, const std::string& target);

 private:
  std::vector<std::vector<Translation>> translate_batch(const std::vector<std::string>& lines,
                                                        const std::vector<std::vector<std::int32_t>>& sources,
                                                        const models::DecodeOptions& options,
                                                        models::DecodeStats& stats);
  Translation describe(const std::string& line, const std::vector<std::int32_t>& source,
                       const models::Hypothesis& hypothesis) const;
  std::unique_ptr<models::SequenceToSequence> model_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
};

}  // namespace fovea::train
