// Translators of other libraries, such as T5, BART and Marian: what `fovea translate` and `fovea summarize`
// share.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "cli/coder.h"
#include "fovea/models/beam_search.h"
#include "fovea/models/model_folder.h"
#include "fovea/train/translator.h"

namespace fovea::cli {

/// Whether the folder holds such a translator and its tokenizer: tokenizer.json, or Marian's files.
bool is_family_translator(const std::string& folder);

/// What the command line says; the folder says the rest.
struct FamilyOptions {
  std::string model = {}, command = {};  ///< `command` is named in errors
  /// A task of config.json's task_specific_params; "" for none.
  std::string task = {};
  std::optional<std::string> prefix = {};  ///< before each line
  std::optional<std::int64_t> beams = {}, max_new = {}, min_new = {}, no_repeat_ngram = {};
  std::optional<double> length_penalty = {}, length_factor = {};
  std::int64_t n_best = 1;
  std::size_t batch = 32;  ///< lines at once
  /// Ids of a line at most are those that the model reads: a longer one is cut, or else refused by its
  /// number.
  bool truncate = false;
  bool alignments = false;
  autograd::WeightType weights = autograd::WeightType::f32;
};

class FamilyTranslator {
 public:
  /// Throws FileError for a folder that does not say which id the decoder reads first and which ends a text,
  /// and InvalidArgument for options that contradict each other.
  explicit FamilyTranslator(FamilyOptions options);

  /// Gets the n-best texts of line `number`, best first, in the order of the lines. An empty line has one
  /// that is empty. Weights are over the words between blanks, and the last column has what the model gives
  /// to special ids.
  using Use = std::function<void(std::size_t number, const std::vector<train::Translation>& texts)>;
  /// Lines are sorted by length and cut into batches, which run side by side. What is ready is handed on
  /// before all lines are done. Ends early if a signal asks for it. Throws InvalidArgument for a line with
  /// more ids than the model reads, which it names, before any is translated.
  void run(const std::vector<std::string>& lines, const Use& use) const;

 private:
  Ids encoded(const std::string& line, std::size_t number) const;
  std::vector<train::Translation> described(const std::string& line,
                                            const std::vector<models::BeamText>& texts) const;

  FamilyOptions options_;
  models::TranslatorBeams beams_;
  std::string prefix_;
  std::int64_t positions_;
  std::unique_ptr<models::SequenceToSequence> model_;
  std::unique_ptr<Coder> coder_;
};

/// How texts are printed.
struct TextOutput {
  std::int64_t n_best = 1;
  std::string alignment = {};  ///< "", "hard" or "soft"
  bool show = false, json = false;
};
/// Prints the texts of a line: one on a line each, or one JSON object.
void print_texts(const TextOutput& how, std::size_t number, const std::vector<train::Translation>& texts,
                 std::ostream& out);
/// The alignment as `fovea score alignment` reads it, or as Marian prints soft ones; "" without weights.
std::string alignment_text(const train::Translation& translation, bool hard);

}  // namespace fovea::cli
