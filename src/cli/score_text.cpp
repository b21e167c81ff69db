#include "cli/score_text.h"

#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/coder.h"
#include "cli/commands.h"
#include "cli/texts.h"
#include "fovea/core/error.h"
#include "fovea/models/model_folder.h"

namespace fovea::cli {
namespace {

struct Options {
  TextOptions text;
  std::string ids;
};

// Perplexity (Jelinek et al. 1977): e to the mean of -log p(token | those before it).
double perplexity(double log_probability, std::size_t tokens) {
  return std::exp(-log_probability / static_cast<double>(tokens));
}

struct Scored {
  std::string text;
  Ids ids;
};

std::vector<Scored> texts_and_ids(const Options& o, const models::ModelFolder& folder,
                                  std::int64_t vocabulary) {
  std::vector<Scored> scored;
  if (!o.ids.empty()) {
    for (Ids& ids : read_ids(o.ids)) scored.push_back({"", std::move(ids)});
    return scored;
  }
  const std::unique_ptr<Coder> coder = read_coder(folder, vocabulary);
  for (const std::string& text : texts_of(o.text, "fovea score text"))
    scored.push_back({text, coder->begun(text)});
  return scored;
}

void run(const Options& o) {
  if (!o.ids.empty() && (!o.text.texts.empty() || !o.text.input.empty()))
    throw InvalidArgument("fovea score text", "--ids-file", "nothing beside texts", o.ids);
  nn::use_openmp(o.text.threads);
  const models::ModelFolder folder(o.text.model);
  models::LanguageModel model = folder.language_model();
  const std::vector<Scored> texts = texts_and_ids(o, folder, model.config().vocabulary);
  double sum = 0.0;
  std::size_t tokens = 0;
  for (std::size_t n = 0; n < texts.size() && !stop_requested(); ++n) {
    const auto& [text, ids] = texts[n];
    if (ids.size() < 2)
      throw InvalidArgument("fovea score text", fmt::format("text {}", n + 1),
                            "at least two ids, because the first one is given", std::to_string(ids.size()));
    if (std::ssize(ids) > model.config().positions)
      throw InvalidArgument("fovea score text", fmt::format("text {}", n + 1),
                            fmt::format("at most the {} ids that the model reads", model.config().positions),
                            std::to_string(ids.size()));
    const std::vector<double> of_ids = models::token_log_probabilities(model, ids);
    const double of_text = std::accumulate(of_ids.begin(), of_ids.end(), 0.0);
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

void register_score_text(CLI::App& score) {
  auto o = std::make_shared<Options>();
  CLI::App* command = score.add_subcommand(
      "text", "How probable a language model finds texts: log-probability in nats, tokens, perplexity");
  add_text_options(*command, o->text, "texts to score");
  command->add_option("--ids-file", o->ids, "instead of texts: one sequence of token ids a line");
  command->callback([o] {
    catch_signals();
    run(*o);
  });
}

}  // namespace fovea::cli
