#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <span>

#include "cli/commands.h"
#include "cli/head_texts.h"
#include "cli/progress.h"
#include "fovea/core/error.h"
#include "fovea/models/heads.h"
#include "fovea/train/sentence_embedder.h"

namespace fovea::cli {
namespace {

struct RankCommand {
  HeadOptions head;
  std::string query;
  std::size_t top_k = 0;
};

void print_best(const RankCommand& o, const std::vector<std::string>& passages,
                const std::vector<double>& scores) {
  for (const std::size_t number : models::best_of(scores, o.top_k)) {
    if (o.head.json)
      print_line({{"number", number}, {"score", scores[number]}, {"text", passages[number]}});
    else
      fmt::print("{:.4f}\t{}\n", scores[number], passages[number]);
  }
  end_of_texts();
}

// By a model that reads the query and a passage at once.
void rank_pairs(const RankCommand& o) {
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
  std::vector<double> scores;
  CountProgress progress("rank", "passages");
  model.run(encodings, [&](std::size_t number, const Tensor& logits) {
    progress.show(static_cast<std::int64_t>(number), std::ssize(encodings));
    scores.push_back(models::scores_of(function, {logits.data<float>(), 1}).front());
  });
  progress.clear();
  print_best(o, passages, scores);
}

// By the vectors of the query and of each passage, which the model reads alone.
void rank_vectors(const RankCommand& o) {
  nn::use_threads(o.head.threads);
  train::SentenceEmbedder embedder(o.head.model, autograd::parse_weight_type(o.head.weights));
  const models::SentenceFolder& folder = embedder.folder();
  const auto vectors_of = [&](std::span<const std::string> texts, const std::string& prompt) {
    CountProgress progress("rank", "passages");
    Tensor vectors = embedder.vectors(texts, prompt, [&](std::int64_t done) {
      progress.show(done, std::ssize(texts));
      return !stop_requested();
    });
    if (stop_requested()) throw Stopped{"stopped"};
    expect_numbers(vectors, o.head.model, "a text");
    return vectors;
  };
  const std::vector<std::string> passages = texts_of(o.head, "fovea rank");
  if (passages.empty()) return;
  const Tensor query = vectors_of({&o.query, 1}, folder.query_prompt());
  print_best(o, passages,
             models::similarities(folder.similarity, query, vectors_of(passages, folder.passage_prompt())));
}

void run(const RankCommand& o) {
  check_utf8("fovea rank", "--query", o.query);
  models::makes_sentence_vectors(o.head.model) ? rank_vectors(o) : rank_pairs(o);
}

}  // namespace

void register_rank(Command app) {
  auto o = std::make_shared<RankCommand>();
  Command command = app.add_subcommand("rank", "Sort passages by how well they answer a query");
  command.footer(
      "The model scores pairs of texts, or is one of sentence-transformers, whose vectors are compared.");
  add_head_options(command, o->head, "passages, which are cut where they are too long");
  command.add_option("--query", o->query, "what is sought").required();
  command.add_option("--top-k", o->top_k, "passages that are printed; 0: all");
  command.callback([o] {
    catch_signals();
    run(*o);
  });
}

}  // namespace fovea::cli
