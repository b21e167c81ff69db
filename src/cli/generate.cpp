#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/commands.h"
#include "cli/generate_ids.h"
#include "cli/generate_options.h"
#include "cli/generate_state.h"
#include "cli/text_stream.h"
#include "cli/text_windows.h"
#include "core/excerpt.h"
#include "fovea/models/model_folder.h"
#include "models/configs.h"

namespace fovea::cli {

InvalidArgument no_ids(const char* option, const std::string& prompt) {
  return {"fovea generate", option, "a text of at least one id", "no id of '" + excerpt(prompt) + "'"};
}

std::ostream& checked(std::ostream& out, const std::string& path) {
  out.flush();
  if (!out) throw FileError(path.empty() ? "standard output" : path, -1, "cannot be written");
  return out;
}

Stops stops_of(const GenerateOptions& o, const Coder& coder, const std::vector<std::string>& strings) {
  Stops stops;
  stops.ids = coder.stops();
  if (o.line && coder.line_end()) stops.ids.push_back(*coder.line_end());
  std::vector<std::string> texts;
  for (const std::string& string : strings) {
    if (const std::optional<std::int32_t> id = coder.special_id(string))
      stops.ids.push_back(*id);
    else
      texts.push_back(string);
  }
  stops.has_strings = !texts.empty();
  stops.strings = text::StopStrings(std::move(texts));
  return stops;
}

models::BeamOptions beams_of(const GenerateOptions& o, const models::SampleOptions& sample) {
  models::BeamOptions beams{.beams = o.beams,
                            .length = sample.length,
                            .length_penalty = o.length_penalty,
                            .early_stopping = o.early_stopping,
                            .repetition_penalty = sample.repetition_penalty,
                            .rules = sample.rules,
                            .cancelled = [] { return stop_requested(); }};
  if (sample.temperature > 0.0)
    beams.draws = {.temperature = sample.temperature,
                   .top_k = sample.top_k,
                   .top_p = sample.top_p,
                   .min_p = sample.min_p,
                   .seed = sample.seed};
  return beams;
}

std::optional<models::BeamOptions> beams_of(const GenerateOptions& o) {
  return o.beams == 1 ? std::nullopt : std::optional(beams_of(o, o.sample));
}

namespace {

std::pair<std::string, bool> read_stream(TextStream stream, std::span<const std::int32_t> ids) {
  std::string text;
  for (const std::int32_t id : ids) text += stream.add(id);
  const bool stopped = stream.stopped();
  return {text + stream.rest(), stopped};
}

}  // namespace

void SearchedText::end_at_stops(models::BeamOptions& beams) const {
  beams.stop = stops_.ids;
  if (!stops_.has_strings) return;
  beams.ends = [this](std::span<const std::int32_t> written) {
    return read_stream(TextStream(*coder_, prompt_, stops_.strings), written).second;
  };
}

std::string SearchedText::text_of(std::span<const std::int32_t> ids) const {
  return read_stream(TextStream(*coder_, prompt_, stops_.strings), ids).first;
}

bool SearchedText::stopped(std::span<const std::int32_t> ids) const {
  return read_stream(TextStream(*coder_, prompt_, stops_.strings), ids).second ||
         std::ranges::find(stops_.ids, ids.back()) != stops_.ids.end();
}

namespace {

using nlohmann::json;

// The prompt behind what was read before, if anything was.
Ids prompt_ids(const GenerateOptions& o, const Coder& coder, const ChatPrompts* chat) {
  if (chat) {
    Ids ids = coder.added(chat->of_text(o.prompt_given ? std::optional(o.prompt) : std::nullopt));
    if (ids.empty())
      throw InvalidArgument("fovea generate", "--chat", "a template that makes a text", "an empty one");
    return ids;
  }
  return o.load_state.empty() ? coder.begun(o.prompt) : coder.added(o.prompt);
}

// What is written, as it is printed: text as it comes, or one JSON object at the end.
class Printer {
 public:
  Printer(const GenerateOptions& o, std::ostream& out) : json_(o.json), out_(out) {}
  void add(const std::string& text) {
    if (json_)
      text_ += text;
    else if (!text.empty())
      out_ << text << std::flush;
  }
  void add(std::int32_t id, double log_probability) {
    ids_.push_back(id);
    log_probability_ += log_probability;
  }
  void end(bool stopped) {
    if (json_)
      out_ << nlohmann::ordered_json{
          {"text", text_},
          {"finish", stopped ? "stop" : "length"},
          {"tokens", ids_.size()},
          {"log_probability", log_probability_},
          {"ids",
           ids_}}.dump(-1, ' ', false, json::error_handler_t::replace);
    out_ << '\n';
  }

