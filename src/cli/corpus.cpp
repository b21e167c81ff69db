#include <fmt/format.h>

#include "cli/commands.h"
#include "fovea/core/error.h"
#include "fovea/files/bytes.h"
#include "fovea/text/alignment.h"
#include "fovea/text/generated.h"
#include "fovea/text/gettext.h"
#include "fovea/text/manuals.h"

namespace fovea::cli {
namespace {

struct CorpusCommand {
  std::string output, language = "fr", file;
  std::int64_t count = 30000, held_out = 1000;
  int min_words = 3, max_words = 60;
  std::uint64_t seed = 1;
};

void write(const text::ParallelCorpus& corpus, const std::string& prefix, const std::string& language) {
  text::write_parallel_files(corpus, prefix + ".en", prefix + "." + language);
  fmt::print("{}.en, {}.{}: {} pairs\n", prefix, prefix, language, corpus.size());
  if (!corpus.has_alignments()) return;
  std::string alignments;
  for (const text::Alignment& alignment : corpus.alignments) alignments += text::to_pharaoh(alignment) + '\n';
  files::write_file(prefix + ".align", alignments);
}

void run_generated(const CorpusCommand& o) {
  if (o.min_words > o.max_words)
    throw InvalidArgument("fovea corpus generated", "--max-words",
                          "at least --min-words " + std::to_string(o.min_words), std::to_string(o.max_words));
  const auto split = [&](text::Split which, std::int64_t count, text::LengthShape lengths) {
    return text::generate_corpus({.seed = o.seed,
                                  .count = count,
                                  .min_words = o.min_words,
                                  .max_words = o.max_words,
                                  .lengths = lengths,
                                  .split = which});
  };
  write(split(text::Split::train, o.count, text::LengthShape::mostly_short), o.output + ".train", "fr");
  write(split(text::Split::valid, o.held_out, text::LengthShape::mostly_short), o.output + ".valid", "fr");
  write(split(text::Split::test, o.held_out, text::LengthShape::uniform), o.output + ".test", "fr");
}

void run_gettext(const CorpusCommand& o) {
  if (o.language == "en")
    throw InvalidArgument("fovea corpus gettext", "--language", "another language than the source's", "en");
  const text::GettextResult all = text::gettext_corpus({.language = o.language});
  fmt::print("{}\n", all.report.to_string());
  write(text::select_split(all.corpus, text::Split::train), o.output + ".train", o.language);
  write(text::select_split(all.corpus, text::Split::valid), o.output + ".valid", o.language);
  write(text::select_split(all.corpus, text::Split::test), o.output + ".test", o.language);
}

void run_manuals(const CorpusCommand& o) {
  const text::ManualTexts texts = text::read_manuals(o.file);
  for (const auto& [name, part] :
       {std::pair("train", &texts.train), std::pair("valid", &texts.valid), std::pair("test", &texts.test)}) {
    const std::string path = fmt::format("{}.{}.txt", o.output, name);
    files::write_file(path, *part);
    fmt::print("{}: {} characters\n", path, part->size());
  }
  fmt::print("{} files; {} characters of repeated paragraphs left out\n", texts.sources.size(),
             texts.left_out);
}

}  // namespace

void register_corpus(Command app) {
  Command corpus = app.add_subcommand("corpus", "Write a parallel corpus, or a text to train on");
  corpus.require_subcommand();
  auto g = std::make_shared<CorpusCommand>();
  Command generated =
      corpus.add_subcommand("generated", "English-French from a grammar, with gold word alignments");
  generated.add_option("--output", g->output, "prefix of the files").required().check(file_name());
  generated.add_option("--count", g->count, "training pairs").check(in_range(1, 10000000));
  generated.add_option("--held-out", g->held_out, "pairs for validation and for test")
      .check(in_range(1, 100000));
  generated.add_option("--min-words", g->min_words, "of an English sentence").check(in_range(3, 60));
  generated.add_option("--max-words", g->max_words, "of an English sentence").check(in_range(3, 60));
  generated.add_option("--seed", g->seed, "of the pairs that are drawn");
  generated.callback([g] { run_generated(*g); });
  auto c = std::make_shared<CorpusCommand>();
  Command gettext = corpus.add_subcommand("gettext", "The translations of installed programs' messages");
  gettext.add_option("--output", c->output, "prefix of the files").required().check(file_name());
  gettext.add_option("--language", c->language, "code of the language, such as fr");
  gettext.callback([c] { run_gettext(*c); });
  auto m = std::make_shared<CorpusCommand>();
  Command manuals =
      corpus.add_subcommand("manuals", "The licences and manuals installed here, as a text of three parts");
  manuals.add_option("--output", m->output, "prefix of the files").required().check(file_name());
  manuals.add_option("--file", m->file, "this text instead").check(file_name());
  manuals.callback([m] { run_manuals(*m); });
}

}  // namespace fovea::cli
