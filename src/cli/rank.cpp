#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/head_texts.h"
#include "fovea/core/error.h"
#include "fovea/models/heads.h"

namespace fovea::cli {
namespace {

struct Options {
  HeadOptions head;
  std::string query;
  std::size_t top_k = 0;
};

struct Ranked {
  std::size_t number = 0;
  double score = 0.0;
};

void run(const Options& o) {
  const HeadModel model(o.head, "fovea rank", {models::FamilyHead::sequence_labels});
  if (model.config().labels.size() != 1)
    throw FileError(models::config_path(o.head.model).string(), -1,
                    fmt::format("expected a model with one label, which ranks pairs of texts, got {} labels",
                                model.config().labels.size()));
  const std::vector<std::string> passages = texts_of(o.head, "fovea rank");
  std::vector<text::Encoding> encodings;
  for (const std::string& passage : passages) encodings.push_back(model.encode_pair(o.query, passage));
  const models::ScoreFunction function =
      model.config().pair_score_function.value_or(models::ScoreFunction::sigmoid);
  std::vector<Ranked> ranked;
  model.run(encodings, [&](std::size_t number, const Tensor& logits) {
    ranked.push_back({number, models::scores_of(function, {logits.data<float>(), 1}).front()});
  });
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const Ranked& a, const Ranked& b) { return a.score > b.score; });
  if (o.top_k > 0 && o.top_k < ranked.size()) ranked.resize(o.top_k);
  for (const auto& [number, score] : ranked) {
    if (o.head.json)
      print_line({{"number", number}, {"score", score}, {"text", passages[number]}});
    else
      fmt::print("{:.4f}\t{}\n", score, passages[number]);
  }
  end_of_texts();
}

}  // namespace

void register_rank(Command app) {
  auto o = std::make_shared<Options>();
  Command command = app.add_subcommand("rank", "Sort passages by how well they answer a query");
  add_head_options(command, o->head, "passages, which are cut where they are too long");
  command.add_option("--query", o->query, "what is sought").required();
  command.add_option("--top-k", o->top_k, "passages that are printed; 0: all");
  command.callback([o] {
    catch_signals();
    run(*o);
  });
}

}  // namespace fovea::cli
