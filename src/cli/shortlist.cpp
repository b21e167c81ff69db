// `fovea shortlist`: learns the lexical short-list of a translator.
#include "fovea/models/shortlist.h"

#include <fmt/format.h>

#include "cli/commands.h"
#include "fovea/models/model_folder.h"
#include "fovea/text/corpus.h"
#include "fovea/text/generated.h"
#include "fovea/train/dataset.h"
#include "models/configs.h"

namespace fovea::cli {
namespace {

struct ShortlistCommand {
  std::string model, source, target, tsv, corpus = "files";
  std::int64_t translations = 50, always = 100, max_length = 200;
  std::int64_t corpus_size = 50000;
  std::uint64_t seed = 1;
  int iterations = 5;
};

// An option that would change nothing is refused.
void check(const ShortlistCommand& o, Command command) {
  const auto refuse = [&](const std::string& beside, std::initializer_list<const char*> options) {
    for (const char* option : options) {
      if (command.given(option))
        throw InvalidArgument("fovea shortlist", option, "nothing beside " + beside, "a value");
    }
  };
  if (o.corpus == "generated")
    refuse("--corpus generated", {"--train-source", "--train-target", "--train-tsv"});
  else
    refuse("a corpus from files", {"--corpus-size", "--seed"});
  if (!o.tsv.empty()) refuse("--train-tsv", {"--train-source", "--train-target"});
}

text::ParallelCorpus read_corpus(const ShortlistCommand& o) {
  if (o.corpus == "generated") return text::generate_corpus({.seed = o.seed, .count = o.corpus_size});
  if (o.tsv.empty() && (o.source.empty() || o.target.empty()))
    throw InvalidArgument("fovea shortlist", "--train-source, --train-target",
                          "two files (or --train-tsv, or --corpus generated)", "none");
  return o.tsv.empty() ? text::read_parallel_files(o.source, o.target, {}).corpus
                       : text::read_tsv(o.tsv, {}).corpus;
}

void run(const ShortlistCommand& o) {
  if (!models::is_own_translator(models::ModelFolder(o.model).config()))
    throw FileError(o.model, -1, "is no translator of fovea train");
  const auto tokenizer = text::load_tokenizer(o.model);
  std::vector<std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>>> pairs;
  for (train::Example& example : train::encode(read_corpus(o), *tokenizer, o.max_length, nullptr))
    pairs.emplace_back(std::move(example.source), std::move(example.target));
  if (pairs.empty())
    throw InvalidArgument("fovea shortlist",
                          o.corpus == "generated" ? "--corpus"
                          : o.tsv.empty()         ? "--train-source"
                                                  : "--train-tsv",
                          fmt::format("at least one pair of at most {} pieces (--max-length)", o.max_length),
                          "none");
  const models::Shortlist list = models::learn_shortlist(pairs, {.vocabulary = tokenizer->size(),
                                                                 .translations = o.translations,
                                                                 .always = o.always,
                                                                 .also = {text::kUnknownId, text::kEosId},
                                                                 .iterations = o.iterations});
  const auto file = models::shortlist_path(o.model);
  list.save(file);
  double candidates = 0.0;
  for (const auto& [source, target] : pairs)
    candidates += static_cast<double>(list.candidates(source).size());
  fmt::print(stderr, "{} pairs; {:.0f} of {} pieces for a source, in the mean; {}\n", pairs.size(),
             pairs.empty() ? 0.0 : candidates / static_cast<double>(pairs.size()), tokenizer->size(),
             file.string());
}

}  // namespace

void register_shortlist(Command app) {
  auto o = std::make_shared<ShortlistCommand>();
  Command command = app.add_subcommand("shortlist", "Learn likely pieces, for translate --shortlist");
  command.add_option("--model", o->model, "folder that train wrote; gets shortlist.bin").required();
  command.add_option("--train-source", o->source, "one sentence a line").check(file_name());
  command.add_option("--train-target", o->target, "its translations").check(file_name());
  command.add_option("--train-tsv", o->tsv, "source and target in columns").check(file_name());
  command.add_option("--corpus", o->corpus, "files, or the generated corpus of fovea train")
      .check(one_of({"files", "generated"}));
  command.add_option("--corpus-size", o->corpus_size, "pairs of the generated corpus")
      .check(in_range(1, 100000000));
  command.add_option("--seed", o->seed, "of the generated corpus");
  command.add_option("--translations", o->translations, "of a source piece, at most")
      .check(in_range(0, 1 << 22));
  command.add_option("--always", o->always, "the most frequent target pieces, which every source has")
      .check(in_range(0, 1 << 22));
  command.add_option("--max-length", o->max_length, "longer pairs are left out, in pieces")
      .check(in_range(1, 100000));
  command.add_option("--iterations", o->iterations, "of expectation maximisation (IBM Model 1)")
      .check(in_range(0, 1000));
  command.callback([o, command] {
    check(*o, command);
    run(*o);
  });
}

}  // namespace fovea::cli
