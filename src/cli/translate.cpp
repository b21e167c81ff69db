#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/text_windows.h"
#include "cli/texts.h"
#include "cli/translations.h"
#include "fovea/inspect/terminal.h"
#include "fovea/train/translator.h"

namespace fovea::cli {
namespace {

struct TranslateCommand {
  std::string model, input, target, output, alignment, reuse = "on", weights = "f32";
  int n_best = 1, threads = 0;
  std::size_t batch = 32, max_length = 1000;
  bool show = false, stats = false, json = false, shortlist = false, max_length_given = false;
  std::string task, source_language, target_language;
  std::optional<std::string> prefix;
  std::optional<int> beam;
  std::optional<double> normalize, length_factor, temperature;
  std::optional<std::uint64_t> seed;
};

// Of a model of fovea train.
int beam_of(const TranslateCommand& o) {
  return o.beam.value_or(5);
}

TextOutput output_of(const TranslateCommand& o) {
  return {.n_best = o.n_best, .alignment = o.alignment, .show = o.show, .json = o.json};
}

// Sixteen batches of similar length, so that little is padding and all cores have work.
TextWindows lines_of(const TranslateCommand& o, const std::string& path) {
  return TextWindows(path, {.most_lines = 16 * static_cast<std::int64_t>(o.batch)});
}

// Alignments of given translations, a line each, as `fovea score alignment` reads them.
void align_lines(const TranslateCommand& o, train::Translator& translator, Output& output,
                 const std::vector<std::string>& sources, const std::vector<std::string>& targets) {
  for (std::size_t i = 0; i < sources.size() && !stop_requested(); ++i) {
    const train::Translation t = translator.align(sources[i], targets[i]);
    if (!o.alignment.empty()) output.stream() << alignment_text(t, o.alignment == "hard") << '\n';
    if (o.show && t.weights.target_len > 0)
      output.stream() << inspect::draw_terminal({t.target_words, t.source_words, t.weights.weights}) << '\n';
    output.flush();
  }
  if (stop_requested()) throw Stopped{"stopped; what was written stands"};
}

// Two files are read whole, so that a line without its partner is found before anything is written.
std::vector<std::string> lines_to_align(const TranslateCommand& o, const std::string& path,
                                        const text::Tokenizer& tokenizer) {
  std::vector<std::string> lines = all_lines(path);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::size_t pieces = tokenizer.encode(lines[i]).size();
    if (pieces > o.max_length)
      throw FileError(name_of(path), static_cast<std::int64_t>(i) + 1,
                      fmt::format("{} pieces, more than --max-length {}", pieces, o.max_length), "line");
  }
  return lines;
}

void align(const TranslateCommand& o, train::Translator& translator) {
  if (input_path(o.input) == input_path(o.target) && input_path(o.target) == "/dev/stdin")
    throw InvalidArgument("fovea translate", "--target", "a file, because the source is standard input",
                          o.target);
  const std::vector<std::string> lines = lines_to_align(o, o.input, translator.tokenizer()),
                                 targets = lines_to_align(o, o.target, translator.tokenizer());
  if (lines.size() != targets.size())
    throw InvalidArgument("fovea translate", "--target",
                          std::to_string(lines.size()) + " lines, as many as the source",
                          std::to_string(targets.size()));
  Output output(o.output);
  align_lines(o, translator, output, lines, targets);
}

void refuse_output_that_is_read(const TranslateCommand& o) {
  for (const std::string* read : {&o.input, &o.target}) {
    if (!o.output.empty() && !read->empty() && same_file(o.output, *read))
      throw InvalidArgument("fovea translate", "--output", "a file other than those it reads", o.output);
  }
}

// A translator of another library. Its folder says what the command line does not.
void run_family(const TranslateCommand& o) {
  if (o.prefix) check_utf8("fovea translate", "--prefix", *o.prefix);
  for (const auto& [option, given] : {std::pair{"--target", !o.target.empty()},
                                      {"--stats", o.stats},
                                      {"--reuse", o.reuse == "off"},
                                      {"--max-length", o.max_length_given},
                                      {"--shortlist", o.shortlist}}) {
    if (given)
      throw InvalidArgument("fovea translate", option, "a model that fovea train wrote",
                            o.model + ", of another library");
  }
  const train::FamilyTranslator translator =
      read_family_translator("fovea translate", o.model,
                             {.task = o.task,
                              .prefix = o.prefix,
                              .source_language = o.source_language,
                              .target_language = o.target_language,
                              .beams = o.beam,
                              .length_penalty = o.normalize,
                              .length_factor = o.length_factor,
                              .temperature = o.temperature,
                              .seed = o.seed,
                              .n_best = o.n_best,
                              .batch = static_cast<std::int64_t>(o.batch),
                              .alignments = !o.alignment.empty() || o.show,
                              .weights = autograd::parse_weight_type(o.weights)});
  const std::int64_t beams = o.beam ? *o.beam : std::max<std::int64_t>(o.n_best, translator.defaults().beams);
  if (o.normalize && !o.json && beams == 1) refuse_length_penalty("fovea translate", "--normalize");
  TextWindows lines = lines_of(o, o.input);
  Output output(o.output);
  const auto translate = [&](const auto& window, const auto& done) { translator.translate(window, done); };
  print_translations("fovea translate", lines, translate, output_of(o), output);
}

void refuse_options_of_families(const TranslateCommand& o) {
  for (const auto& [option, given] : {std::pair{"--task", !o.task.empty()},
                                      {"--prefix", o.prefix.has_value()},
                                      {"--source-language", !o.source_language.empty()},
                                      {"--target-language", !o.target_language.empty()},
                                      {"--temperature", o.temperature.has_value()},
                                      {"--seed", o.seed.has_value()}}) {
    if (given)
      throw InvalidArgument("fovea translate", option, "a model of another library",
                            o.model + ", of fovea train");
  }
}

std::shared_ptr<const models::Shortlist> shortlist_of(const TranslateCommand& o, std::int64_t vocabulary) {
  if (!o.shortlist) return nullptr;
  try {
    return std::make_shared<const models::Shortlist>(
        models::Shortlist::load(models::shortlist_path(o.model), vocabulary));
  } catch (const FileError& error) {
    throw FileError(error.file(), error.offset(),
                    error.reason() + ". Expected the file that fovea shortlist --model " + o.model +
                        " writes, for --shortlist");
  }
}

// The error of a line that is too long, by the name of the option.
std::exception_ptr named(const std::exception_ptr& error) {
  if (!error) return error;
  try {
    std::rethrow_exception(error);
  } catch (const InvalidArgument& caught) {
    if (caught.argument() != "options.longest") return error;
    return std::make_exception_ptr(
        InvalidArgument("fovea translate", "--max-length", caught.expected(), caught.got()));
  } catch (const std::exception&) {
    return error;
  }
}

void translate(const TranslateCommand& o, train::Translator& translator) {
  const train::TranslateOptions options{
      .search = {.beam_size = beam_of(o),
                 .normalize = o.normalize.value_or(1.0),
                 .length_factor = o.length_factor.value_or(2.0),
                 .n_best = o.n_best,
                 .reuse = o.reuse == "off" ? models::Reuse::off : models::Reuse::on,
                 .alignments = !o.alignment.empty() || o.show,
                 .log_probabilities = o.json || o.n_best > 1,
                 .shortlist = shortlist_of(o, translator.model().vocabulary()),
                 .cancelled = [] { return stop_requested(); }},
      .batch = static_cast<std::int64_t>(o.batch),
      .longest = static_cast<std::int64_t>(o.max_length)};
  TextWindows lines = lines_of(o, o.input);
  Output output(o.output);
  models::DecodeStats stats;
  std::int64_t count = 0;
  const auto begin = std::chrono::steady_clock::now();
  const auto of_window = [&](const std::vector<std::string>& window, const train::TranslationDone& done) {
    models::DecodeStats part;
    translator.translate(
        window, options,
        [&](std::size_t n, const std::vector<train::Translation>& texts, const std::exception_ptr& error) {
          done(n, texts, named(error));
        },
        &part);
    stats += part;
    count += std::ssize(window);
  };
  const auto print_stats = [&] {
    if (!o.stats) return;
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    fmt::print(stderr,
               "{} lines in {:.3f} s; {} steps, {} tokens, {} score evaluations, {} bytes of state at most\n",
               count, taken.count(), stats.steps, stats.tokens, stats.score_evaluations,
               stats.peak_state_bytes);
  };
  try {
    print_translations("fovea translate", lines, of_window, output_of(o), output);
  } catch (const LinesFailed&) {
    print_stats();
    throw;
  }
  print_stats();
}

void run(const TranslateCommand& o) {
  catch_signals();
  nn::use_threads(o.threads);
  refuse_output_that_is_read(o);
  if (o.show && o.json)
    throw InvalidArgument("fovea translate", "--show", "no --json beside it, which has --alignment", "both");
  if (train::FamilyTranslator::is_in(o.model)) return run_family(o);
  refuse_options_of_families(o);
  train::Translator translator = train::Translator::load(o.model, autograd::parse_weight_type(o.weights));
  if ((!o.alignment.empty() || o.show) && !translator.model().attends())
    throw InvalidArgument("fovea translate", o.show ? "--show" : "--alignment", "a model with attention",
                          o.model + ", which has none");
  if (!o.target.empty() && o.alignment.empty() && !o.show)
    throw InvalidArgument("fovea translate", "--target", "--alignment or --show beside it", "neither");
  if (o.n_best > beam_of(o))
    throw InvalidArgument("fovea translate", "--n-best", "at most --beam-size " + std::to_string(beam_of(o)),
                          std::to_string(o.n_best));
  if (o.normalize && !o.json && beam_of(o) == 1) refuse_length_penalty("fovea translate", "--normalize");
  o.target.empty() ? translate(o, translator) : align(o, translator);
}

}  // namespace

