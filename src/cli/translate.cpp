#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <iostream>

#include "cli/commands.h"
#include "cli/translate_family.h"
#include "fovea/inspect/terminal.h"
#include "fovea/text/corpus.h"
#include "fovea/train/translator.h"

namespace fovea::cli {
namespace {

struct Options {
  std::string model, input, target, output, alignment, reuse = "on", weights = "f32";
  int beam = 5, n_best = 1, threads = 0;
  double normalize = 1.0, length_factor = 2.0;
  std::size_t batch = 32, max_length = 1000;
  bool show = false, stats = false, beam_given = false;
};

// Standard input is checked like a file: a line that is no text is named, not translated.
std::vector<std::string> input_lines(const Options& o, const std::string& path,
                                     const text::Tokenizer& tokenizer) {
  const std::vector<std::string> lines = text::read_lines(path.empty() ? "/dev/stdin" : path);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::size_t pieces = tokenizer.encode(lines[i]).size();
    if (pieces > o.max_length) {
      throw FileError(path.empty() ? "standard input" : path, static_cast<std::int64_t>(i) + 1,
                      fmt::format("{} pieces, more than --max-length {}", pieces, o.max_length), "line");
    }
  }
  return lines;
}

// Soft: one target word after another; source weights with commas, </s> last, as Marian prints them.
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

// Alignments of given translations, a line each, as `fovea score alignment` reads them.
void align_lines(const Options& o, train::Translator& translator, const std::vector<std::string>& sources,
                 const std::vector<std::string>& targets, std::ostream& out) {
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const train::Translation t = translator.align(sources[i], targets[i]);
    if (!o.alignment.empty()) out << alignment_text(t, o.alignment == "hard") << '\n';
    if (o.show && t.weights.target_len > 0)
      out << inspect::draw_terminal({t.target_words, t.source_words, t.weights.weights}) << '\n';
  }
}

void write_translations(const Options& o, const std::vector<std::vector<train::Translation>>& translations,
                        std::ostream& out) {
  for (std::size_t i = 0; i < translations.size(); ++i) {
    for (const train::Translation& t : translations[i]) {
      out << (o.n_best > 1 ? fmt::format("{} ||| {} ||| {:.4f}", i, t.text, t.score) : t.text);
      if (!o.alignment.empty()) out << " ||| " << alignment_text(t, o.alignment == "hard");
      out << '\n';
      if (o.show && t.weights.target_len > 0)
        out << inspect::draw_terminal({t.target_words, t.source_words, t.weights.weights}) << '\n';
    }
  }
}

// A translator of another library. Its folder says how many beams it is made for.
void run_family(Options o) {
  const models::GenerationDefaults defaults = models::ModelFolder(o.model).generation();
  if (!o.beam_given && defaults.sample)
    o.beam = std::max(static_cast<int>(std::min<std::int64_t>(defaults.beams, 1000)), o.n_best);
  if (defaults.sample && defaults.sample->repetition_penalty != 1.0)
    fmt::print(stderr, "fovea: repetition_penalty of generation_config.json is not applied\n");
  for (const auto& [option, given] : {std::pair{"--target", !o.target.empty()}, {"--stats", o.stats}}) {
    if (given)
      throw InvalidArgument("fovea translate", option, "a model that fovea train wrote",
                            o.model + ", of another library");
  }
  if (o.n_best > o.beam)
    throw InvalidArgument("fovea translate", "--n-best", "at most --beam-size " + std::to_string(o.beam),
                          std::to_string(o.n_best));
  if (!o.output.empty() && !o.input.empty() && same_file(o.output, o.input))
    throw InvalidArgument("fovea translate", "--output", "a file other than those it reads", o.output);
  const std::vector<std::string> lines = text::read_lines(o.input.empty() ? "/dev/stdin" : o.input);
  const auto translations =
      translate_family(o.model, lines,
                       {.beam_size = o.beam,
                        .normalize = o.normalize,
                        .length_factor = o.length_factor,
                        .n_best = o.n_best,
                        .reuse = o.reuse == "off" ? models::Reuse::off : models::Reuse::on},
                       autograd::parse_weight_type(o.weights));
  std::ofstream file;
  if (!o.output.empty()) {
    file.open(o.output);
    if (!file) throw FileError(o.output, -1, "cannot be opened for writing");
  }
  std::ostream& out = o.output.empty() ? std::cout : file;
  write_translations(o, translations, out);
  out.flush();
  if (!out) throw FileError(o.output.empty() ? "standard output" : o.output, -1, "cannot be written");
}

