#include "cli/translate_family.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "cli/commands.h"
#include "cli/progress.h"
#include "fovea/core/error.h"
#include "fovea/inspect/terminal.h"
#include "fovea/models/batches.h"
#include "fovea/text/marian_tokenizer.h"
#include "fovea/text/tokenizer_json.h"

namespace fovea::cli {
namespace {

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

// The folder's way to write, changed by what the command line says.
models::TranslatorBeams beams_of(const FamilyOptions& o, const models::ModelFolder& folder,
                                 const models::GenerationDefaults& defaults, std::int64_t positions) {
  models::TranslatorBeams beams = folder.translator_beams(defaults);
  models::BeamOptions& search = beams.search;
  search.beams = o.beams.value_or(std::max(search.beams, o.n_best));
  search.length_penalty = o.length_penalty.value_or(search.length_penalty);
  search.cancelled = [] { return stop_requested(); };
  if (o.no_repeat_ngram) search.rules.no_repeat_ngram = *o.no_repeat_ngram;
  if (o.min_new) {
    search.rules.min_new = *o.min_new;
    search.rules.min_length = 0;
  }
  if (o.n_best > search.beams)
    throw InvalidArgument(o.command, "--n-best", "at most --beam-size " + std::to_string(search.beams),
                          std::to_string(o.n_best));
  if (o.max_new || o.length_factor)
    beams.length_of = models::output_length(o.max_new, o.length_factor.value_or(2.0), positions);
  beams.alignments = o.alignments;
  if (defaults.draws)
    fmt::print(stderr, "fovea: do_sample of {} is not applied: a search draws nothing\n", defaults.file);
  return beams;
}

}  // namespace

bool is_family_translator(const std::string& folder) {
  std::error_code error;
  const bool has_tokenizer = text::has_json_tokenizer(folder) || text::MarianTokenizer::is_in(folder);
  if (!has_tokenizer || !std::filesystem::exists(models::config_path(folder), error)) return false;
  return models::family_kind(models::ModelFolder(folder).config()) == models::FamilyKind::translator;
}

FamilyTranslator::FamilyTranslator(FamilyOptions options) : options_(std::move(options)) {
  const models::ModelFolder folder(options_.model);
  const models::GenerationDefaults defaults =
      options_.task.empty() ? folder.generation() : folder.generation_for(options_.task);
  const models::FamilyReading reading = models::read_family(folder.config());
  positions_ = reading.problems.empty() ? reading.config.positions : 1;
  beams_ = beams_of(options_, folder, defaults, positions_);
  prefix_ = options_.prefix.value_or(defaults.prefix);
  model_ = folder.sequence_to_sequence();
  model_->parameters().pack(options_.weights);
  coder_ = read_coder(folder, model_->vocabulary());
}

Ids FamilyTranslator::encoded(const std::string& line, std::size_t number) const {
  if (line.empty()) return {};
  Ids ids = coder_->begun(prefix_ + line);
  // Ids of no text, such as that of the end alone, are nothing to translate.
  if (ids.size() == 1 && std::ranges::find(beams_.search.stop, ids[0]) != beams_.search.stop.end()) return {};
  if (std::ssize(ids) <= positions_) return ids;
  if (options_.truncate) return coder_->cut(prefix_ + line, positions_);
  throw InvalidArgument(options_.command, "line " + std::to_string(number + 1),
                        "at most the " + std::to_string(positions_) + " ids that the model reads",
                        std::to_string(ids.size()));
}

std::vector<train::Translation> FamilyTranslator::described(
    const std::string& line, const std::vector<models::BeamText>& texts) const {
  std::vector<train::Translation> all;
  for (const models::BeamText& text : texts) {
    if (std::ssize(all) == options_.n_best) break;
    const auto ids = without_stop(text.ids, beams_.search.stop);
    train::Translation& one = all.emplace_back();
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

void FamilyTranslator::run(const std::vector<std::string>& lines, const Use& use) const {
  std::vector<Ids> sources;
  for (std::size_t i = 0; i < lines.size(); ++i) sources.push_back(encoded(lines[i], i));
  // Lines of one window are sorted together. Its size is a compromise: a larger one has less padding, and a
  // smaller one is handed on sooner.
  const std::size_t batch = std::max<std::size_t>(options_.batch, 1), window = 16 * batch;
  CountProgress progress(options_.command, "lines");
  for (std::size_t begin = 0; begin < lines.size() && !stop_requested(); begin += window) {
    const std::size_t end = std::min(lines.size(), begin + window);
    std::vector<std::int64_t> lengths;
    for (std::size_t i = begin; i < end; ++i) lengths.push_back(std::ssize(sources[i]));
    std::vector<std::vector<train::Translation>> texts(end - begin, std::vector<train::Translation>(1));
    models::for_batches(lengths, static_cast<std::int64_t>(batch), [&](std::span<const std::size_t> own) {
      std::vector<Ids> of_batch;
      for (const std::size_t i : own) of_batch.push_back(sources[begin + i]);
      const auto found = models::beam_search(*model_, of_batch, beams_);
      for (std::size_t i = 0; i < own.size(); ++i)
        texts[own[i]] = described(prefix_ + lines[begin + own[i]], found[i]);
    });
    if (stop_requested()) return;
    progress.clear();
    for (std::size_t i = begin; i < end; ++i) use(i, texts[i - begin]);
    progress.show(static_cast<std::int64_t>(end), std::ssize(lines));
  }
}

std::string alignment_text(const train::Translation& translation, bool hard) {
  const text::AlignmentWeights& weights = translation.weights;
  if (weights.weights.empty()) return {};
  if (hard) return text::to_pharaoh(train::hard_alignment(translation));
  std::string result;
  for (std::size_t row = 0; row < weights.target_len; ++row) {
    if (row > 0) result += ' ';
    for (std::size_t column = 0; column < weights.source_len; ++column) {
      result += fmt::format("{}{:.4f}", column > 0 ? "," : "", weights.at(row, column));
    }
  }
  return result;
}

namespace {

void print_json(const TextOutput& how, std::size_t number, const std::vector<train::Translation>& texts,
                std::ostream& out) {
  using nlohmann::ordered_json;
  ordered_json list = ordered_json::array();
  for (const train::Translation& t : texts) {
    list.push_back({{"text", t.text}, {"score", t.score}, {"log_probability", t.log_probability}});
    if (!how.alignment.empty()) list.back()["alignment"] = alignment_text(t, how.alignment == "hard");
  }
  const ordered_json object{{"line", number + 1}, {"texts", list}};
  out << object.dump(-1, ' ', false, ordered_json::error_handler_t::replace) << '\n';
}

}  // namespace

void print_texts(const TextOutput& how, std::size_t number, const std::vector<train::Translation>& texts,
                 std::ostream& out) {
  if (how.json) return print_json(how, number, texts, out);
  for (const train::Translation& t : texts) {
    // A line stays a line, whatever the model writes.
    std::string text = t.text;
    std::ranges::replace_if(
        text, [](char c) { return c == '\n' || c == '\r'; }, ' ');
    out << (how.n_best > 1 ? fmt::format("{} ||| {} ||| {:.4f}", number, text, t.score) : text);
    if (!how.alignment.empty()) out << " ||| " << alignment_text(t, how.alignment == "hard");
    out << '\n';
    if (how.show && t.weights.target_len > 0)
      out << inspect::draw_terminal({t.target_words, t.source_words, t.weights.weights}) << '\n';
  }
}

}  // namespace fovea::cli
