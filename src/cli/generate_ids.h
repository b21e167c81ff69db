// `fovea generate --prompt-ids`: ids in, ids out, without a tokenizer.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "fovea/models/beam_search.h"
#include "fovea/models/generate_until.h"
#include "fovea/models/language_model.h"
#include "fovea/models/model_folder.h"
#include "fovea/models/sequence_to_sequence.h"

namespace fovea::cli {

struct GenerateIds {
  std::string prompt;
  models::SampleOptions sample;
  bool length_by_user = false;  ///< sample.length, and no default of the folder or the command
  std::optional<std::int64_t> whole_length = {};  ///< as Length::whole
  std::int64_t limit_bytes = 0;
  bool json = false;
  autograd::WeightType weights = autograd::WeightType::f32;
  std::optional<models::BeamOptions> beams = {};
  models::EndsText ends = {};  ///< of written_ids
};

struct WrittenIds {
  std::vector<std::int32_t> ids;
  std::vector<double> log_probabilities;
};
/// What a translator writes for a source: at most options.sample.length ids, the last one perhaps a stop id.
/// Throws FileError if the folder does not say which id the decoder reads first.
WrittenIds written_ids(const GenerateIds& options, const models::ModelFolder& folder,
                       models::SequenceToSequence& model, const std::vector<std::int32_t>& source);

/// The best text that a search of beams finds, none if it was stopped before a text had ended. The
/// log-probabilities are those of the model itself, as of any other text, without the repetition penalty.
WrittenIds searched_ids(models::LanguageModel& model, KvCache& cache, const std::vector<std::int32_t>& prompt,
                        const models::BeamOptions& options);

/// The same of a translator that reads `source`.
WrittenIds searched_ids(models::SequenceToSequence& model, const std::vector<std::int32_t>& source,
                        const models::TranslatorBeams& options);

/// How many tokens a text shall have, and whether the user said so.
struct Length {
  std::int64_t tokens;
  bool by_user;
  /// max_length of the folder, which counts the tokens of the prompt too and stands where the user said
  /// nothing.
  std::optional<std::int64_t> whole = {};
};
/// The tokens to write behind `before` others: `wanted`, or what the model can still read where that is a
/// default. Throws InvalidArgument with --length if the user asked for more, and where there is no room, in
/// the model or below Length::whole.
std::int64_t length_behind(const models::LanguageModel& model, std::int64_t before, Length wanted);

/// Writes until options.sample.length ids are written or one is a stop id of the folder, which is the last.
void generate_ids(const GenerateIds& options, const models::ModelFolder& folder, std::ostream& out);

}  // namespace fovea::cli