void run(const Options& o) {
  nn::use_threads(o.threads);
  if (is_family_translator(o.model)) return run_family(o);
  train::Translator translator = train::Translator::load(o.model, autograd::parse_weight_type(o.weights));
  if ((!o.alignment.empty() || o.show) && !translator.model().attends()) {
    throw InvalidArgument("fovea translate", "--alignment", "a model with attention", "one without");
  }
  if (!o.target.empty() && o.alignment.empty() && !o.show)
    throw InvalidArgument("fovea translate", "--target", "--alignment or --show beside it", "neither");
  if (o.n_best > o.beam)
    throw InvalidArgument("fovea translate", "--n-best", "at most --beam-size " + std::to_string(o.beam),
                          std::to_string(o.n_best));
  for (const std::string* read : {&o.input, &o.target}) {
    if (!o.output.empty() && !read->empty() && same_file(o.output, *read))
      throw InvalidArgument("fovea translate", "--output", "a file other than those it reads", o.output);
  }
  // All is read before the output is opened, which empties it.
  const std::vector<std::string> lines = input_lines(o, o.input, translator.tokenizer());
  const std::vector<std::string> targets =
      o.target.empty() ? std::vector<std::string>() : input_lines(o, o.target, translator.tokenizer());
  if (!o.target.empty() && lines.size() != targets.size())
    throw InvalidArgument("fovea translate", "--target",
                          std::to_string(lines.size()) + " lines, as many as the source",
                          std::to_string(targets.size()));
  std::ofstream file;
  if (!o.output.empty()) {
    file.open(o.output);
    if (!file) throw FileError(o.output, -1, "cannot be opened for writing");
  }
  std::ostream& out = o.output.empty() ? std::cout : file;
  if (!o.target.empty()) {
    align_lines(o, translator, lines, targets, out);
    out.flush();
    if (!out) throw FileError(o.output.empty() ? "standard output" : o.output, -1, "cannot be written");
    return;
  }
  models::DecodeStats stats;
  const auto begin = std::chrono::steady_clock::now();
  const auto translations =
      translator.translate(lines,
                           {.beam_size = o.beam,
                            .normalize = o.normalize,
                            .length_factor = o.length_factor,
                            .n_best = o.n_best,
                            .reuse = o.reuse == "off" ? models::Reuse::off : models::Reuse::on},
                           o.batch, &stats);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  write_translations(o, translations, out);
  out.flush();
  if (!out) throw FileError(o.output.empty() ? "standard output" : o.output, -1, "cannot be written");
  if (o.stats) {
    fmt::print(stderr,
               "{} lines in {:.3f} s; {} steps, {} tokens, {} score evaluations, {} bytes of state at most\n",
               lines.size(), taken.count(), stats.steps, stats.tokens, stats.score_evaluations,
               stats.peak_state_bytes);
  }
}

}  // namespace

void register_translate(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("translate", "Translate lines with a trained model");
  command->add_option("--model", o->model, "folder that train wrote, or a translator of another library")
      ->required();
  command->add_option("--input", o->input, "one sentence a line; default standard input");
  command->add_option(
      "--target", o->target,
      "translations given, line by line: they are aligned with the source, and nothing is translated");
  command->add_option("--output", o->output, "default standard output");
  command
      ->add_option("--beam-size", o->beam,
                   "1: greedy; default 5; of another library's model num_beams of its "
                   "generation_config.json, 1 if the "
                   "file has none")
      ->check(CLI::Range(1, 1000));
  command->add_option("--normalize", o->normalize, "a score is log p / length^normalize")
      ->check(finite())
      ->check(CLI::NonNegativeNumber);
  command->add_option("--max-length-factor", o->length_factor, "longest output over the source's length")
      ->check(finite())
      ->check(CLI::Range(0.01, 1000.0));
  command->add_option("--max-length", o->max_length, "pieces of a line at most; a longer one is refused")
      ->check(CLI::Range(1, 100000));
  command->add_option("--n-best", o->n_best, "translations a line, as 'line ||| text ||| score'")
      ->check(CLI::Range(1, 1000));
  command->add_option("--mini-batch", o->batch, "lines at once")->check(CLI::Range(1, 100000));
  command
      ->add_option("--alignment", o->alignment,
                   "after ' ||| ': hard (Pharaoh source-target pairs) or soft (weights), over words")
      ->check(CLI::IsMember({"hard", "soft"}));
  command->add_flag("--show", o->show, "draw the alignment matrix below each translation");
  add_weights_option(*command, o->weights);
  command->add_option("--reuse", o->reuse, "off computes every step anew, to measure what reuse gains")
      ->check(CLI::IsMember({"on", "off"}));
  command->add_flag("--stats", o->stats, "print seconds, steps, tokens, score evaluations and bytes");
  command->add_option("--cpu-threads", o->threads, "0: all")->check(CLI::Range(0, 1024));
  command->callback([o, command] {
    o->beam_given = command->get_option("--beam-size")->count() > 0;
    for (const char* option : {"--n-best", "--beam-size", "--normalize", "--max-length-factor", "--reuse",
                               "--mini-batch", "--stats"}) {
      if (!o->target.empty() && command->get_option_no_throw(option) &&
          command->get_option(option)->count() > 0)
        throw InvalidArgument("fovea translate", option, "nothing: with --target no text is translated",
                              "one");
    }
    run(*o);
  });
}

}  // namespace fovea::cli
