#include "cli/score_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/coder.h"
#include "cli/commands.h"
#include "cli/texts.h"
#include "fovea/core/error.h"
#include "fovea/models/model_folder.h"
#include "fovea/models/weight_errors.h"
#include "fovea/train/language.h"
#include "text/utf8.h"

namespace fovea::cli {
namespace {

struct ScoreTextCommand {
  TextOptions text;
  std::string ids, weights = "f32", compare;
  std::int64_t window = 0;
};

// Perplexity (Jelinek et al. 1977): e to the mean of -log p(token | those before it).
double perplexity(double log_probability, std::size_t tokens) {
  return std::exp(-log_probability / static_cast<double>(tokens));
}

struct Scored {
  std::string text;
  Ids ids;
};

std::vector<Scored> texts_and_ids(const ScoreTextCommand& o, const models::ModelFolder& folder,
                                  std::int64_t vocabulary) {
  std::vector<Scored> scored;
  if (!o.ids.empty()) {
    std::vector<Ids> lines = read_ids(o.ids);
    check_vocabulary(name_of(o.ids), lines, vocabulary);
    for (Ids& ids : lines) scored.push_back({"", std::move(ids)});
    return scored;
  }
  const std::unique_ptr<Coder> coder = read_coder(folder, vocabulary);
  for (const std::string& text : texts_of(o.text, "fovea score text"))
    scored.push_back({text, coder->begun(text)});
  return scored;
}

// One text that may be longer than what the model reads: windows one behind the other, each of which sees its
// own tokens alone.
void score_in_windows(const ScoreTextCommand& o, const models::ModelFolder& folder,
                      models::LanguageModel& model) {
  if (o.text.input.empty() || !o.text.texts.empty())
    throw InvalidArgument("fovea score text", "--window", "--input beside it, and no text as an argument",
                          o.text.input.empty() ? "no --input" : "a text");
  if (o.window > model.longest())
    throw InvalidArgument("fovea score text", "--window",
                          fmt::format("at most the {} ids that the model reads", model.longest()),
                          std::to_string(o.window));
  const std::string text = read_whole(o.text.input, longest_text);
  const Ids ids = read_coder(folder, model.config().vocabulary)->begun(text);
  if (ids.size() < 2)
    throw InvalidArgument("fovea score text", "--input", "a text of two tokens at least", o.text.input);
  const autograd::CrossEntropyStats stats = train::evaluate(model, ids, o.window, 16, [] {
    if (stop_requested()) throw Stopped{"stopped"};
  });
  const double of_text = stats.log_likelihood,
               bits = -of_text / std::log(2.0) / static_cast<double>(text::count_characters(text));
  const auto tokens = static_cast<std::size_t>(stats.tokens);
  if (o.text.json)
    print_line({{"log_probability", of_text},
                {"tokens", tokens},
                {"perplexity", perplexity(of_text, tokens)},
                {"bits_a_character", bits}});
  else
    fmt::print("{:.4f}\t{}\t{:.4f}\t{:.4f} bits a character\n", of_text, tokens, perplexity(of_text, tokens),
               bits);
}

void check_length(const models::LanguageModel& model, const Ids& ids, std::size_t number) {
  if (std::ssize(ids) > model.longest())
    throw InvalidArgument("fovea score text", fmt::format("text {}", number),
                          fmt::format("at most the {} ids that the model reads", model.longest()),
                          std::to_string(ids.size()));
}

models::LanguageModel model_of(const models::ModelFolder& folder, const std::string& weights) {
  return folder.language_model(autograd::parse_weight_type(weights));
}

// What the weights change, over all texts: two models read them.
void compare_weights(const ScoreTextCommand& o, const models::ModelFolder& folder) {
  models::LanguageModel exact = model_of(folder, o.compare), given = model_of(folder, o.weights);
  const std::vector<Scored> texts = texts_and_ids(o, folder, given.config().vocabulary);
  models::LanguageErrors errors;
  for (std::size_t n = 0; n < texts.size(); ++n) {
    if (stop_requested()) throw Stopped{"stopped"};
    check_length(given, texts[n].ids, n + 1);
    if (texts[n].ids.size() < 2) continue;  // the first one is given: nothing is left to score
    errors.add(exact, given, texts[n].ids);
    for (const double sum : {errors.exact_log_probability, errors.given_log_probability})
      expect_number(sum, o.text.model, fmt::format("text {}", n + 1));
  }
  if (errors.tokens == 0)
    throw InvalidArgument("fovea score text", "--compare", "a text of two tokens at least", "none");
  const auto tokens = static_cast<std::size_t>(errors.tokens);
  const double same = static_cast<double>(errors.same_best) / static_cast<double>(tokens),
               exact_perplexity = perplexity(errors.exact_log_probability, tokens),
               given_perplexity = perplexity(errors.given_log_probability, tokens);
  if (o.text.json)
    return print_line({{"weights", o.weights},
                       {"compared_with", o.compare},
                       {"tokens", tokens},
                       {"hidden_relative_error", errors.hidden.value()},
                       {"logits_relative_error", errors.logits.value()},
                       {"largest_log_probability_difference", errors.largest_difference},
                       {"same_best_token", same},
                       {"perplexity", given_perplexity},
                       {"compared_perplexity", exact_perplexity}});
  fmt::print("weights          {} beside {}, over {} tokens\n", o.weights, o.compare, tokens);
  fmt::print("hidden states    relative error {:.3g}\n", errors.hidden.value());
  fmt::print("logits           relative error {:.3g}\n", errors.logits.value());
  fmt::print("log-probability  {:.3g} nats apart at most, of a token of the texts\n",
             errors.largest_difference);
  fmt::print("best token       the same for {:.2f} % of the tokens\n", 100.0 * same);
  fmt::print("perplexity       {:.4f}, with {} {:.4f}\n", given_perplexity, o.compare, exact_perplexity);
}

void run(const ScoreTextCommand& o) {
  if (!o.ids.empty() && (!o.text.texts.empty() || !o.text.input.empty()))
    throw InvalidArgument("fovea score text", "--ids-file", "nothing beside texts", o.ids);
  nn::use_threads(o.text.threads);
  const models::ModelFolder folder(o.text.model);
  if (!o.compare.empty()) {
    if (o.window > 0)
      throw InvalidArgument("fovea score text", "--compare", "no --window beside it", "--window");
    if (o.compare == o.weights)
      throw InvalidArgument("fovea score text", "--compare",
                            "other weights than those of --weights, such as int8", o.compare);
    return compare_weights(o, folder);
  }
  // Windows are read by the products of training, which know no packed weights.
  if (o.window > 0 && o.weights != "f32")
    throw InvalidArgument("fovea score text", "--weights", "f32 beside --window", o.weights);
  models::LanguageModel model = o.weights == "f32" ? folder.language_model() : model_of(folder, o.weights);
  if (o.window > 0) return score_in_windows(o, folder, model);
  const std::vector<Scored> texts = texts_and_ids(o, folder, model.config().vocabulary);
  for (std::size_t n = 0; n < texts.size(); ++n) check_length(model, texts[n].ids, n + 1);
  double sum = 0.0;
  std::size_t tokens = 0;
  for (std::size_t n = 0; n < texts.size() && !stop_requested(); ++n) {
    const auto& [text, ids] = texts[n];
    if (ids.size() < 2) {  // the first one is given: nothing is left to score
      if (o.text.json)
        print_line({{"text", text},
                    {"ids", ids},
                    {"log_probabilities", nlohmann::ordered_json::array()},
                    {"log_probability", 0.0},
                    {"perplexity", nullptr}});
      else
        fmt::print("0.0000\t0\tnan\t{}\n", text);
      continue;
    }
    const std::vector<double> of_ids = models::token_log_probabilities(model, ids);
    const double of_text = std::accumulate(of_ids.begin(), of_ids.end(), 0.0);
    expect_number(of_text, o.text.model, fmt::format("text {}", n + 1));
    sum += of_text;
    tokens += of_ids.size();
    if (o.text.json)
      print_line({{"text", text},
                  {"ids", ids},
                  {"log_probabilities", of_ids},
                  {"log_probability", of_text},
                  {"perplexity", perplexity(of_text, of_ids.size())}});
    else
      fmt::print("{:.4f}\t{}\t{:.4f}\t{}\n", of_text, of_ids.size(), perplexity(of_text, of_ids.size()),
                 text);
  }
  if (!o.text.json && texts.size() > 1)
    fmt::print("{:.4f}\t{}\t{:.4f}\tall\n", sum, tokens, perplexity(sum, tokens));
  end_of_texts();
}

}  // namespace

void register_score_text(Command score) {
  auto o = std::make_shared<ScoreTextCommand>();
  Command command = score.add_subcommand("text", "How probable a language model finds texts");
  command.footer(
      "A line has the log-probability in nats, the tokens and the perplexity of a text. Behind "
      "several texts a line that ends with 'all' has those of all together, but not in JSON.");
  add_text_options(command, o->text, "texts to score");
  add_weights_option(command, o->weights);
  command
      .add_option(
          "--compare", o->compare,
          "of --weights int8 or bf16: print what they change beside the model with these weights, such "
          "as f32, over all texts")
      .check(one_of({"f32", "int8", "bf16"}));
  command
      .add_option("--window", o->window,
                  "of --input, which is then one text of any length: it is read in windows of so many tokens")
      .check(in_range(1, 1 << 20));
  command.add_option("--ids-file", o->ids, "instead of texts: one sequence of token ids a line")
      .check(file_name());
  command.callback([o] {
    catch_signals();
    run(*o);
  });
}

}  // namespace fovea::cli
