// What the parts of `fovea generate` share.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cli/chat.h"
#include "cli/coder.h"
#include "fovea/models/beam_search.h"
#include "fovea/models/language_model.h"
#include "fovea/models/model_folder.h"
#include "fovea/text/stop_strings.h"

namespace fovea::cli {

/// Copies one value.
using Set = std::function<void(const models::SampleOptions& from, models::SampleOptions& to)>;

struct GenerateOptions {
  std::string model, prompt, prompt_ids, input, output, save_state, load_state, weights = "f32";
  models::SampleOptions sample;
  bool prompt_given = false, length_by_user = false, line = false, stats = false, json = false;
  std::optional<std::int64_t> whole_length;  ///< as Length::whole
  /// Copies the fields of `sample` that the command line set. The others come from generation_config.json.
  std::vector<Set> given;
  /// The options that the command line gave of those that say how tokens are drawn, and how beams are
  /// searched. Without any of the first, beams are drawn only if the folder says do_sample.
  std::vector<std::string> draws, searches;
  std::vector<std::string> stop;  ///< texts, before which an answer ends
  ChatOptions chat;
  std::int64_t beams = 0;  ///< 0: as the folder says, until search_of has set it
  double length_penalty = 1.0;
  models::EarlyStopping early_stopping = models::EarlyStopping::off;
  std::int64_t limit_mb = 4096, step_tokens = 512;
  int threads = 0;
};

/// Does what the options say.
void generate(GenerateOptions options);
/// Refuses options that contradict each other. Throws InvalidArgument.
void check(const GenerateOptions& options);
/// How many beams, and how they are searched: the folder says it where the command line does not.
/// `options.sample` is that of both together.
void use_search(const models::GenerationDefaults& defaults, GenerateOptions& options);
/// Refuses options that contradict beams, as the command line and the folder have them together.
void check_beams(const GenerateOptions& options);
/// A translator writes no more than its positions: a default length is cut, and another one refused.
void check_positions(GenerateOptions& options, std::int64_t positions);

/// What ends a text: ids, and texts. A text that is spelt as one special id becomes that id, because special
/// ids are not in the text.
struct Stops {
  std::vector<std::int32_t> ids;
  text::StopStrings strings;
  bool has_strings = false;
};
Stops stops_of(const GenerateOptions& options, const Coder& coder, const std::vector<std::string>& strings);

/// A tokenizer without an id that begins each text gives none for an empty one.
InvalidArgument no_ids(const char* option, const std::string& prompt);
/// Flushes `out`. Throws FileError if it could not be written.
std::ostream& checked(std::ostream& out, const std::string& path);

/// The beams that the options ask for; nothing for one alone.
std::optional<models::BeamOptions> beams_of(const GenerateOptions& options);
/// The same for a text whose `sample` is its own, also for one beam.
models::BeamOptions beams_of(const GenerateOptions& options, const models::SampleOptions& sample);

/// A text of a search, whose end and spelling depend on its stops.
class SearchedText {
 public:
  SearchedText(const Coder& coder, Ids prompt, Stops stops)
      : coder_(&coder), prompt_(std::move(prompt)), stops_(std::move(stops)) {}
  /// Ends a search at the stops. This must outlive the search.
  void end_at_stops(models::BeamOptions& beams) const;
  /// The text of ids behind the prompt, up to the first stop string.
  std::string text_of(std::span<const std::int32_t> ids) const;
  /// Whether `ids` end at a stop, and not because the length is reached.
  bool stopped(std::span<const std::int32_t> ids) const;

 private:
  const Coder* coder_;
  Ids prompt_;
  Stops stops_;
};

/// Answers to the lines of --input, in the order of the lines, each as soon as it and all before it are
/// there. A line that is wrong or too long is answered by its error, and Error is thrown behind the last
/// answer. `chat` is nullptr where the folder has no chat template.
void write_many(const GenerateOptions& options, models::LanguageModel& model, const Coder& coder,
                const ChatPrompts* chat, std::ostream& out);
/// The same by beams.
void search_many(const GenerateOptions& options, models::LanguageModel& model, const Coder& coder,
                 const ChatPrompts* chat, std::ostream& out);
/// The same by a translator, whose prompts are sources.
void translate_many(const GenerateOptions& options, const models::ModelFolder& folder,
                    models::SequenceToSequence& model, const Coder& coder, std::ostream& out);

}  // namespace fovea::cli
