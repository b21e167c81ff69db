#include "cli/generate_ids.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/coder.h"
#include "cli/commands.h"
#include "cli/ids.h"

namespace fovea::cli {

namespace {

bool ends(const models::GenerationDefaults& defaults, std::int32_t id) {
  return std::find(defaults.stop_ids.begin(), defaults.stop_ids.end(), id) != defaults.stop_ids.end();
}

WrittenIds continued(const GenerateIds& options, models::LanguageModel& model, const Ids& prompt,
                     const models::GenerationDefaults& defaults) {
  if (options.sample.length == 0) return {};
  KvCache cache({.layers = model.cache_layers(), .limit_bytes = options.limit_bytes});
  Sequence sequence = cache.start();
  models::SampleOptions sample = options.sample;
  sample.length =
      length_behind(model, std::ssize(prompt), {sample.length, options.length_by_user, options.whole_length});
  models::Generated written = models::generate_until(
      model, cache, sequence, prompt, sample,
      [&](std::span<const std::int32_t> ids) { return ends(defaults, ids.back()) || stop_requested(); });
  return {std::move(written.ids), std::move(written.log_probabilities)};
}

}  // namespace

WrittenIds searched_ids(models::LanguageModel& model, KvCache& cache, const Ids& prompt,
                        const models::BeamOptions& options) {
  const std::vector<models::BeamText> texts = models::beam_search(model, cache, prompt, options);
  if (texts.empty()) return {};
  return {texts[0].ids, texts[0].log_probabilities};
}

WrittenIds searched_ids(models::SequenceToSequence& model, const Ids& source,
                        const models::TranslatorBeams& options) {
  models::TranslatorBeams beams = options;
  beams.alignments = false;
  const auto found = models::beam_search(model, {source}, beams);
  if (found[0].empty()) return {};
  return {found[0][0].ids, found[0][0].log_probabilities};
}

std::int64_t length_behind(const models::LanguageModel& model, std::int64_t before, Length wanted) {
  const std::int64_t longest = model.longest_kept(), most = before > longest ? 0 : longest - before + 1;
  if (wanted.whole && !wanted.by_user && wanted.tokens > 0) {
    if (*wanted.whole <= before)
      throw InvalidArgument(
          "fovea generate", "the text so far",
          fmt::format("fewer than {} tokens, the folder's max_length, or a length of its own", *wanted.whole),
          std::to_string(before));
    wanted.tokens = *wanted.whole - before;
  }
  if (wanted.tokens == 0 || wanted.tokens - 1 <= longest - before) return wanted.tokens;
  if (!wanted.by_user && most > 0) return most;
  if (most == 0)
    throw InvalidArgument("fovea generate", "the prompt",
                          fmt::format("at most {} tokens, {}", longest, model.reads(models::Reuse::on)),
                          std::to_string(before));
  throw InvalidArgument(
      "fovea generate", "--length",
      fmt::format("at most {} behind {} tokens, {}", most, before, model.reads(models::Reuse::on)),
      std::to_string(wanted.tokens));
}

WrittenIds written_ids(const GenerateIds& options, const models::ModelFolder& folder,
                       models::SequenceToSequence& model, const Ids& source) {
  const models::GenerationDefaults defaults = folder.generation();
  const std::int32_t start = folder.decoder_start();
  const std::int64_t lengths[] = {std::ssize(source)};
  const auto state = model.start(source, std::ssize(source), lengths);
  models::Generated written;
  models::SampleOptions sample = options.sample;
  for (std::int32_t last = start; std::ssize(written.ids) < options.sample.length && !stop_requested() &&
                                  (written.ids.empty() || !ends(defaults, last));
       last = written.ids.back()) {
    const Tensor next = model.logits(model.advance(*state, {&last, 1}));
    models::write_next({next.data<float>(), static_cast<std::size_t>(next.count())}, {&start, 1}, sample,
                       written);
    if (options.ends && options.ends(written.ids)) break;
  }
  return {std::move(written.ids), std::move(written.log_probabilities)};
}

void generate_ids(const GenerateIds& options, const models::ModelFolder& folder, std::ostream& out) {
  const Ids prompt = parse_ids(options.prompt, "--prompt-ids");
  const models::GenerationDefaults defaults = folder.generation();
  warn_of(defaults);
  WrittenIds text;
  if (models::family_kind(folder.config()) == models::FamilyKind::translator) {
    const auto model = folder.sequence_to_sequence(options.weights);
    check_vocabulary("fovea generate", "--prompt-ids", prompt, model->vocabulary());
    if (options.beams) {
      models::BeamOptions beams = *options.beams;
      beams.stop = defaults.stop_ids;
      text = searched_ids(*model, prompt, {.search = beams, .start = folder.decoder_start()});
    } else {
      text = written_ids(options, folder, *model, prompt);
    }
  } else {
    models::LanguageModel model = folder.language_model(options.weights);
    check_vocabulary("fovea generate", "--prompt-ids", prompt, model.config().vocabulary);
    if (options.beams) {
      KvCache cache({.layers = model.cache_layers(), .limit_bytes = options.limit_bytes});
      models::BeamOptions beams = *options.beams;
      beams.stop = defaults.stop_ids;
      beams.length = length_behind(model, std::ssize(prompt),
                                   {beams.length, options.length_by_user, options.whole_length});
      text = searched_ids(model, cache, prompt, beams);
    } else {
      text = continued(options, model, prompt, defaults);
    }
  }
  const auto& [ids, log_probabilities] = text;
  if (options.json)
    out << nlohmann::ordered_json{{"ids", ids}, {"log_probabilities", log_probabilities}}.dump() << '\n';
  else
    out << fmt::format("{}\n", fmt::join(ids, " "));
  if (stop_requested()) throw Stopped{"stopped; what was written stands"};
}

}  // namespace fovea::cli
