#include "fovea/train/family_translator.h"

#include <algorithm>
#include <utility>

#include "fovea/core/error.h"
#include "fovea/core/executor.h"
#include "fovea/text/marian_tokenizer.h"
#include "fovea/text/tokenizer_json.h"
#include "train/error_of.h"

namespace fovea::train {
namespace {

using Ids = std::vector<std::int32_t>;

// Weights over words: of each target word the mean of its ids, of each source word the sum.
text::AlignmentWeights word_weights(const std::vector<std::vector<float>>& alignment, const Words& source,
                                    const Words& target) {
  const auto special = static_cast<std::int32_t>(source.labels.size());
  text::AlignmentWeights words{target.labels.size(), source.labels.size() + 1, {}};
  words.weights.assign(words.target_len * words.source_len, 0.0f);
  std::vector<float> counts(words.target_len);
  for (std::size_t row = 0; row < target.word_of.size(); ++row) {
    if (target.word_of[row] < 0) continue;
    const auto of = static_cast<std::size_t>(target.word_of[row]);
    ++counts[of];
    for (std::size_t column = 0; column < alignment[row].size(); ++column) {
      const std::int32_t word = column < source.word_of.size() ? source.word_of[column] : -1;
      words.weights[of * words.source_len + static_cast<std::size_t>(word < 0 ? special : word)] +=
          alignment[row][column];
    }
  }
  for (std::size_t i = 0; i < words.weights.size(); ++i)
    words.weights[i] /= std::max(counts[i / words.source_len], 1.0f);
  return words;
}

// A search's ids end with a stop id, unless its length ended it.
std::span<const std::int32_t> without_stop(const Ids& ids, const Ids& stops) {
  const bool stopped = !ids.empty() && std::ranges::find(stops, ids.back()) != stops.end();
  return std::span(ids).first(ids.size() - (stopped ? 1 : 0));
}

// The folder's way to write, changed by the options.
models::TranslatorBeams beams_of(const FamilyTranslatorOptions& o, const models::ModelFolder& folder,
                                 const models::GenerationDefaults& defaults, std::int64_t positions) {
  const auto refuse = [](const char* option, const std::string& expected, std::int64_t got) {
    throw InvalidArgument("FamilyTranslator", std::string("options.") + option, expected,
                          std::to_string(got));
  };
  if (o.n_best < 1) refuse("n_best", "at least 1", o.n_best);
  if (o.batch < 1) refuse("batch", "at least 1", o.batch);
  models::TranslatorBeams beams = folder.translator_beams(defaults);
  models::BeamOptions& search = beams.search;
  search.beams = o.beams.value_or(std::max(search.beams, o.n_best));
  search.length_penalty = o.length_penalty.value_or(search.length_penalty);
  search.cancelled = o.cancelled;
  if (o.no_repeat_ngram) search.rules.no_repeat_ngram = *o.no_repeat_ngram;
  if (o.min_new) {
    search.rules.min_new = *o.min_new;
    search.rules.min_length = 0;
  }
  if (o.temperature) {
    if (!search.draws) search.draws.emplace();
    search.draws->temperature = *o.temperature;
    if (*o.temperature == 0.0) search.draws.reset();
  }
  if (o.seed) {
    if (!search.draws)
      refuse("seed", "a temperature above 0, or a folder with do_sample", static_cast<std::int64_t>(*o.seed));
    search.draws->seed = *o.seed;
  }
  if (o.n_best > search.beams)
    refuse("n_best", "at most the number of beams, " + std::to_string(search.beams), o.n_best);
  if (o.max_new || o.length_factor)
    beams.length_of = models::output_length(o.max_new, o.length_factor.value_or(2.0), positions);
  beams.alignments = o.alignments;
  return beams;
}

}  // namespace

bool FamilyTranslator::is_in(const std::filesystem::path& folder) {
  std::error_code error;
  const bool has_tokenizer = text::has_folder_tokenizer(folder) || text::MarianTokenizer::is_in(folder);
  if (!has_tokenizer || !std::filesystem::exists(models::config_path(folder), error)) return false;
  return models::family_kind(models::ModelFolder(folder).config()) == models::FamilyKind::translator;
}

FamilyTranslator::FamilyTranslator(const models::ModelFolder& folder, FamilyTranslatorOptions options)
    : options_(std::move(options)),
      defaults_(options_.task.empty() ? folder.generation() : folder.generation_for(options_.task)) {
  const models::FamilyReading reading = models::read_family(folder.config());
  if (reading.problems.empty()) positions_ = reading.config.positions;
  beams_ = beams_of(options_, folder, defaults_, positions_);
  prefix_ = options_.prefix.value_or(defaults_.prefix);
  model_ = folder.sequence_to_sequence(options_.weights);
  coder_ = read_coder(folder, model_->vocabulary());
  of_no_text_ = coder_->begun("");
  set_languages();
}

std::int32_t FamilyTranslator::language_id(const char* option, const std::string& name) const {
  for (const std::string& spelling : {name, "__" + name + "__"}) {
    const std::optional<std::int32_t> id = coder_->special_id(spelling);
    if (id && is_language(*id)) return *id;
  }
  throw InvalidArgument("FamilyTranslator", std::string("options.") + option,
                        "a language that is a special token of the folder's tokenizer", "'" + name + "'");
}

// Special tokens that have another meaning are none.
bool FamilyTranslator::is_language(std::int32_t id) const {
  const bool stops = std::ranges::find(beams_.search.stop, id) != beams_.search.stop.end();
  if (stops || !coder_->is_special(id)) return false;
  const char* const others[] = {"<s>",   "</s>",  "<pad>", "<unk>", "<mask>",
                                "[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]"};
  return std::ranges::none_of(others,
                              [&](const char* spelling) { return coder_->special_id(spelling) == id; });
}

void FamilyTranslator::set_languages() {
  if (!options_.target_language.empty()) {
    const std::int32_t id = language_id("target_language", options_.target_language);
    // The first mBART's decoder reads the language first, and writes no token of it.
    if (is_language(beams_.start))
      beams_.start = id;
    else
      beams_.search.rules.forced_bos = id;
  }
  if (options_.source_language.empty()) return;
  const std::int32_t wanted = language_id("source_language", options_.source_language);
  // What stands beside the end, before it (NLLB) or behind it (the first mBART).
  Ids own = of_no_text_;
  std::erase_if(own, [&](std::int32_t id) { return !is_language(id); });
  if (own.size() != 1)
    throw InvalidArgument("FamilyTranslator", "options.source_language",
                          "nothing: this tokenizer adds no language to a text",
                          "'" + options_.source_language + "'");
  language_ = {own[0], wanted};
}

Ids FamilyTranslator::encode(const std::string& line) const {
  if (line.empty()) return {};
  const auto in_language = [&](Ids ids) {
    if (!language_ || ids.empty()) return ids;
    std::int32_t& place = ids.front() == language_->first ? ids.front() : ids.back();
    if (place == language_->first) place = language_->second;
    return ids;
  };
  Ids ids = coder_->begun(prefix_ + line);
  // The end alone, or with a language, is nothing to translate.
  if (ids == of_no_text_) return {};
  if (std::ssize(ids) <= positions_) return in_language(std::move(ids));
  if (options_.long_texts == LongTexts::cut) return in_language(coder_->cut(prefix_ + line, positions_));
  throw InvalidArgument("FamilyTranslator", "lines",
                        "at most the " + std::to_string(positions_) + " ids that the model reads",
                        std::to_string(ids.size()));
}

std::vector<Translation> FamilyTranslator::describe(const std::string& line,
                                                    const std::vector<models::BeamText>& texts) const {
  std::vector<Translation> all;
  for (const models::BeamText& text : texts) {
    if (std::ssize(all) == options_.n_best) break;
    const auto ids = without_stop(text.ids, beams_.search.stop);
    Translation& one = all.emplace_back();
    one.text = coder_->text(ids);
    one.log_probability = text.log_probability;
    one.score = text.score;
    if (!options_.alignments || text.alignment.empty()) continue;
    Words source = coder_->words_of_line(line), target = coder_->words(ids);
    one.weights = word_weights(text.alignment, source, target);
    one.source_words = std::move(source.labels);
    one.source_words.push_back("</s>");
    one.target_words = std::move(target.labels);
  }
  return all;
}

void FamilyTranslator::translate(const std::vector<std::string>& lines, const TranslationDone& done) const {
  std::vector<models::BeamRequest> requests(lines.size(), {{}, beams_.search});
  std::vector<std::exception_ptr> unread(lines.size());
  default_executor().parallel_for(std::ssize(lines), [&](std::int64_t unit, int) {
    const auto i = static_cast<std::size_t>(unit);
    unread[i] = error_of([&] { requests[i].prompt = encode(lines[i]); });
    if (beams_.length_of) requests[i].options.length = beams_.length_of(std::ssize(requests[i].prompt));
  });
  models::search_in_batches(
      *model_, requests, {beams_.start, beams_.alignments}, options_.batch,
      [&](std::size_t i, const std::vector<models::BeamText>& found, const std::exception_ptr& error) {
        if (error || unread[i]) return done(i, {}, error ? error : unread[i]);
        std::vector<Translation> texts(1);
        // Such as ids that the tokenizer does not know.
        const std::exception_ptr of_text = error_of([&] {
          if (!requests[i].prompt.empty()) texts = describe(prefix_ + lines[i], found);
        });
        done(i, of_text ? std::vector<Translation>() : texts, of_text);
      });
}

}  // namespace fovea::train