 private:
  bool json_;
  std::ostream& out_;
  std::string text_;
  Ids ids_;
  double log_probability_ = 0.0;
};

void write_one(const GenerateOptions& o, models::LanguageModel& model, const Coder& coder,
               const ChatPrompts* chat, std::ostream& out) {
  KvCache cache({.layers = model.cache_layers(), .limit_bytes = o.limit_mb << 20});
  TextState state;
  if (!o.load_state.empty())
    state = load_state(o, cache);
  else
    state.sequence = cache.start();
  const Ids added = prompt_ids(o, coder, chat);
  state.unread.insert(state.unread.end(), added.begin(), added.end());
  if (state.unread.empty()) throw no_ids("--prompt", o.prompt);
  Ids before = cache.ids(state.sequence);
  before.insert(before.end(), state.unread.begin(), state.unread.end());
  Stops stops = stops_of(o, coder, o.stop);
  TextStream stream(coder, before, std::move(stops.strings));
  Printer printer(o, out);
  bool stopped = false;
  if (o.sample.length == 0) {
    const auto left = models::read_prompt(model, cache, state.sequence, state.unread);
    state.unread = Ids(left.begin(), left.end());
  } else {
    models::SampleOptions sample = o.sample;
    sample.first = state.written;
    sample.length =
        length_behind(model, std::ssize(before), {sample.length, o.length_by_user, o.whole_length});
    // The last token is written and not read. A text is refused before it begins, as those of --input are.
    const std::int64_t bytes = cache.bytes_for(std::ssize(before) + sample.length - 1);
    if (bytes > o.limit_mb << 20)
      throw InvalidArgument("fovea generate", "--limit-mb",
                            fmt::format("at least {} for {} tokens in all", ((bytes - 1) >> 20) + 1,
                                        std::ssize(before) + sample.length),
                            std::to_string(o.limit_mb));
    const models::Generated written = models::generate_until(
        model, cache, state.sequence, state.unread, sample, [&](std::span<const std::int32_t> ids) {
          printer.add(stream.add(ids.back()));
          stopped = stream.stopped() || std::ranges::find(stops.ids, ids.back()) != stops.ids.end();
          return stopped || stop_requested();
        });
    for (std::size_t i = 0; i < written.ids.size(); ++i)
      printer.add(written.ids[i], written.log_probabilities[i]);
    state.written += std::ssize(written.ids);
    state.unread = {written.ids.back()};
  }
  // Of a text that goes on later, an unfinished character is printed then.
  if (o.save_state.empty()) printer.add(stream.rest());
  printer.end(stopped);
  checked(out, o.output);
  if (!o.save_state.empty()) save_state(o, cache, state);
  if (o.stats)
    fmt::print(stderr, "{} tokens read, {} bytes of keys and values\n", cache.length(state.sequence),
               cache.bytes().used);
  if (stop_requested()) throw Stopped{"stopped; what was written stands"};
}

void print_best(const GenerateOptions& o, const SearchedText& searched, const WrittenIds& best,
                std::ostream& out) {
  if (best.ids.empty()) throw Stopped{"stopped before a text had ended"};
  Printer printer(o, out);
  printer.add(searched.text_of(best.ids));
  for (std::size_t i = 0; i < best.ids.size(); ++i) printer.add(best.ids[i], best.log_probabilities[i]);
  printer.end(searched.stopped(best.ids));
}

// A translator reads the prompt and writes another text, or those of --input.
void write_translation(const GenerateOptions& o, const models::ModelFolder& folder, std::ostream& out) {
  for (const auto& [option, given] : {std::pair{"--save-state", !o.save_state.empty()},
                                      {"--load-state", !o.load_state.empty()},
                                      {"--chat", is_chat(o.chat)}}) {
    if (given)
      throw InvalidArgument("fovea generate", option, "nothing, because the model is a translator",
                            "a value");
  }
  const auto model = folder.sequence_to_sequence(autograd::parse_weight_type(o.weights));
  const std::unique_ptr<Coder> coder = read_coder(folder, model->vocabulary());
  if (!o.input.empty()) return translate_many(o, folder, *model, *coder, out);
  GenerateIds options{.sample = o.sample};
  const Ids ids = coder->begun(o.prompt);
  if (ids.empty()) throw no_ids("--prompt", o.prompt);
  Stops stops = stops_of(o, *coder, o.stop);
  if (std::optional<models::BeamOptions> beams = beams_of(o)) {
    const SearchedText searched(*coder, {}, std::move(stops));
    searched.end_at_stops(*beams);
    const std::int32_t start = folder.decoder_start();
    print_best(o, searched, searched_ids(*model, ids, {.search = *beams, .start = start}), out);
    return;
  }
  TextStream stream(*coder, {}, std::move(stops.strings));
  Printer printer(o, out);
  bool stopped = false;
  options.ends = [&](std::span<const std::int32_t> written) {
    printer.add(stream.add(written.back()));
    stopped = stream.stopped() || std::ranges::find(stops.ids, written.back()) != stops.ids.end();
    return stopped;
  };
  const WrittenIds written = written_ids(options, folder, *model, ids);
  for (std::size_t i = 0; i < written.ids.size(); ++i)
    printer.add(written.ids[i], written.log_probabilities[i]);
  printer.add(stream.rest());
  printer.end(stopped);
}

// The folder's own way to choose tokens, changed by what the command line says.
models::SampleOptions sample_of(const GenerateOptions& o, const models::GenerationDefaults& defaults,
                                bool translator) {
  models::SampleOptions sample = defaults.sample.value_or(o.sample);
  sample.rules = defaults.rules;
  sample.repetition_penalty = defaults.repetition_penalty;
  sample.length = defaults.max_new.value_or(sample.length);
  if (translator && defaults.max_length &&
      !defaults.max_new)  // it counts the id that the decoder reads first
    sample.length = std::max<std::int64_t>(*defaults.max_length - 1, 1);
  for (const Set& set : o.given) set(o.sample, sample);
  return sample;
}

// The best text of a search. It is known at the end alone, so nothing is streamed.
void write_best(const GenerateOptions& o, models::LanguageModel& model, const Coder& coder,
                const ChatPrompts* chat, std::ostream& out) {
  const Ids prompt = prompt_ids(o, coder, chat);
  if (prompt.empty()) throw no_ids("--prompt", o.prompt);
  KvCache cache({.layers = model.cache_layers(), .limit_bytes = o.limit_mb << 20});
  const SearchedText searched(coder, prompt, stops_of(o, coder, o.stop));
  models::BeamOptions beams = *beams_of(o);
  beams.length = length_behind(model, std::ssize(prompt), {beams.length, o.length_by_user, o.whole_length});
  searched.end_at_stops(beams);
  print_best(o, searched, searched_ids(model, cache, prompt, beams), out);
}

std::int64_t vocabulary_of(const models::ModelFolder& folder) {
  if (const models::FamilyReading family = models::read_family(folder.config()); family.problems.empty())
    return family.config.vocabulary;
  return folder.language_model().config().vocabulary;
}

// Before the weights are read: what a template makes costs nothing to see.
void show_prompt(const GenerateOptions& o, const ChatPrompts& chat, const models::ModelFolder& folder,
                 std::ostream& out) {
  const std::string prompt = chat.of_text(o.prompt_given ? std::optional(o.prompt) : std::nullopt);
  if (!o.json) {
    out << prompt;
    return;
  }
  const std::unique_ptr<Coder> coder = read_coder(folder, vocabulary_of(folder));
  out << nlohmann::ordered_json{{"prompt", prompt}, {"ids", coder->added(prompt)}}.dump() << '\n';
}

void write_texts(const GenerateOptions& o, const models::ModelFolder& folder, std::ostream& out) {
  std::optional<ChatPrompts> chat;
  if (is_chat(o.chat) || (!o.input.empty() && text::ChatTemplates::are_in(o.model)))
    chat.emplace(o.model, o.chat);
  if (o.chat.show_prompt) return show_prompt(o, *chat, folder, out);
  models::LanguageModel model = folder.language_model(autograd::parse_weight_type(o.weights));
  const std::unique_ptr<Coder> coder = read_coder(folder, model.config().vocabulary);
  if (o.line && !coder->line_end())
    throw InvalidArgument("fovea generate", "--line", "a model whose lines are ids of their own", o.model);
  const ChatPrompts* templates = chat ? &*chat : nullptr;
  if (o.beams > 1 && !o.input.empty())
    search_many(o, model, *coder, templates, out);
  else if (o.beams > 1)
    write_best(o, model, *coder, templates, out);
  else if (o.input.empty())
    write_one(o, model, *coder, templates, out);
  else
    write_many(o, model, *coder, templates, out);
}

void refuse_own_translator(const models::ModelFolder& folder) {
  if (!models::is_own_translator(folder.config())) return;
  throw FileError(folder.path().string(), -1,
                  "is a translator of fovea train: use fovea translate. Expected a language model, or a "
                  "translator of another library");
}

}  // namespace

void generate(GenerateOptions o) {
  check(o);
  nn::use_threads(o.threads);
  const models::ModelFolder folder(o.model);
  refuse_own_translator(folder);
  folder.check_runs();
  const bool translator = models::family_kind(folder.config()) == models::FamilyKind::translator;
  const models::GenerationDefaults defaults = folder.generation();
  o.sample = sample_of(o, defaults, translator);
  if (!translator && !defaults.max_new) o.whole_length = defaults.max_length;
  if (translator) check_positions(o, models::read_family(folder.config()).config.positions);
  use_search(defaults, o);
  check_beams(o);
  Output output(o.output);
  std::ostream& out = output.stream();
  try {
    if (!o.prompt_ids.empty())
      generate_ids({.prompt = o.prompt_ids,
                    .sample = o.sample,
                    .length_by_user = o.length_by_user,
                    .whole_length = o.whole_length,
                    .limit_bytes = o.limit_mb << 20,
                    .json = o.json,
                    .weights = autograd::parse_weight_type(o.weights),
                    .beams = beams_of(o)},
                   folder, out);
    else if (translator)
      write_translation(o, folder, out);
    else
      write_texts(o, folder, out);
  } catch (const InvalidArgument& error) {
    if (!is_of_probabilities(error)) throw;
    throw of_probabilities(error, folder.path().string());
  }
  checked(out, o.output);
}

}  // namespace fovea::cli
