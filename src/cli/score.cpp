#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/score_text.h"
#include "fovea/core/error.h"
#include "fovea/text/alignment.h"
#include "fovea/text/bleu.h"
#include "fovea/text/corpus.h"

namespace fovea::cli {
namespace {

struct Bleu {
  std::string reference, hypothesis, tokenize = "13a";
  bool lowercase = false;
};

void run_bleu(const Bleu& o) {
  // A hypothesis may be empty, so empty lines are not skipped here.
  const auto references = text::read_lines(o.reference), hypotheses = text::read_lines(o.hypothesis);
  if (references.size() != hypotheses.size()) {
    throw InvalidArgument("fovea score bleu", "--hypothesis",
                          std::to_string(references.size()) + " lines, as many as the reference",
                          std::to_string(hypotheses.size()));
  }
  if (references.empty())
    throw InvalidArgument("fovea score bleu", "--reference", "at least one line", "none");
  const text::BleuScore score =
      text::bleu(hypotheses, references,
                 {o.tokenize == "none" ? text::BleuTokenizer::none : text::BleuTokenizer::mteval_13a,
                  o.lowercase ? text::LetterCase::lower : text::LetterCase::mixed});
  fmt::print("{}\n{}\n", score.to_string(), score.signature());
}

struct AlignmentFiles {
  std::string gold, hypothesis;
};

void run_alignment(const AlignmentFiles& o) {
  const auto gold = text::read_pharaoh(o.gold), hypotheses = text::read_pharaoh(o.hypothesis);
  if (gold.size() != hypotheses.size()) {
    throw InvalidArgument("fovea score alignment", "--hypothesis",
                          std::to_string(gold.size()) + " lines, as many as the gold alignment",
                          std::to_string(hypotheses.size()));
  }
  if (gold.empty()) throw InvalidArgument("fovea score alignment", "--gold", "at least one line", "none");
  fmt::print("{}\n", text::score_alignments(hypotheses, text::as_gold(gold)).to_string());
}

}  // namespace

void register_score(Command app) {
  Command score = app.add_subcommand("score", "Score texts, translations or alignments");
  score.require_subcommand();
  auto b = std::make_shared<Bleu>();
  Command bleu = score.add_subcommand("bleu", "BLEU as sacreBLEU computes it");
  bleu.add_option("--reference", b->reference, "file with one sentence a line").required();
  bleu.add_option("--hypothesis", b->hypothesis, "file with as many lines").required();
  bleu.add_option("--tokenize", b->tokenize, "how both are split; none: at blanks")
      .check(one_of({"13a", "none"}));
  bleu.add_flag("--lowercase", b->lowercase, "ignore capitals");
  bleu.callback([b] { run_bleu(*b); });
  auto a = std::make_shared<AlignmentFiles>();
  Command alignment =
      score.add_subcommand("alignment", "Alignment error rate (Och and Ney 2003), Pharaoh files");
  alignment.add_option("--gold", a->gold, "file of a line a pair: 0-0 1?2, ? for a possible link").required();
  alignment.add_option("--hypothesis", a->hypothesis, "file of as many lines: 0-0 1-2").required();
  alignment.callback([a] { run_alignment(*a); });
  register_score_text(score);
}

}  // namespace fovea::cli
