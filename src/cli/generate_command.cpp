// The options of `fovea generate`.
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/generate_options.h"

namespace fovea::cli {

void register_generate(Command app) {
  auto o = std::make_shared<GenerateOptions>();
  auto options = std::make_shared<std::vector<std::pair<Option, Set>>>();
  Command command = app.add_subcommand("generate", "Continue texts with a language model, or translate them");
  command.add_option("--model", o->model, "folder of a model and its tokenizer, of ours or tokenizer.json")
      .required();
  Option prompt = command.add_option("--prompt,prompt", o->prompt, "the text to continue, or to translate");
  command.add_option("--prompt-ids", o->prompt_ids,
                     "token ids to continue, such as '5 6 7': ids are printed, and no tokenizer is needed");
  command
      .add_option(
          "--input", o->input,
          "many texts, or - for standard input: a JSON object a line, {\"prompt\": ...} or {\"messages\": "
          "...} and any of tools, id, length, temperature, top_k, top_p, min_p, repetition_penalty, seed, "
          "stop")
      .check(file_name());
  add_chat_options(command, o->chat);
  command.add_option("--stop", o->stop, "a text before which the answer ends; may be given several times")
      .one_argument_each();
  command.add_option("--output", o->output, "default standard output").check(file_name());
  const auto sample_option = [&](const char* names, auto models::SampleOptions::*member, const char* help) {
    Option option = command.add_option(names, o->sample.*member, help);
    options->emplace_back(option, [member](const auto& from, auto& to) { to.*member = from.*member; });
    return option;
  };
  // What chooses among tokens asks for a draw, also of a folder that writes greedily by itself.
  const auto draw_option = [&](const char* names, auto models::SampleOptions::*member, const char* help) {
    Option option = sample_option(names, member, help);
    options->emplace_back(option, [](const auto& from, auto& to) {
      if (to.temperature == 0.0) to.temperature = from.temperature;
    });
    return option;
  };
  using Sample = models::SampleOptions;
  sample_option(
      "--length,--max-new-tokens", &Sample::length,
      "tokens to write at most; default: max_new_tokens or max_length of generation_config.json, or 100")
      .default_text("")
      .check(in_range(0, 1 << 30));
  sample_option(
      "--temperature", &Sample::temperature,
      "0: always the most probable token; default: that of generation_config.json, 0 where it says no "
      "do_sample, and 1 without the file")
      .default_text("")
      .check(finite())
      .check(non_negative());
  draw_option("--top-k", &Sample::top_k,
              "0: all; default: that of generation_config.json, 50 where it says do_sample alone, else 0")
      .default_text("")
      .check(non_negative());
  draw_option("--top-p", &Sample::top_p, "in (0, 1]; default: that of generation_config.json, or 1")
      .default_text("")
      .check(finite())
      .check(in_range(1e-9, 1.0));
  draw_option(
      "--min-p", &Sample::min_p,
      "least probability, relative to the largest; 0: none; default: that of generation_config.json, or 0")
      .default_text("")
      .check(finite())
      .check(in_range(0.0, 1.0));
  sample_option("--repetition-penalty", &Sample::repetition_penalty,
                "divides the logits of tokens that stand in the text; 1: none; default: that of "
                "generation_config.json, or 1")
      .default_text("")
      .check(finite())
      .check(positive());
  command
      .add_option("--beam-size", o->beams,
                  "texts that are written side by side, of which the best is printed; default: num_beams of "
                  "generation_config.json, or 1")
      .option_text("INT")
      .check(in_range(1, 1024));
  command
      .add_option("--length-penalty", o->length_penalty,
                  "with --beam-size: the score of n tokens is log p / n^penalty")
      .check(finite());
  auto ending = std::make_shared<std::string>("off");
  command
      .add_option(
          "--early-stopping", *ending,
          "with --beam-size: end when that many texts have ended (on), or when no better one is likely "
          "(off) or possible (never)")
      .option_text("off, on or never")
      .check(one_of(std::vector<std::string>{"off", "on", "never"}));
  draw_option("--seed", &Sample::seed, "of the random numbers, one for each token");
  auto is_greedy = std::make_shared<bool>(false);
  Option greedy = command.add_flag("--greedy", *is_greedy, "the same as --temperature 0");
  options->emplace_back(greedy, [](const auto& from, auto& to) { to.temperature = from.temperature; });
  command.add_flag("--json", o->json,
                   "print one JSON object; of --prompt-ids ids and their log-probabilities");
  command.add_flag("--line", o->line, "with a model of ours: stop at the end of the paragraph");
  command.add_option("--save-state", o->save_state, "file for what was read, to go on later")
      .check(file_name());
  command.add_option("--load-state", o->load_state, "go on with a text; it has the bits of one run")
      .check(file_name());
  command.add_option("--limit-mb", o->limit_mb, "of keys and values").check(in_range(1, 1 << 20));
  command.add_option("--step-tokens", o->step_tokens, "read at once by --input").check(in_range(64, 1 << 20));
  command.add_flag("--stats", o->stats, "print tokens and bytes");
  add_weights_option(command, o->weights);
  add_threads_option(command, o->threads);
  command.callback([o, prompt, options, command, ending, is_greedy] {
    using Ending = models::EarlyStopping;
    o->early_stopping = *ending == "on" ? Ending::on : *ending == "never" ? Ending::never : Ending::off;
    const auto given = [&](const char* option) { return command.given(option); };
    // Whether an option asks for a draw, as --temperature 0 does not.
    const auto draws = [&](const char* option) {
      return given(option) && !(std::string_view(option) == "--temperature" && o->sample.temperature == 0.0);
    };
    for (const char* option : {"--temperature", "--top-k", "--top-p", "--min-p"}) {
      if (*is_greedy && draws(option))
        throw InvalidArgument("fovea generate", "--greedy", std::string("no ") + option + " beside it",
                              "both");
    }
    if (*is_greedy) o->sample.temperature = 0.0;
    for (const char* option : {"--temperature", "--top-k", "--top-p", "--min-p", "--seed"}) {
      if (draws(option)) o->draws.emplace_back(option);
    }
    for (const char* option : {"--length-penalty", "--early-stopping"}) {
      if (given(option)) o->searches.emplace_back(option);
    }
    o->prompt_given = prompt.given();
    o->length_by_user = given("--length");
    for (const auto& [option, set] : *options) {
      if (option.given()) o->given.push_back(set);
    }
    catch_signals();
    generate(*o);
  });
}

}  // namespace fovea::cli
