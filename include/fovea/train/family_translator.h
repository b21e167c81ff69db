// A translator of another library with its tokenizer, such as T5, BART, mBART or Marian: texts in, texts and
// alignments out, found as Hugging Face's generate finds them. The folder says how, and options change it.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fovea/models/beam_search.h"
#include "fovea/models/model_folder.h"
#include "fovea/train/coder.h"
#include "fovea/train/translator.h"

namespace fovea::train {

/// What happens to a text with more ids than the model reads.
enum class LongTexts : std::uint8_t {
  refuse,  ///< it is an error of its own
  cut      ///< its first ids are read, and the id that ends it
};

/// Without a value the folder decides.
struct FamilyTranslatorOptions {
  std::string task = {};                   ///< of config.json's task_specific_params; "" for none
  std::optional<std::string> prefix = {};  ///< what stands before each text
  /// Languages as the tokenizer spells them, such as "eng_Latn" (NLLB), "en_XX" (mBART) or "en" (M2M-100,
  /// whose token is "__en__"). "": those of the tokenizer and of the folder's forced_bos_token_id.
  std::string source_language = {}, target_language = {};
  std::optional<std::int64_t> beams = {}, max_new = {}, min_new = {}, no_repeat_ngram = {};
  std::optional<double> length_penalty = {};
  /// A text gets at most this number times the ids of its source, and 10 more, where max_new says nothing.
  std::optional<double> length_factor = {};
  /// Above 0: ids are drawn at this temperature. 0: they are the best ones, whatever the folder says.
  std::optional<double> temperature = {};
  std::optional<std::uint64_t> seed = {};  ///< of draws; it is an error where nothing is drawn
  std::int64_t n_best = 1;                 ///< texts for each source, at most as many as beams
  std::int64_t batch = 32;                 ///< sources that are read together, at least 1
  LongTexts long_texts = LongTexts::refuse;
  bool alignments = false;  ///< whether translations have weights
  autograd::WeightType weights = autograd::WeightType::f32;
  /// Asked before each step, from any thread: true ends all.
  std::function<bool()> cancelled = {};
};

class FamilyTranslator {
 public:
  /// Whether the folder holds such a translator and its tokenizer: tokenizer.json, or Marian's files.
  static bool is_in(const std::filesystem::path& folder);

  /// Reads the weights and the tokenizer. Throws FileError for a folder that does not say which id the
  /// decoder reads first and which ends a text, and for a task that it does not have. Throws InvalidArgument
  /// for options outside their ranges, for options that contradict each other, and for languages that the
  /// tokenizer does not have.
  explicit FamilyTranslator(const models::ModelFolder& folder, FamilyTranslatorOptions options = {});

  /// Calls `done` for each line as soon as it and all before it are translated. Lines are sorted by length
  /// and cut into batches, which run side by side. Weights are over the words between blanks, and their last
  /// column has what the model gives to special ids. A line has an error of its own if it has more ids than
  /// the model reads, or if the rules leave no id. Ends early if `cancelled` says so.
  void translate(const std::vector<std::string>& lines, const TranslationDone& done) const;

  /// What the folder says, with the task of the options.
  const models::GenerationDefaults& defaults() const noexcept { return defaults_; }

 private:
  std::vector<std::int32_t> encode(const std::string& line) const;
  bool is_language(std::int32_t id) const;
  std::int32_t language_id(const char* option, const std::string& name) const;
  void set_languages();
  std::vector<Translation> describe(const std::string& line,
                                    const std::vector<models::BeamText>& texts) const;

  FamilyTranslatorOptions options_;
  models::GenerationDefaults defaults_;
  models::TranslatorBeams beams_;
  std::string prefix_;
  std::vector<std::int32_t> of_no_text_;  // what the tokenizer makes of no text
  /// The id of the tokenizer's own source language, and of the one that takes its place.
  std::optional<std::pair<std::int32_t, std::int32_t>> language_;
  std::int64_t positions_ = 1;
  std::unique_ptr<models::SequenceToSequence> model_;
  std::unique_ptr<Coder> coder_;
};

}  // namespace fovea::train
