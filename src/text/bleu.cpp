#include "fovea/text/bleu.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <unordered_map>
#include <vector>

#include "fovea/core/error.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace fovea::text {
namespace {

constexpr std::size_t kOrders = 4;
constexpr const char* kVersion = "fovea-" FOVEA_VERSION;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_stop(char c) {
  return c == '.' || c == ',';
}
// ASCII punctuation except ' , - .
bool is_symbol(char c) {
  return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') ||
         (c >= '(' && c <= '+') || (c >= ':' && c <= '@') || c == '/';
}

// One pass of mteval's rules: where `matches(text[i], text[i+1])`, both are written with blanks and the scan
// goes on after them, so matches never overlap ("..." depends on it). Working on bytes is enough: only ASCII
// is matched, and no byte of a multi-byte neighbour is a digit.
template <typename Matches>
std::string separate(const std::string& text, Matches matches, bool blank_before) {
  std::string result;
  result.reserve(text.size() + text.size() / 4);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i + 1 < text.size() && matches(text[i], text[i + 1])) {
      if (blank_before) result += ' ';
      result += text[i];
      result += ' ';
      result += text[i + 1];
      if (!blank_before) result += ' ';
      ++i;
    } else {
      result += text[i];
    }
  }
  return result;
}

std::string mteval_13a(std::string line) {
  replace_all(line, "<skipped>", "");
  replace_all(line, "-\n", "");
  replace_all(line, "\n", " ");
  replace_all(line, "&quot;", "\"");
  replace_all(line, "&amp;", "&");
  replace_all(line, "&lt;", "<");
  replace_all(line, "&gt;", ">");
  std::string spaced = " ";
  for (const char c : line + ' ') {
    if (is_symbol(c)) {
      spaced += ' ', spaced += c, spaced += ' ';
    } else {
      spaced += c;
    }
  }
  spaced = separate(
      spaced, [](char a, char b) { return !is_digit(a) && is_stop(b); }, false);
  spaced = separate(
      spaced, [](char a, char b) { return is_stop(a) && !is_digit(b); }, true);
  return separate(
      spaced, [](char a, char b) { return is_digit(a) && b == '-'; }, false);
}

std::string preprocess(std::string_view line, const BleuOptions& options) {
  std::string text = options.letter_case == LetterCase::lower ? lower_case(line) : std::string(line);
  if (options.tokenizer == BleuTokenizer::none) return text;
  // Trailing white space goes first, so that a final "-\n" keeps its dash.
  const auto words = split_unicode(text);
  text.resize(
      words.empty() ? 0 : static_cast<std::size_t>(words.back().data() + words.back().size() - text.data()));
  return mteval_13a(std::move(text));
}

using Gram = std::array<int, kOrders>;  // -1 beyond its order
using Counts = std::map<Gram, std::int64_t>;

Counts count_grams(const std::vector<int>& tokens) {
  Counts counts;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    Gram gram;
    gram.fill(-1);
    for (std::size_t n = 0; n < kOrders && i + n < tokens.size(); ++n) {
      gram[n] = tokens[i + n];
      ++counts[gram];
    }
  }
  return counts;
}

std::size_t order_of(const Gram& gram) {
  return static_cast<std::size_t>(std::count_if(gram.begin(), gram.end(), [](int id) { return id >= 0; }));
}

void add_segment(const std::string& hypothesis, const std::string& reference, BleuScore& score) {
  const std::string texts[2] = {preprocess(hypothesis, score.options), preprocess(reference, score.options)};
  std::unordered_map<std::string_view, int> ids;
  std::vector<int> tokens[2];
  for (int side = 0; side < 2; ++side) {
    for (const std::string_view word : split_unicode(texts[side])) {
      tokens[side].push_back(ids.emplace(word, static_cast<int>(ids.size())).first->second);
    }
  }
  score.sys_len += static_cast<std::int64_t>(tokens[0].size());
  score.ref_len += static_cast<std::int64_t>(tokens[1].size());
  const Counts expected = count_grams(tokens[1]);
  for (const auto& [gram, count] : count_grams(tokens[0])) {
    const std::size_t n = order_of(gram) - 1;
    score.total[n] += count;
    if (const auto found = expected.find(gram); found != expected.end()) {
      score.correct[n] += std::min(count, found->second);
    }
  }
}

// Smoothing "exp" (method 3 of Chen and Cherry 2014): the k-th order without a match counts 1 / 2^k of a
// match.
void finish(BleuScore& score) {
  score.brevity_penalty = 1;
  if (score.sys_len < score.ref_len) {
    score.brevity_penalty =
        score.sys_len == 0
            ? 0
            : std::exp(1 - static_cast<double>(score.ref_len) / static_cast<double>(score.sys_len));
  }
  if (std::all_of(score.correct.begin(), score.correct.end(), [](std::int64_t c) { return c == 0; })) return;
  double smoothing = 1, log_sum = 0;
  bool any_zero = false;
  for (std::size_t n = 0; n < kOrders; ++n) {
    if (score.total[n] == 0) {
      any_zero = true;
      break;
    }
    const auto total = static_cast<double>(score.total[n]);
    if (score.correct[n] == 0) {
      smoothing *= 2;
      score.precisions[n] = 100 / (smoothing * total);
    } else {
      score.precisions[n] = 100 * static_cast<double>(score.correct[n]) / total;
    }
    log_sum += std::log(score.precisions[n]);
  }
  score.score = any_zero ? 0 : score.brevity_penalty * std::exp(log_sum / static_cast<double>(kOrders));
}

}  // namespace

std::string BleuScore::signature() const {
  return std::string("nrefs:1|case:") + (options.letter_case == LetterCase::lower ? "lc" : "mixed") +
         "|eff:no|tok:" + (options.tokenizer == BleuTokenizer::none ? "none" : "13a") +
         "|smooth:exp|version:" + kVersion;
}

std::string BleuScore::to_string() const {
  const double ratio = ref_len ? static_cast<double>(sys_len) / static_cast<double>(ref_len) : 0;
  char line[200];
  std::snprintf(line, sizeof line,
                "BLEU = %.2f %.1f/%.1f/%.1f/%.1f (BP = %.3f ratio = %.3f hyp_len = %lld ref_len = %lld)",
                score, precisions[0], precisions[1], precisions[2], precisions[3], brevity_penalty, ratio,
                static_cast<long long>(sys_len), static_cast<long long>(ref_len));
  return line;
}

BleuScore bleu(std::span<const std::string> hypotheses, std::span<const std::string> references,
               const BleuOptions& options) {
  if (hypotheses.size() != references.size() || hypotheses.empty()) {
    throw InvalidArgument(
        "bleu", "hypotheses",
        "one line for each of the " + std::to_string(references.size()) + " references, at least one",
        std::to_string(hypotheses.size()));
  }
  BleuScore score;
  score.options = options;
  for (std::size_t i = 0; i < hypotheses.size(); ++i) add_segment(hypotheses[i], references[i], score);
  finish(score);
  return score;
}

std::string bleu_tokenize(std::string_view line, const BleuOptions& options) {
  const std::string text = preprocess(line, options);
  std::string tokens;
  for (const std::string_view word : split_unicode(text)) {
    if (!tokens.empty()) tokens += ' ';
    tokens += word;
  }
  return tokens;
}

}  // namespace fovea::text
