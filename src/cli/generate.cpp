#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/coder.h"
#include "cli/commands.h"
#include "cli/generate_ids.h"
#include "cli/text_stream.h"
#include "core/crc32c.h"
#include "core/excerpt.h"
#include "files/json.h"
#include "fovea/models/batcher.h"
#include "fovea/models/model_folder.h"
#include "fovea/text/corpus.h"

namespace fovea::cli {
namespace {

using nlohmann::json;

// Copies one value.
using Set = std::function<void(const models::SampleOptions& from, models::SampleOptions& to)>;

struct Options {
  std::string model, prompt, prompt_ids, input, output, save_state, load_state, weights = "f32";
  models::SampleOptions sample;
  bool prompt_given = false, line = false, stats = false, json = false;
  // What of `sample` the command line says: the rest is as generation_config.json has it.
  std::vector<Set> given;
  std::int64_t limit_mb = 4096, step_tokens = 512;
  int threads = 0;
};

// A tokenizer without an id that begins each text gives none for an empty one.
InvalidArgument no_ids(const char* option, const std::string& prompt) {
  return {"fovea generate", option, "a text of at least one id", "no id of '" + excerpt(prompt) + "'"};
}

std::ostream& checked(std::ostream& out, const std::string& path) {
  out.flush();
  if (!out) throw FileError(path.empty() ? "standard output" : path, -1, "cannot be written");
  return out;
}

// -- one text, and its state in a file

// Of all weights: a state belongs to the model that made it.
std::string fingerprint(const models::LanguageModel& model, const std::string& weights) {
  std::uint32_t checksum = 0;
  for (const nn::Parameter& parameter : model.parameters().all())
    checksum = crc32c(parameter.value.raw(),
                      static_cast<std::uint64_t>(parameter.value.count()) * sizeof(float), checksum);
  return fmt::format("{:08x}{}", checksum, weights == "f32" ? "" : " " + weights);
}

// A text that is being written: what was read is in a sequence, and some ids are still to be read.
struct State {
  Sequence sequence;
  Ids unread;
  std::int64_t written = 0;
};

void save(const Options& o, const models::LanguageModel& model, const KvCache& cache, const State& state) {
  const json note = {
      {"model", fingerprint(model, o.weights)}, {"unread", state.unread}, {"written", state.written}};
  cache.save(state.sequence, o.save_state, note.dump());
}

State load(const Options& o, const models::LanguageModel& model, KvCache& cache) {
  const std::string note = KvCache::note_of(o.load_state);
  const auto refuse = [&](const std::string& problem) -> FileError {
    return FileError(o.load_state, -1, problem);
  };
  State state;
  std::string made_by;
  try {
    const json read = files::parse_json_object(o.load_state, note, 3);
    made_by = read.at("model").get<std::string>();
    state.unread = read.at("unread").get<Ids>();
    state.written = read.at("written").get<std::int64_t>();
  } catch (const json::exception&) {
    throw refuse("is no state of fovea generate: its note is '" + excerpt(note) + "'");
  }
  if (made_by != fingerprint(model, o.weights))
    throw refuse("is the state of another model: of weights " + excerpt(made_by) + ", and " + o.model +
                 " has " + fingerprint(model, o.weights));
  if (state.unread.empty() || state.written < 0) throw refuse("has no id to go on with");
  state.sequence = cache.load(o.load_state, {.note = note, .memory = CacheMemory::mapped});
  return state;
}

bool ends(const Options& o, const Coder& coder, std::int32_t id) {
  const std::vector<std::int32_t> stops = coder.stops();
  return (o.line && id == coder.line_end()) || std::find(stops.begin(), stops.end(), id) != stops.end();
}

void write_one(const Options& o, models::LanguageModel& model, const Coder& coder, std::ostream& out) {
  KvCache cache({.layers = model.cache_layers(), .limit_bytes = o.limit_mb << 20});
  State state;
  if (!o.load_state.empty())
    state = load(o, model, cache);
  else
    state.sequence = cache.start();
  const Ids added = o.load_state.empty() ? coder.begun(o.prompt) : coder.added(o.prompt);
  state.unread.insert(state.unread.end(), added.begin(), added.end());
  if (state.unread.empty()) throw no_ids("--prompt", o.prompt);
  Ids before = cache.ids(state.sequence);
  before.insert(before.end(), state.unread.begin(), state.unread.end());
  TextStream stream(coder, out, before);
  models::SampleOptions one = o.sample;
  one.length = 1;
  if (o.sample.length == 0) {
    const auto left = models::read_prompt(model, cache, state.sequence, state.unread);
    state.unread = Ids(left.begin(), left.end());
  }
  for (std::int64_t n = 0; n < o.sample.length && !stop_requested(); ++n) {
    one.first = state.written++;
    state.unread = models::generate(model, cache, state.sequence, state.unread, one).ids;
    stream.write(state.unread.front());
    if (ends(o, coder, state.unread.front())) break;
  }
  // Of a text that goes on later, an unfinished character is printed then.
  if (o.save_state.empty()) stream.write_text(TextStream::Rest::written);
  out << '\n';
  checked(out, o.output);
  if (!o.save_state.empty()) save(o, model, cache, state);
  if (o.stats)
    fmt::print(stderr, "{} tokens read, {} bytes of keys and values\n", cache.length(state.sequence),
               cache.bytes().used);
  if (stop_requested()) throw Stopped{"stopped; what was written stands"};
}

// -- many texts

struct Line {
  models::Request request;
  json id;
};

// A line of --input: {"prompt": ..., and any of "id", "length", "temperature", "top_k", "top_p", "seed"}.
Line parsed(const Options& o, const Coder& coder, const std::string& line, std::int64_t number) {
  const auto refuse = [&](const std::string& problem) { return FileError(o.input, number, problem, "line"); };
  json read;
  try {
    read = files::parse_json_object(o.input, line, 4);
  } catch (const FileError& error) {
    throw refuse(std::string("is no JSON object: ") + error.what());
  }
  Line result{{.sample = o.sample}, nullptr};
  models::SampleOptions& sample = result.request.sample;
  std::optional<std::string> prompt;
  for (const auto& [key, value] : read.items()) {
    try {
      if (key == "prompt")
        prompt = value.get<std::string>();
      else if (key == "id")
        result.id = value;
      else if (key == "length" && value.is_number_integer())
        sample.length = value.get<std::int64_t>();
      else if (key == "temperature")
        sample.temperature = value.get<double>();
      else if (key == "top_k" && value.is_number_integer())
        sample.top_k = value.get<std::int64_t>();
      else if (key == "top_p")
        sample.top_p = value.get<double>();
      else if (key == "seed" && value.is_number_unsigned())
        sample.seed = value.get<std::uint64_t>();
      else
        throw refuse("\"" + excerpt(key) +
                     "\": expected one of prompt, id, length, temperature, top_k, top_p "
                     "and seed, with a value of its kind, got " +
                     excerpt(value.dump()));
    } catch (const json::exception&) {
      throw refuse("\"" + excerpt(key) + "\": expected a " + (key == "prompt" ? "text" : "number") +
                   ", got " + excerpt(value.dump()));
    }
  }
  if (!prompt) throw refuse("expected a \"prompt\", got none");
  result.request.prompt = coder.begun(*prompt);
  if (result.request.prompt.empty())
    throw refuse("\"prompt\": expected a text of at least one id, got no id of '" + excerpt(*prompt) + "'");
  result.request.stop = coder.stops();
  if (o.line && coder.line_end()) result.request.stop.push_back(*coder.line_end());
  return result;
}

std::string answer_text(const Coder& coder, const json& id, const Ids& prompt, const models::Answer& answer) {
  static constexpr const char* names[] = {"length", "stop", "cancelled", "failed"};
  // What the prompt and the answer spell together, less the prompt.
  Ids all = prompt;
  all.insert(all.end(), answer.generated.ids.begin(), answer.generated.ids.end());
  const std::string before = coder.text(prompt), whole = coder.text(all);
  double log_probability = 0.0;
  for (const double of_token : answer.generated.log_probabilities) log_probability += of_token;
  json line = {{"id", id},
               {"text", whole.size() > before.size() ? whole.substr(before.size()) : std::string()},
               {"finish", names[static_cast<std::size_t>(answer.finish)]},
               {"tokens", answer.generated.ids.size()},
               {"log_probability", log_probability}};
  if (answer.error) {
    try {
      std::rethrow_exception(answer.error);
    } catch (const std::exception& error) {
      line["error"] = error.what();
    }
  }
  return line.dump(-1, ' ', false, json::error_handler_t::replace);
}

// Answers come in the order of the lines, each as soon as it and all before it are there.
void write_many(const Options& o, models::LanguageModel& model, const Coder& coder, std::ostream& out) {
  models::Batcher batcher(model, {.limit_bytes = o.limit_mb << 20,
                                  .prefix_bytes = (o.limit_mb << 20) / 4,
                                  .step_tokens = o.step_tokens});
  const std::vector<std::string> lines = text::read_lines(o.input);
  std::vector<std::optional<std::string>> answers(lines.size());
  std::size_t printed = 0;
  for (std::size_t n = 0; n < lines.size(); ++n) {
    const auto number = static_cast<std::int64_t>(n) + 1;
    Line line = parsed(o, coder, lines[n], number);
    line.request.done = [&, n, id = line.id.is_null() ? json(number) : line.id,
                         prompt = line.request.prompt](const models::Answer& answer) {
      answers[n] = answer_text(coder, id, prompt, answer);
    };
    try {
      batcher.submit(std::move(line.request));
    } catch (const Error& error) {
      throw FileError(o.input, number, error.what(), "line");
    }
  }
  while (!stop_requested() && batcher.step()) {
    for (; printed < answers.size() && answers[printed]; ++printed) out << *answers[printed] << std::endl;
  }
  for (; printed < answers.size() && answers[printed]; ++printed) out << *answers[printed] << '\n';
  checked(out, o.output);
  const models::Batcher::Stats stats = batcher.stats();
  if (o.stats)
    fmt::print(stderr,
               "{} steps, {} tokens read, {} of prompts shared, {} written, {} texts and {} bytes at most\n",
               stats.steps, stats.read, stats.shared, stats.written, stats.most_texts, stats.most_bytes);
  if (printed < answers.size())
    throw Stopped{fmt::format("stopped; {} of {} answers are written", printed, answers.size())};
}

void check(const Options& o) {
  const auto refuse = [](const char* option, const std::string& expected, const std::string& got) {
    throw InvalidArgument("fovea generate", option, expected, got);
  };
  if (!o.prompt_ids.empty()) {
    for (const auto& [option, given] : {std::pair{"--prompt", o.prompt_given},
                                        {"--input", !o.input.empty()},
                                        {"--save-state", !o.save_state.empty()},
                                        {"--load-state", !o.load_state.empty()},
                                        {"--line", o.line}}) {
      if (given) refuse(option, "nothing beside --prompt-ids", "a value");
    }
    return;
  }
  if (o.json) refuse("--json", "--prompt-ids beside it", "none");
  if (!o.input.empty() && o.prompt_given) refuse("--prompt", "nothing beside --input", "a prompt");
  for (const auto& [option, value] :
       {std::pair{"--save-state", o.save_state}, std::pair{"--load-state", o.load_state}}) {
    if (!o.input.empty() && !value.empty()) refuse(option, "nothing beside --input", value);
  }
  if (o.input.empty() && !o.prompt_given && o.load_state.empty())
    refuse("--prompt", "a prompt, --input or --load-state", "none");
  for (const std::string* read : {&o.input, &o.load_state}) {
    if (!o.output.empty() && !read->empty() && same_file(o.output, *read))
      refuse("--output", "a file other than those it reads", o.output);
  }
  if (!o.output.empty() && !o.save_state.empty() && same_file(o.output, o.save_state))
    refuse("--output", "a file other than --save-state", o.output);
}

// A translator reads the prompt and writes another text.
void write_translation(const Options& o, const models::ModelFolder& folder, std::ostream& out) {
  for (const auto& [option, given] : {std::pair{"--input", !o.input.empty()},
                                      {"--save-state", !o.save_state.empty()},
                                      {"--load-state", !o.load_state.empty()}}) {
    if (given)
      throw InvalidArgument("fovea generate", option, "nothing, because the model is a translator",
                            "a value");
  }
  const auto model = folder.sequence_to_sequence();
  model->parameters().pack(autograd::parse_weight_type(o.weights));
  const std::unique_ptr<Coder> coder = read_coder(folder, model->vocabulary());
  GenerateIds options{.sample = o.sample};
  const Ids ids = coder->begun(o.prompt);
  if (ids.empty()) throw no_ids("--prompt", o.prompt);
  out << coder->text(written_ids(options, folder, *model, ids).ids) << '\n';
}

// The folder's own way to choose tokens, changed by what the command line says.
models::SampleOptions sample_of(const Options& o, const models::ModelFolder& folder) {
  const models::GenerationDefaults defaults = folder.generation();
  if (!defaults.sample) return o.sample;
  if (defaults.beams > 1) fmt::print(stderr, "fovea: num_beams of generation_config.json is not applied\n");
  models::SampleOptions sample = *defaults.sample;
  for (const Set& set : o.given) set(o.sample, sample);
  return sample;
}

void run(Options o) {
  check(o);
  nn::use_openmp(o.threads);
  const models::ModelFolder folder(o.model);
  o.sample = sample_of(o, folder);
  const bool translator = models::family_kind(folder.config()) == models::FamilyKind::translator;
  std::optional<models::LanguageModel> model;
  std::unique_ptr<Coder> coder;
  if (o.prompt_ids.empty() && !translator) {
    model.emplace(folder.language_model());
    model->parameters().pack(autograd::parse_weight_type(o.weights));
    coder = read_coder(folder, model->config().vocabulary);
    if (o.line && !coder->line_end())
      throw InvalidArgument("fovea generate", "--line", "a model whose lines are ids of their own", o.model);
  }
  std::ofstream file;
  if (!o.output.empty()) {
    file.open(o.output);
    if (!file) throw FileError(o.output, -1, "cannot be opened for writing");
  }
  std::ostream& out = o.output.empty() ? std::cout : file;
  if (!o.prompt_ids.empty())
    generate_ids({o.prompt_ids, o.sample, o.limit_mb << 20, o.json, autograd::parse_weight_type(o.weights)},
                 folder, out);
  else if (translator)
    write_translation(o, folder, out);
  else if (o.input.empty())
    write_one(o, *model, *coder, out);
  else
    write_many(o, *model, *coder, out);
  checked(out, o.output);
}

}  // namespace

void register_generate(CLI::App& app) {
  auto o = std::make_shared<Options>();
  auto options = std::make_shared<std::vector<std::pair<CLI::Option*, Set>>>();
  CLI::App* command = app.add_subcommand("generate", "Continue texts with a language model");
  command->add_option("--model", o->model, "folder of a model and its tokenizer, of ours or tokenizer.json")
      ->required();
  CLI::Option* prompt =
      command->add_option("--prompt,prompt", o->prompt, "the text to continue, or to translate");
  command->add_option("--prompt-ids", o->prompt_ids,
                      "token ids to continue, such as '5 6 7': ids are printed, and no tokenizer is needed");
  command->add_option(
      "--input", o->input,
      "many texts: a JSON object a line, {\"prompt\": ...} and any of id, length, temperature, "
      "top_k, top_p, seed");
  command->add_option("--output", o->output, "default standard output");
  const auto sample_option = [&](const char* names, auto models::SampleOptions::*member, const char* help) {
    CLI::Option* option = command->add_option(names, o->sample.*member, help);
    options->emplace_back(option, [member](const auto& from, auto& to) { to.*member = from.*member; });
    return option;
  };
  // What chooses among tokens asks for a draw, also of a folder that writes greedily by itself.
  const auto draw_option = [&](const char* names, auto models::SampleOptions::*member, const char* help) {
    CLI::Option* option = sample_option(names, member, help);
    options->emplace_back(option, [](const auto& from, auto& to) {
      if (to.temperature == 0.0) to.temperature = from.temperature;
    });
    return option;
  };
  using Sample = models::SampleOptions;
  sample_option("--length,--max-new-tokens", &Sample::length, "tokens to write at most")
      ->check(CLI::Range(0, 1 << 30));
  sample_option("--temperature", &Sample::temperature, "0: always the most probable token")
      ->check(finite())
      ->check(CLI::NonNegativeNumber);
  draw_option("--top-k", &Sample::top_k, "0: all")->check(CLI::NonNegativeNumber);
  draw_option("--top-p", &Sample::top_p, "in (0, 1]")->check(finite())->check(CLI::Range(1e-9, 1.0));
  draw_option("--min-p", &Sample::min_p, "least probability, relative to the largest; 0: none")
      ->check(finite())
      ->check(CLI::Range(0.0, 1.0));
  sample_option("--repetition-penalty", &Sample::repetition_penalty,
                "divides the logits of tokens that stand in the text; 1: none")
      ->check(finite())
      ->check(CLI::PositiveNumber);
  draw_option("--seed", &Sample::seed, "of the random numbers, one for each token");
  CLI::Option* greedy = command->add_flag_callback(
      "--greedy", [o] { o->sample.temperature = 0.0; }, "the same as --temperature 0");
  options->emplace_back(greedy, [](const auto& from, auto& to) { to.temperature = from.temperature; });
  command->add_flag("--json", o->json, "with --prompt-ids: print ids and their log-probabilities as JSON");
  command->add_flag("--line", o->line, "with a model of ours: stop at the end of the paragraph");
  command->add_option("--save-state", o->save_state, "file for what was read, to go on later");
  command->add_option("--load-state", o->load_state, "go on with a text; it has the bits of one run");
  command->add_option("--limit-mb", o->limit_mb, "of keys and values")->check(CLI::Range(1, 1 << 20));
  command->add_option("--step-tokens", o->step_tokens, "read at once by --input")
      ->check(CLI::Range(64, 1 << 20));
  command->add_flag("--stats", o->stats, "print tokens and bytes");
  add_weights_option(*command, o->weights);
  command->add_option("--cpu-threads", o->threads, "0: all")->check(CLI::Range(0, 1024));
  command->callback([o, prompt, options] {
    o->prompt_given = prompt->count() > 0;
    for (const auto& [option, set] : *options) {
      if (option->count() > 0) o->given.push_back(set);
    }
    catch_signals();
    run(*o);
  });
}

}  // namespace fovea::cli
