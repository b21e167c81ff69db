// `fovea summarize`: shorter texts by translators of other libraries.
#include <algorithm>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/text_windows.h"
#include "cli/texts.h"
#include "cli/translations.h"
#include "fovea/core/error.h"
#include "fovea/nn/module.h"

namespace fovea::cli {
namespace {

struct SummarizeCommand {
  TextOptions text;
  train::FamilyTranslatorOptions family;
  bool truncate = false;
  std::string weights = "f32";
};

void run(const SummarizeCommand& o) {
  const std::string command = "fovea summarize";
  if (o.family.min_new && o.family.max_new && *o.family.min_new > *o.family.max_new)
    throw InvalidArgument(command, "--min-new-tokens",
                          "at most --max-new-tokens " + std::to_string(*o.family.max_new),
                          std::to_string(*o.family.min_new));
  if (o.family.prefix) check_utf8(command, "--prefix", *o.family.prefix);
  const models::ModelFolder folder(o.text.model);
  folder.check_runs();
  if (!train::FamilyTranslator::is_in(o.text.model))
    throw FileError(o.text.model, -1,
                    "is no translator with its tokenizer: expected a folder of T5, BART, mBART or Marian");
  train::FamilyTranslatorOptions family = o.family;
  family.weights = autograd::parse_weight_type(o.weights);
  if (o.truncate) family.long_texts = train::LongTexts::cut;
  if (family.task.empty()) {
    const std::vector<std::string> tasks = folder.tasks();
    if (std::ranges::find(tasks, "summarization") != tasks.end()) family.task = "summarization";
  }
  const train::FamilyTranslator translator = read_family_translator(command, o.text.model, family);
  const std::int64_t beams = family.beams.value_or(std::max(family.n_best, translator.defaults().beams));
  if (family.length_penalty && !o.text.json && beams == 1) refuse_length_penalty(command, "--length-penalty");
  TextWindows texts = text_windows_of(o.text, command);
  Output output("");
  print_translations(
      command, texts, [&](const auto& lines, const auto& done) { translator.translate(lines, done); },
      {.n_best = family.n_best, .json = o.text.json}, output);
}

}  // namespace

void register_summarize(Command app) {
  auto o = std::make_shared<SummarizeCommand>();
  Command command = app.add_subcommand("summarize", "Write shorter texts with T5, BART, mBART or Marian");
  command.footer(std::string("An empty line has an empty summary. ") + bad_lines_help);
  train::FamilyTranslatorOptions& family = o->family;
  family.batch = 8;  // texts are longer than sentences
  add_text_options(command, o->text, "texts to shorten");
  command.add_flag("--truncate", o->truncate, "cut texts that are too long, which are refused otherwise");
  command.add_option("--task", family.task,
                     "of config.json's task_specific_params; default: summarization, where it is there");
  command.add_option("--prefix", family.prefix, "what stands before each text; default: that of the task");
  command
      .add_option("--beam-size", family.beams,
                  "1: greedy; default: num_beams of the folder, 1 if it has none")
      .check(in_range(1, 1000));
  command.add_option("--length-penalty", family.length_penalty, "a score is log p / length^penalty")
      .check(finite());
  command.add_option("--max-new-tokens", family.max_new, "tokens to write at most")
      .check(in_range(1, 1 << 20));
  command.add_option("--min-new-tokens", family.min_new, "tokens to write at least")
      .check(in_range(0, 1 << 20));
  command
      .add_option("--no-repeat-ngram-size", family.no_repeat_ngram,
                  "so many tokens in a row stand only once; 0: off")
      .check(in_range(0, 1 << 20));
  command
      .add_option("--temperature", family.temperature,
                  "draw at this temperature; 0: the best texts; default: that of the folder if it has "
                  "do_sample, or 0")
      .check(finite())
      .check(non_negative());
  command.add_option("--seed", family.seed, "of the draws");
  command
      .add_option(
          "--n-best", family.n_best,
          "from 2 on: so many summaries of each text, as 'number ||| text ||| score', with numbers of texts "
          "from 0")
      .check(in_range(1, 1000));
  command.add_option("--mini-batch", family.batch, "texts at once").check(in_range(1, 100000));
  add_weights_option(command, o->weights);
  command.callback([o] {
    catch_signals();
    nn::use_threads(o->text.threads);
    run(*o);
  });
}

}  // namespace fovea::cli