void register_translate(Command app) {
  auto o = std::make_shared<TranslateCommand>();
  Command command = app.add_subcommand("translate", "Translate lines with a trained model, as they come");
  command.footer(std::string("An empty line has an empty translation. ") + bad_lines_help);
  command.add_option("--model", o->model, "folder that train wrote, or a translator of another library")
      .required();
  command.add_option("--input", o->input, "one sentence a line; default, and for -: standard input")
      .check(file_name());
  command
      .add_option(
          "--target", o->target,
          "translations given, line by line: they are aligned with the source, and nothing is translated")
      .check(file_name());
  command.add_option("--output", o->output, "default standard output").check(file_name());
  command
      .add_option("--beam-size", o->beam,
                  "1: greedy; default 5; of another library's model num_beams of its "
                  "generation_config.json, 1 if the file has none")
      .default_text("5")
      .check(in_range(1, 1000));
  command
      .add_option("--normalize", o->normalize,
                  "a score is log p / length^normalize; of another library's model length_penalty by default")
      .default_text("1")
      .check(finite())
      .check(non_negative());
  command
      .add_option("--max-length-factor", o->length_factor,
                  "longest output over the source's length; of another library's model max_new_tokens or "
                  "max_length by default, where the folder has one")
      .default_text("2")
      .check(finite())
      .check(in_range(0.01, 1000.0));
  command
      .add_option("--max-length", o->max_length,
                  "of a model of fovea train: pieces of a line at most; a longer line is not translated")
      .check(in_range(1, 100000));
  command
      .add_option("--n-best", o->n_best,
                  "from 2 on: so many translations of each line, best first, each on a line of its own, as "
                  "'number ||| text ||| score'; numbers of lines begin at 0, and a line that cannot be "
                  "translated has none")
      .check(in_range(1, 1000));
  command.add_option("--mini-batch", o->batch, "lines at once").check(in_range(1, 100000));
  command
      .add_option("--alignment", o->alignment,
                  "after ' ||| ': hard (Pharaoh source-target pairs) or soft (weights), over words")
      .check(one_of({"hard", "soft"}));
  command.add_flag("--show", o->show, "draw the alignment matrix below each translation");
  add_weights_option(command, o->weights);
  command.add_option("--reuse", o->reuse, "off computes every step anew, to measure what reuse gains")
      .check(one_of({"on", "off"}));
  command.add_flag("--shortlist", o->shortlist,
                   "choose among the likely translations of each line's pieces: needs the file that fovea "
                   "shortlist writes");
  command.add_flag("--stats", o->stats, "print seconds, steps, tokens, score evaluations and bytes");
  add_threads_option(command, o->threads);
  command.add_flag("--json", o->json, "a JSON object for each line: line, from 1, and texts, or error");
  command.add_option("--task", o->task,
                     "of another library's model: a task of its config.json, which names a prefix, such as "
                     "translation_en_to_de");
  command.add_option("--prefix", o->prefix, "of another library's model: what stands before each line");
  command.add_option(
      "--source-language", o->source_language,
      "of another library's model: as its tokenizer spells it, such as eng_Latn (NLLB) or en_XX "
      "(mBART); default: that of the tokenizer");
  command.add_option("--target-language", o->target_language,
                     "likewise; default: forced_bos_token_id of the folder");
  command
      .add_option("--temperature", o->temperature,
                  "of another library's model: draw at this temperature; 0: the best texts; default: that "
                  "of the folder if it has "
                  "do_sample, or 0")
      .check(finite())
      .check(non_negative());
  command.add_option("--seed", o->seed, "of another library's model: of the draws");
  command.callback([o, command] {
    for (const char* option : {"--n-best", "--beam-size", "--normalize", "--max-length-factor", "--reuse",
                               "--mini-batch", "--stats", "--shortlist", "--json"}) {
      if (!o->target.empty() && command.given(option))
        throw InvalidArgument("fovea translate", option, "nothing: with --target no text is translated",
                              "one");
    }
    o->max_length_given = command.given("--max-length");
    run(*o);
  });
}

}  // namespace fovea::cli
