#include "fovea/text/generated.h"

#include <algorithm>
#include <cstdlib>
#include <unordered_set>
#include <utility>

#include "core/fnv1a.h"
#include "fovea/core/error.h"
#include "fovea/core/philox.h"
#include "text/generated/generator.h"
#include "text/utf8.h"

namespace fovea::text {
namespace {

constexpr int kShortest = 3, kLongest = 60;
// After this many draws without a new sentence a length counts as used up (there are only some hundred
// sentences of 3 words). From then on a longer sentence is drawn instead.
constexpr int kMaxMisses = 2000;

std::string lower_ascii(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return text;
}

// A held-out sentence may not hide inside a longer one either.
bool is_held_out(const std::string& source) {
  const std::string text = " " + lower_ascii(source) + " ";
  return text.find(" the cat sat on the mat ") != std::string::npos ||
         text.find(" the agreement on the european economic area was signed in august 1992 ") !=
             std::string::npos;
}

void check(const GeneratedCorpusOptions& options) {
  const auto refuse = [](const char* argument, const std::string& expected, std::int64_t got) {
    throw InvalidArgument("generate_corpus", argument, expected, std::to_string(got));
  };
  if (options.count < 0) refuse("count", "0 or more", options.count);
  if (options.min_words < kShortest || options.min_words > kLongest)
    refuse("min_words", "3..60", options.min_words);
  if (options.max_words < options.min_words || options.max_words > kLongest) {
    refuse("max_words", "min_words..60", options.max_words);
  }
}

int draw_length(const GeneratedCorpusOptions& options, PhiloxStream& random) {
  const auto range = static_cast<std::uint32_t>(options.max_words - options.min_words + 1);
  std::uint32_t length = random.next_below(range);
  if (options.lengths == LengthShape::mostly_short) {
    length = std::min(length, std::min(random.next_below(range), random.next_below(range)));
  }
  return options.min_words + static_cast<int>(length);
}

}  // namespace

Split split_of(std::string_view source) {
  Fnv1a hash;
  hash.mix(source);
  // FNV's low bits are its weak ones; fold the high half in.
  const std::uint64_t percent = (hash.value() ^ hash.value() >> 32) % 100;
  return percent < 90 ? Split::train : percent < 95 ? Split::valid : Split::test;
}

ParallelCorpus generate_corpus(const GeneratedCorpusOptions& options) {
  check(options);
  PhiloxStream random(options.seed);
  ParallelCorpus corpus;
  std::unordered_set<std::string> seen;
  int shortest_left = options.min_words;
  while (static_cast<std::int64_t>(corpus.size()) < options.count) {
    const int wanted = std::max(draw_length(options, random), shortest_left);
    bool found = false;
    for (int miss = 0; miss < kMaxMisses && !found; ++miss) {
      generated::Sentence drawn = generated::Generator(random).sentence(wanted);
      const bool fits = drawn.num_source_words >= options.min_words &&
                        drawn.num_source_words <= options.max_words &&
                        std::abs(drawn.num_source_words - wanted) <= 2;
      if (!fits || split_of(drawn.pair.source) != options.split || is_held_out(drawn.pair.source)) continue;
      found = seen.insert(drawn.pair.source).second;
      if (!found) continue;
      corpus.pairs.push_back(std::move(drawn.pair));
      corpus.alignments.push_back(std::move(drawn.alignment));
    }
    if (found) continue;
    if (wanted == options.max_words) {
      throw InvalidArgument(
          "generate_corpus", "count", "as many sentences as the grammar has of these lengths",
          std::to_string(options.count) + " (there were " + std::to_string(corpus.size()) + ")");
    }
    shortest_left = wanted + 1;
  }
  return corpus;
}

ParallelCorpus held_out_sentences() {
  ParallelCorpus corpus;
  for (generated::Sentence sentence : {generated::cat_on_mat(), generated::economic_area()}) {
    corpus.pairs.push_back(std::move(sentence.pair));
    corpus.alignments.push_back(std::move(sentence.alignment));
  }
  return corpus;
}

std::string detokenize(std::string_view tokenized) {
  std::string text;
  for (const std::string_view word : split_words(tokenized)) {
    const bool joins = text.empty() || text.ends_with('\'') || word == "." || word == ",";
    if (!joins) text += ' ';
    text += word;
  }
  return text;
}

std::string tokenize_generated(std::string_view text) {
  std::string tokens;
  const auto add = [&](std::string_view token) {
    if (token.empty()) return;
    if (!tokens.empty()) tokens += ' ';
    tokens += token;
  };
  for (std::string_view word : split_words(text)) {
    std::string_view mark;
    if (word.size() > 1 && (word.back() == '.' || word.back() == ',')) {
      mark = word.substr(word.size() - 1);
      word.remove_suffix(1);
    }
    const std::size_t apostrophe = word.find('\'');
    // "aujourd'hui" is one word in French.
    const bool elision = apostrophe != std::string_view::npos && apostrophe <= 2;
    if (elision) {
      add(word.substr(0, apostrophe + 1));
      add(word.substr(apostrophe + 1));
    } else {
      add(word);
    }
    add(mark);
  }
  return tokens;
}

}  // namespace fovea::text
